// Package fluid is the fluid model of DCQCN: flows of equal parameters through one
// bottleneck that marks by RED, as differential equations with a delay. It says
// where rates, queue and alpha settle, to lay beside what a simulation of real
// queue pairs gives.
//
// The model is that of Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015, section 5, in the notation of Zhu et al., "ECN or
// Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT 2016, section 3,
// where its fixed point is derived. It counts in packets and seconds, and leaves
// out hyper increase, PFC, and all that is discrete.
package fluid
