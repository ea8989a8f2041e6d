// Package pingpong is ibv_rc_pingpong over gorxe: the far end can be the
// program of that name in rdma-core, on any machine with any RDMA NIC. The
// exchange over TCP is compatible byte by byte, in both roles, and so are the
// options and what is printed.
//
// Source: the behaviour of rdma-core's libibverbs/examples/rc_pingpong.c.
package pingpong
