// Package mem is a network in memory: a switch with any number of ports, each
// port one link.Link per shard of a NIC. It needs no privilege and no kernel,
// is deterministic for one sender, and waits on channels and timers only, so
// that a NIC on it runs inside a testing/synctest bubble.
//
//	Send --> port that owns Flow.Dst --> shard by destination QPN --> ring --> Recv
//	             |                                                     |
//	             v                                                     v
//	   Network.Unknown: nobody has it                  Stats.RxDropped: ring full
//
// A burst to a multicast address goes to the links that joined it, one of a
// port, and not back to the sender's port. A group without members is legal:
// what is sent to it is nowhere counted.
//
// Like a NIC it copies at Send, into a ring of bounded depth and size at the
// receiver, and drops what finds no room (trace.DropOverflow is the reason a
// NIC gives for it). Bursts arrive whole, as UDP receive offload delivers
// them, with their IPv4 header known (identification of the first segment 0,
// DF set), or as Config.Single and Config.HideIDs say.
//
// It imports link, wire and bth, and nothing that is Linux.
package mem
