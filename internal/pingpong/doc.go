// Package pingpong is ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and
// ibv_srq_pingpong over gorxe: the far end can be the program of that name in
// rdma-core, on any machine with any RDMA NIC. The exchange over TCP is
// compatible byte by byte, in both roles, and so are the options and what is
// printed.
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
// srq writes 256 times 52 octets each way, zeros beyond its queue pairs, and
// passes a message back and forth on each of them; -n counts the messages of all
// (the help of the original says for each, but it counts like this). ud has an
// address handle to the peer's address and the Q_Key 0x11111111 at both ends.
//
// Where it does more than the originals:
//
//   - Every wait for the peer ends (Config.Timeout): the originals wait forever
//     for a peer that took a message and then went, and with uc and ud for every
//     packet that is lost. The error of uc and ud says what was dropped here.
//   - The TCP connection is kept until the end. A peer of this package that has
//     everything closes it; one that missed an ACK is still answered.
//   - With Check, data are sent from one buffer and received into another that
//     is overwritten before each message, and each message of this package's
//     client differs from the last (but for srq, whose original mixes the
//     messages of its queue pairs in one buffer). In the original's one buffer a
//     message that was never written, or an earlier one again, looks like the
//     right one.
//   - Datagrams of other queue pairs than the peer's are left out. (One of the
//     peer's that the network repeats cannot be told from the next, as in the
//     original.)
//   - The number of queue pairs (-q) may be smaller at the client of srq; where
//     it is larger, both are told.
//   - The hop limit is 64 here whatever carries the packets; the originals ask
//     for 1, which crosses no router, but Linux puts the route's in its place.
//
// One buffer for both ways, as here without Check, changes the data of a SEND
// before its ACK has come. That is sound: the peer answers a message when it
// has all of it, so whatever is sent again after that is a repeat, of which
// the peer takes no data.
//
// Source: the behaviour of rdma-core's libibverbs/examples/rc_pingpong.c,
// uc_pingpong.c, ud_pingpong.c and srq_pingpong.c (44 and 56).
package pingpong
