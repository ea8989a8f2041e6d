// Package pingpong is ibv_rc_pingpong over gorxe: the far end can be the
// program of that name in rdma-core, on any machine with any RDMA NIC. The
// exchange over TCP is compatible byte by byte, in both roles, and so are the
// options and what is printed.
//
//	client                                server
//	  52 octets LID:QPN:PSN:GID\0   ----->
//	                                        RESET -> INIT -> RTR -> RTS, receives posted
//	                                <-----  52 octets
//	  RESET -> ... -> RTS
//	  "done\0"                      ----->
//	  SEND                          =====>  its receive completes
//	                                <=====  SEND
//	  ... as often as -n says
//
// Where it does more than the original:
//
//   - Every wait for the peer ends (Config.Timeout): the original waits forever
//     for a peer that took a message and then went.
//   - The TCP connection is kept until the end. A peer of this package that has
//     everything closes it; one that missed an ACK is still answered.
//   - With Check, data are sent from one buffer and received into another that
//     is overwritten before each message, and each message of this package's
//     client differs from the last. In the original's one buffer a message that
//     was never written, or an earlier one again, looks like the right one.
//   - The hop limit is 64; the original's 1 crosses no router.
//
// One buffer for both ways, as here without Check, changes the data of a SEND
// before its ACK has come. That is sound: the peer answers a message when it
// has all of it, so whatever is sent again after that is a repeat, of which
// the peer takes no data.
//
// Source: the behaviour of rdma-core's libibverbs/examples/rc_pingpong.c.
package pingpong
