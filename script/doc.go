// Package script runs packet scripts: a rule of the protocol as a short text
// that says what one queue pair receives and what it must do, packet by packet
// and microsecond by microsecond, against an engine under a clock of the
// script's. It is the form of packetdrill (Cardwell et al., USENIX ATC 2013),
// for InfiniBand transport.
//
//	# A duplicate SEND is acknowledged again and not executed.
//	rule    duplicate-send
//	reports B40
//	qp rc mtu=1024 epsn=100
//	recv id=1 len=64
//	0ms    <  SEND_ONLY  psn=100 ack len=8
//	0ms    >  ACK        psn=100 msn=1
//	0ms    cq recv id=1 len=8
//	1ms    <  SEND_ONLY  psn=100 ack len=8
//	1ms    >  ACK        psn=100 msn=1
//	1ms    quiet
//
// A script is run by Run on a Subject: one queue pair, which Engine makes of
// this module's engines; an engine of somebody else's needs the seven methods
// of that interface. A run may shift all PSNs (Options.Shift), so that each
// script is also one about the wrap of the PSN.
//
// # Grammar
//
// A line is words; a word that begins with # begins a comment, and the first
// comment is the script's title. Words are verbs, names, key=value pairs and
// flags, which are keys without a value. Keys come in any order, and an unknown
// one is an error.
//
//	script  = { line }
//	line    = header | [time] step
//	header  = "rule" name {name} | "reports" name {name} | "qp" service {attribute}
//	        | "region" name {attribute} | "window" name {attribute}
//	        | "cc" [algorithm] {parameter}
//	step    = "<" packet | ">" packet | "quiet"
//	        | "post" operation {field} | "recv" {field}
//	        | "cq" ("send"|"recv") [status] {field}
//	        | "mem" place bytes | "set" place bytes
//	        | "word" place number | "setword" place number
//	        | "state" state | "modify" {attribute} | "event" {event}
//	        | "count" {counter=number} | "link" (number | "open") | "withdraw" (region | window)
//	        | "limit" number | "setcc" [algorithm] {parameter}
//	packet  = opcode {field}
//	time    = duration | "+" duration | duration ".." duration
//	        | "+" duration ".." "+" duration      (as Go writes them: 655.36ms)
//	number  = as in Go: 10, 0x0a
//	place   = number | region ["+" number | "-" number]
//	key     = number | region | window ["-" number]
//	bytes   = piece {"+" piece},  piece = hex digits ["*" number]
//	list    = entry {"," entry},  entry = place ":" number [":" key]
//
// Headers come first. A time is when the step takes place; without one it is
// the time of the step before, and a + counts from there. Time passes only
// between steps, and the timers of the queue pair run at their deadlines on the
// way. A range is for > and cq: the packet or completion may come at any time in
// it. Without a range it must come exactly then.
//
// # Headers
//
// rule names the rules that the script proves (internal/rules, docs/rules.md),
// reports the public bug reports that it reproduces.
//
// qp is the queue pair, of service rc, uc or ud: mtu (256); psn and epsn (100),
// the first PSNs sent and expected; qpn (0x11) and dest (0x12), the numbers of
// both ends; rd and dest_rd (4), READs and atomics outstanding each way;
// timeout (14), retry (7), rnr_retry (7), rnr_timer (12); access (all), letters
// of l, r, w, a and b for local write, remote read, write and atomic, and binding
// of windows, or none; rate, in kb/s (none); qkey
// (0x1234); sq and rq (64), sge (4), inline (64), the capacity of its queues;
// window, in packets; cqe, the depth of its completion queues; group, a multicast
// group that it is attached to. Flags: flow_control makes credits bind; srq has it take
// receive requests from a shared queue; device and engine say what the script
// is about, if not both. state (rts) is the state in which the script begins.
//
// region is memory: size (65536), addr (0x10000), access (all), fill, and
// foreign for one of another protection domain. Without a region of that name
// there is one called m, with the values in parentheses. window is a memory window
// of type 1 or 2 (2), foreign as a region's; as a key its name is the key that the
// last bind posted gave it, with -1 the one before.
//
// cc is the congestion control of a device, as it is by default (cc.Default) but for
// what the line names: an algorithm, and parameters by the names of cc.Fields. Without
// such a line there is none: no packet is marked as able to be, none makes a CNP, and
// CNPs slow nothing.
//
// # Steps
//
// < is a packet that arrives. Its opcode is named as elsewhere in gorxe, without
// the class if that is the queue pair's (SEND_ONLY); a number is one without a
// name. ACKs that say no have names of their own: NAK_SEQ, NAK_INV, NAK_ACCESS,
// NAK_OP, and RNR_NAK with timer. Fields: psn, dest, pkey, tver, pad, migreq; va,
// rkey (both of m if not named), dma, the length in the RETH; add, or swap and
// compare; syndrome or credits, a count (none to count if not named), msn, orig;
// imm; inv; qkey, srcqp; len for so many octets of 5a, or data. Pad and dma
// follow from the payload if not named. Flags: ack, se, fecn, becn, and
// reserved, which sets the reserved bits of the BTH. cut leaves out so many
// octets at the end, icrc are bits in which the ICRC is wrong, ecn and
// dscp are those of the IP header (0), from and to are addresses in place of those of the queue pair and
// its peer, 192.0.2.1 and 192.0.2.2.
//
// > is the next packet that the queue pair sent. What is named must be equal; ack,
// se, fecn and becn must be there exactly when named; destination (of a
// connection), partition key, version and pad are always looked at. An ACK, a
// READ response or an atomic acknowledgement without syndrome or credits may
// have any credits. ecn and dscp, of what a device sends, are looked at when named.
//
// quiet: nothing was sent that no > took. At the end of a script this must be so,
// and no completion may be left.
//
// post posts a send request: send, send_imm, send_inv, write, write_imm, read,
// cmp_swap, fetch_add, or a number; id; len octets at m, or sge, a list; va, rkey,
// imm, inv, add, compare, swap; dest and qkey of a datagram; data with the flag
// inline; flags fence, solicited, unsignaled; refused if it must be. Two more are of
// this end: local_inv with inv, a key; bind with window, at and size, the place and
// octets it is to be bound to, access of letters w, r, a and z for zero-based, lkey
// and newkey if not those that follow. recv posts a
// receive request: id, len or sge, refused. What the program gave is overwritten
// behind it, as is a packet that arrived.
//
// cq is the next completion of a queue. Its status is as in verbs, without
// IBV_WC_, SUCCESS if left out; fields id, op, len, imm, inv, vendor, srcqp, and reason,
// by the names of trace.Reason; flag solicited.
//
// mem and word compare memory, a word being 8 octets in the host's order; set
// and setword change it. withdraw deregisters a region or deallocates a window;
// refused if it must be.
//
// state compares the state. modify takes attributes of the qp line, and state;
// those that the transition needs and the line does not name are as on the qp
// line, unless the flag only is there; refused if it must be. event compares the
// events since the last event step: COMM_EST, SQ_DRAINED, FATAL, REQ_ERR,
// ACCESS_ERR, LAST_WQE, CQ_ERR, SRQ_LIMIT, or none.
//
// count compares counters, by the names of trace.Reason, as far as the subject
// has them. link n lets n more packets leave and no others, link open all. limit
// arms the limit of a shared receive queue. setcc changes the congestion control.
//
// The package may import the engines and what they are made of.
package script
