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
// flags (keys without a value). Keys come in any order, and an unknown one is an
// error.
//
//	script   = { line }
//	line     = header | step
//	header   = "rule" name {name} | "reports" name {name} | "qp" service {attr}
//	         | "region" name {attr}
//	step     = [time] verb
//	time     = duration | "+" duration | duration ".." duration
//	         | "+" duration ".." "+" duration        (as Go writes them: 655.36ms)
//	verb     = "<" packet | ">" packet | "quiet"
//	         | "post" operation {attr} | "recv" {attr} | "cq" ("send"|"recv") [status] {attr}
//	         | "mem" place bytes | "set" place bytes | "word" place number | "setword" place number
//	         | "state" state | "modify" {attr} | "event" {event}
//	         | "count" {name=number} | "link" (number | "open") | "withdraw" region
//	packet   = opcode {field | flag}
//	number   = as in Go, 10 or 0x0a
//	place    = number | region ["+" number | "-" number]
//	key      = number | region
//	bytes    = piece {"+" piece},  piece = hex digits ["*" number]
//	list     = place ":" number {"," place ":" number}, each with a ":" key of its own if need be
//
// Headers come first. A time is when the step takes place; without one it is
// the time of the step before, a + counts from there. Time passes only by
// steps, and the timers of the queue pair run on their way, at their deadlines.
// A range is for > and cq: the packet or completion may come at any time in it.
//
// The queue pair: service rc, uc or ud; mtu (256), psn (100) and epsn (100) are
// the first PSN sent and expected, qpn (0x11), dest (0x12), rd and dest_rd (4),
// timeout (14), retry (7), rnr_retry (7), rnr_timer (12), access (all; r, w, a
// for remote read, write and atomic, l for local write, none), qkey (0x1234);
// sq and rq (64) are the depths of its queues, sge (4), inline (64), window in
// packets; flow_control makes credits bind, srq takes its receive requests
// from a shared queue; device and engine say what the script is about, if not both; state (rts) is the state it is brought to.
//
// A region is memory: size (65536), addr (0x10000), access (all), fill=bytes,
// and foreign for one of another protection domain. Without a region of that
// name there is one called m, with the values in parentheses.
//
// < is a packet that arrives. The opcode is named as elsewhere in gorxe, the
// class may be left out (SEND_ONLY), and a number is an opcode without a name. ACK
// with a syndrome has names of its own: NAK_SEQ, NAK_INV, NAK_ACCESS, NAK_OP, and
// RNR_NAK with timer. Fields: psn, dest, pkey, tver, pad, migreq; va, rkey, dma
// (length of the RETH); add, swap, compare; syndrome, credits (the count), msn, orig; imm, inv;
// qkey, srcqp; len=n for n octets of 5a or data=bytes. Flags: ack, se, fecn,
// becn, reserved (all reserved bits of the BTH set). The pad and, for a message
// of one packet, dma follow from the payload; cut=n leaves out the last n
// octets, icrc=n are bits in which the ICRC is wrong. What is no packet at all is refused before the engine, with the
// reasons of bth.Parse.
//
// > is the next packet that the queue pair sent. Fields that are named must be
// equal; ack and se must be there exactly when they are named; destination,
// partition key, pad and version are always checked.
//
// quiet: nothing was sent that was not expected. At the end of a script nothing
// may be left over, neither packets nor completions.
//
// post: operations send, send_imm, send_inv, write, write_imm, read, cmp_swap,
// fetch_add, or a number; id, len=n for n octets at m, or sge=list; va, rkey, imm,
// inv, add, swap, compare; data=bytes with inline; fence, solicited,
// unsignaled; dest and qkey for UD; refused if posting must fail. recv: id, len or
// sge, refused.
//
// cq is the next completion of the send or the receive queue: status as verbs has it, without
// IBV_WC_ (SUCCESS if left out); id, op, len, imm, vendor, srcqp, reason (why it failed), and
// solicited.
//
// mem and word compare memory, a word being 8 octets in the host's order; set
// and setword change it.
//
// modify takes the queue pair's attributes and state; those that the
// transition needs and the line does not name are taken from the qp line,
// unless only is there; refused if it must fail. event compares all events
// since the last: COMM_EST, SQ_DRAINED, FATAL, REQ_ERR, ACCESS_ERR, LAST_WQE; only
// scripts that have it look at events.
//
// count compares counters, by the names of trace.Reason, as far as the subject has them. link n lets n more
// packets leave and no others, link open all. withdraw deregisters a region.
//
// The package may import the engines and what they are made of.
package script
