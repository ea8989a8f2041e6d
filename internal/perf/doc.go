// Package perf is perftest over gorxe: rxe perf write_bw is ib_write_bw, and so
// on for the eight tools. The far end can be the tool of that name, of any
// version from 5.70 on, on any machine with any RDMA NIC, in either role.
// Package perf/oob has the exchange over TCP, package perf/report prints what
// perftest prints; this package has the device, the loops, and the order:
//
//	rendezvous, Hello       versions and path MTU
//	setup                   memory, completion queue, queue pairs
//	Exchange, connect       addresses; queue pairs to RTS
//	for each size           receives posted, Begin, the loop, End, a row
//	Finish                  the last result
//
// One end has one completion queue and one loop, in the caller's goroutine,
// which allocates nothing. The work request's ID tells the queue pair, the
// direction and the number of the message.
//
// Where it does more than perftest:
//
//   - Every wait ends: a peer that has closed its connection, or is silent for
//     Config.Timeout, ends the run with an error that says what came until then.
//   - UC and UD lose messages, for which perftest waits for two minutes or for
//     ever. Here a receiver that has had nothing for lossWait ends, with the
//     result so far and how many are missing.
//   - With Check, which both ends must have and must be of this package, every
//     octet of every message is compared (check.go).
//
// Source: the behaviour of perftest 6.06 and 6.24 between Soft-RoCE guests, and
// perftest's src/perftest_resources.c and perftest_parameters.c.
package perf
