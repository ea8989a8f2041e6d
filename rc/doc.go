// Package rc is the reliable connection: the engine of one RC queue pair.
//
// It is sans-IO: no goroutine, lock, clock or socket. Time comes in as an
// argument; packets leave through Fill, deadlines through Deadline, outcomes
// as completions, counters and events. It may import bth, wire, verbs, mr,
// atomic, cc and trace.
//
//	         PostSend                                PostRecv
//	            |                                       |
//	SendRing -> requester --requests--> ... --> responder <- RecvSource
//	            ^   |                               |
//	  acks.go   |   +-> retransmit.go               +-> execute.go, replay.go
//	            +--------- ... <--responses-- reply.go
//
// One QP has both halves; they share nothing but configuration and the order
// in which Fill serves them.
//
// PSNs of the requester:
//
//	 una               next              high
//	--+-----------------+-----------------+-------->
//	  | in flight       | sent before,    | never sent
//	  | (window)        | to send again   |
//
// After a loss next returns to una; what to send at next is derived from the
// work request that owns the PSN, never remembered.
//
// Source: IBA Specification Volume 1, clause 9.7 (reliable service), 9.4
// (operations), 10.3 (queue pair states). Where the kernel's Soft-RoCE is lax
// the specification is followed.
package rc
