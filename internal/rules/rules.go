package rules

// Rule is one rule of the protocol.
type Rule struct {
	ID     string
	Group  string // heading of the document
	Clause string // of the specification, where it is known here
	Text   string // one sentence
	// Code is where the rule is kept: "rc/replay.go duplicate", a file and a
	// function or method of it.
	Code []string
	// Tests are proofs that are no scripts, as Code.
	Tests []string
	// Gap says what is not done. A rule without code has one.
	Gap string
}

// Groups are the headings in the order of the document.
var Groups = []string{
	"Sequence", "Acknowledgements", "Duplicates", "AETH and credits", "Retries and timers", "Lengths and segmentation", "Errors", "States",
	"Atomics", "Memory windows", "UC and UD", "Addressing and keys", "Order, completions and events", "Congestion", "Hostile and odd packets", "Other services",
}

// All are the rules, by group.
var All = []Rule{
	{
		ID: "psn-compare", Group: "Sequence", Clause: "9.7.2",
		Text: "PSNs are compared as signed distances of 24 bits, so that 0 comes after 0xffffff.",
		Code: []string{"bth/psn.go Diff"}, Tests: []string{"bth/psn_test.go TestPSN"},
	},
	{
		ID: "psn-window", Group: "Sequence",
		Text: "A request up to 2^23 behind the expected PSN is a duplicate, never an error; one ahead is a gap.",
		Code: []string{"rc/responder.go handleRequest"},
	},
	{
		ID: "nak-once", Group: "Sequence", Clause: "C9-113, C9-114",
		Text: "A gap gets one sequence NAK; the responder is silent until the expected packet, or a duplicate, comes.",
		Code: []string{"rc/responder.go outOfSequence", "rc/replay.go duplicate"},
	},
	{
		ID: "nak-psn", Group: "Sequence", Clause: "9.7.5.1.2",
		Text: "A NAK carries the PSN that is expected when it leaves; an RNR NAK that of the packet which found no receive request.",
		Code: []string{"rc/reply.go queueNAK", "rc/responder.go caughtUp"},
	},
	{
		ID: "restart-exact", Group: "Sequence", Clause: "9.7.5.2",
		Text: "After a NAK the requester starts again exactly at its PSN, in the middle of a message with that packet's opcode and data.",
		Code: []string{"rc/retransmit.go rewind", "rc/requester.go putData"},
	},
	{
		ID: "restart-once", Group: "Sequence",
		Text: "One loss causes one restart, however many signs of it come.",
		Code: []string{"rc/retransmit.go restart"},
	},
	{
		ID: "read-psns", Group: "Sequence", Clause: "9.7.2",
		Text: "A READ takes as many PSNs as it has responses, and at least one.",
		Code: []string{"rc/execute.go execute", "rc/sq.go fetch"},
	},
	{
		ID: "read-parts", Group: "Sequence",
		Text: "A READ longer than half a window is asked for in parts with fixed ends, each a READ request of its own.",
		Code: []string{"rc/requester.go readEnd", "rc/requester.go putRead"},
	},

	{
		ID: "coalesced-ack", Group: "Acknowledgements", Clause: "9.7.5.1.2",
		Text: "An ACK acknowledges every SEND and WRITE up to its PSN, but no READ or atomic.",
		Code: []string{"rc/acks.go ackThrough"},
	},
	{
		ID: "implied-nak", Group: "Acknowledgements", Clause: "9.7.5.1.2",
		Text: "A response beyond an unanswered READ or atomic is an implied NAK of it: it is asked for again, at the price of one retry, and counted.",
		Code: []string{"rc/acks.go ackThrough", "rc/retransmit.go restart"},
	},
	{
		ID: "nak-acknowledges", Group: "Acknowledgements", Clause: "9.7.5.1.2",
		Text: "A NAK acknowledges the SENDs and WRITEs before its PSN, and denies implicitly a READ or atomic there that is not answered.",
		Code: []string{"rc/acks.go handleAck"},
	},
	{
		ID: "read-response", Group: "Acknowledgements",
		Text: "A READ is finished by its last response alone, an atomic by its acknowledgement.",
		Code: []string{"rc/acks.go handleReadResp", "rc/acks.go handleAtomicAck"},
	},
	{
		ID: "read-restart", Group: "Acknowledgements",
		Text: "A READ asked for again in its middle may be answered from FIRST or MIDDLE on and end in LAST or ONLY: both are taken.",
		Code: []string{"rc/acks.go handleReadResp"},
	},
	{
		ID: "nak-ends-read", Group: "Acknowledgements", Clause: "9.7.5.2",
		Text: "A NAK in the middle of a READ's responses ends the READ.",
		Code: []string{"rc/reply.go readFailed", "rc/acks.go handleAck"},
	},
	{
		ID: "ghost-ack", Group: "Acknowledgements",
		Text: "Responses for what was never sent, was acknowledged long ago or is of another kind are dropped and counted.",
		Code: []string{"rc/acks.go handleResponse", "rc/acks.go awaited"},
	},
	{
		ID: "ack-requested", Group: "Acknowledgements",
		Text: "Every request packet that asks for an ACK is acknowledged; others are not.",
		Code: []string{"rc/execute.go execute", "rc/reply.go queueAck"},
	},
	{
		ID: "ack-coalescing", Group: "Acknowledgements", Clause: "C9-116",
		Text: "A later ACK, or the response of a later READ or atomic, takes the place of an ACK that waits.",
		Code: []string{"rc/reply.go queueAck", "rc/reply.go fillResponses"},
	},
	{
		ID: "response-order", Group: "Acknowledgements",
		Text: "Responses leave in the order of their PSNs.",
		Code: []string{"rc/reply.go fillResponses"},
	},
	{
		ID: "ackreq", Group: "Acknowledgements",
		Text: "AckReq is set on the last packet of a message, on READ and atomic requests, and often enough that the window opens before it closes.",
		Code: []string{"rc/requester.go putData", "rc/requester.go putRead", "rc/requester.go putAtomic"},
	},

	{
		ID: "window", Group: "Acknowledgements",
		Text: "No more packets are in flight than the window, which a receive buffer or congestion sets.",
		Code: []string{"rc/requester.go room"}, Tests: []string{"rc/requester_test.go TestWindow", "cc/adaptive_test.go TestAdaptive"},
	},

	{
		ID: "duplicate-send", Group: "Duplicates", Clause: "C9-105",
		Text: "A duplicate SEND is acknowledged again and not executed; it takes no receive request.",
		Code: []string{"rc/replay.go duplicate"},
	},
	{
		ID: "duplicate-write", Group: "Duplicates", Clause: "C9-105",
		Text: "A duplicate WRITE is acknowledged again and not executed; what is wrong with it is not reported.",
		Code: []string{"rc/replay.go duplicate", "rc/replay.go lastPlain"},
	},
	{
		ID: "duplicate-read", Group: "Duplicates", Clause: "C9-110",
		Text: "A duplicate READ is executed again, wholly or from a later PSN on, if it lies within the first one; otherwise it is dropped.",
		Code: []string{"rc/replay.go repeatRead"},
	},
	{
		ID: "duplicate-atomic", Group: "Duplicates", Clause: "C9-112, 9.4.5",
		Text: "An atomic is executed once: a duplicate gets the saved value, and is dropped when that is not kept any more.",
		Code: []string{"rc/replay.go duplicate", "rc/execute.go runAtomic"},
	},
	{
		ID: "duplicate-depth", Group: "Duplicates", Clause: "9.7.5.1.3",
		Text: "What answers duplicate READs and atomics is kept until max_dest_rd_atomic newer ones came.",
		Code: []string{"rc/replay.go push"},
	},
	{
		ID: "duplicate-wrap", Group: "Duplicates",
		Text: "A duplicate READ whose address and length wrap is dropped.",
		Code: []string{"rc/replay.go repeatRead"},
	},

	{
		ID: "msn-counts", Group: "AETH and credits",
		Text: "The MSN counts messages done, from 0 and modulo 2^24: READs and atomics when they are executed, duplicates never.",
		Code: []string{"rc/execute.go execute"},
	},
	{
		ID: "aeth-placement", Group: "AETH and credits", Clause: "9.3.4",
		Text: "READ responses have an AETH in FIRST, LAST and ONLY, none in MIDDLE.",
		Code: []string{"bth/opcode.go buildTable", "rc/reply.go putReadResp"}, Tests: []string{"bth/golden_test.go TestGolden"},
	},
	{
		ID: "aeth-syndrome", Group: "AETH and credits", Clause: "9.7.5.1.2, table 45",
		Text: "Syndromes with bit 7, of kind 2 or with an unknown NAK code are reserved: they are dropped and counted.",
		Code: []string{"rc/acks.go handleAck", "bth/aeth.go Kind"}, Tests: []string{"bth/aeth_test.go TestSyndromes"},
	},
	{
		ID: "credit-codes", Group: "AETH and credits", Clause: "table 48",
		Text: "A credit code stands for a count from 0 to 32768; 31 for none to count.",
		Code: []string{"bth/aeth.go Credits", "bth/aeth.go AckCredits"}, Tests: []string{"bth/aeth_test.go TestCredits"},
	},
	{
		ID: "credit-limit", Group: "AETH and credits", Clause: "9.7.7.2",
		Text: "A message may go when its LSN, which counts every request that the responder sees, is below MSN plus credits; fewer credits later take nothing back, the last ACK again may bring more, and 31 ends the counting.",
		Code: []string{"rc/credits.go offer", "rc/credits.go hold", "rc/sq.go requests"},
	},
	{
		ID: "credit-who", Group: "AETH and credits", Clause: "9.7.7.2",
		Text: "Only SEND and WRITE with immediate need a credit.",
		Code: []string{"rc/credits.go takesRecv"},
	},
	{
		ID: "credit-limited-send", Group: "AETH and credits", Clause: "9.7.7.2",
		Text: "The first message without a credit may send its first packet, which asks for an ACK, and the rest when that came.",
		Code: []string{"rc/credits.go hold"},
	},
	{
		ID: "credit-bind", Group: "AETH and credits",
		Text: "Credits bind, and are offered, only where both ends agreed on it: peers offer counts that nobody heeds.",
		Code: []string{"rc/credits.go hold", "rc/credits.go credit"},
	},
	{
		ID: "credit-offered", Group: "AETH and credits", Clause: "9.7.7.2",
		Text: "Every AETH that acknowledges offers as many credits as there are receive requests, by the next code below.",
		Code: []string{"rc/credits.go credit"},
	},
	{
		ID: "credit-shared", Group: "AETH and credits", Clause: "9.7.7.2.1",
		Text: "A queue pair with a shared receive queue offers credit code 31.",
		Code: []string{"rc/credits.go credit"},
	},

	{
		ID: "retry-count", Group: "Retries and timers", Clause: "9.7.6.1.3",
		Text: "retry_cnt n, 0 to 7, is n sendings after the first without progress, then RETRY_EXC_ERR with vendor error 129; 7 is seven.",
		Code: []string{"rc/retransmit.go restart"},
	},
	{
		ID: "rnr-retry", Group: "Retries and timers", Clause: "9.7.5.2.8",
		Text: "rnr_retry n, 0 to 6, is n waits without progress, then RNR_RETRY_EXC_ERR; 7 is for ever.",
		Code: []string{"rc/retransmit.go rnr"},
	},
	{
		ID: "retry-reset", Group: "Retries and timers", Clause: "9.7.6.1.3",
		Text: "Retry counters start afresh when a new PSN is acknowledged, and only then.",
		Code: []string{"rc/retransmit.go progress"},
	},
	{
		ID: "timeout-zero", Group: "Retries and timers", Clause: "9.7.6.1.3",
		Text: "Timeout 0 is no timer.",
		Code: []string{"rc/retransmit.go armTimer"},
	},
	{
		ID: "timeout-range", Group: "Retries and timers", Clause: "C9-141, 9.7.6.1.3",
		Text: "The timer fires between T and 4T after the oldest unacknowledged packet, T = 4.096 us * 2^timeout; an ACK of a part restarts it.",
		Code: []string{"rc/retransmit.go armTimer", "rc/retransmit.go progress"}, Tests: []string{"nic/wait_test.go TestTimeout"},
	},
	{
		ID: "adaptive-retransmission", Group: "Retries and timers", Clause: "none; ConnectX has it",
		Text: "What a NAK asked for and is not acknowledged within four round trips, a millisecond at least, is sent once more ahead of the timer, unless the retry that takes is the last.",
		Code: []string{"rc/retransmit.go HandleTimer", "rc/rtt.go acked"}, Tests: []string{"rc/retransmit_test.go TestNotAdaptive"},
	},
	{
		ID: "rnr-wait", Group: "Retries and timers", Clause: "9.7.5.2.8",
		Text: "After an RNR NAK nothing is sent, and no other timer runs, until the time of its code is over; then the requester resumes at its PSN.",
		Code: []string{"rc/retransmit.go rnr", "rc/requester.go requestReady"},
	},
	{
		ID: "rnr-timer", Group: "Retries and timers", Clause: "table 46",
		Text: "RNR timer codes 0 to 31 stand for 655.36 ms, 10 us and so on up to 491.52 ms.",
		Code: []string{"bth/aeth.go RNRNanos"}, Tests: []string{"bth/aeth_test.go TestRNRTimers"},
	},
	{
		ID: "rnr-nak", Group: "Retries and timers", Clause: "9.7.5.2.8",
		Text: "A message that finds no receive request gets one RNR NAK with min_rnr_timer; what follows it is dropped until it comes again.",
		Code: []string{"rc/responder.go reject", "rc/responder.go checkResource"},
	},
	{
		ID: "link-short", Group: "Retries and timers",
		Text: "What the link did not take is sent later, in order, and is no loss.",
		Code: []string{"rc/requester.go unsendRequests", "rc/reply.go unsendResponses", "transport/unreliable.go Sent"}, Tests: []string{"nic/wait_test.go TestShortSend"},
	},

	{
		ID: "segmentation", Group: "Lengths and segmentation", Clause: "table 38",
		Text: "A message of one packet is ONLY, a longer one FIRST, MIDDLE, LAST; the RETH is in the first, immediate data and key to invalidate in the last.",
		Code: []string{"transport/send.go PacketOpcode", "transport/send.go Describe"},
	},
	{
		ID: "length-position", Group: "Lengths and segmentation", Clause: "C9-95 to C9-98",
		Text: "FIRST and MIDDLE fill the path MTU, LAST has 1 octet to the path MTU, ONLY 0 to the path MTU: otherwise an invalid request.",
		Code: []string{"transport/recv.go LengthOK", "rc/responder.go checkLength"},
	},
	{
		ID: "length-sum", Group: "Lengths and segmentation", Clause: "9.7.4.1.6",
		Text: "A WRITE has exactly as many octets as its RETH says.",
		Code: []string{"transport/recv.go LengthOK"},
	},
	{
		ID: "pad", Group: "Lengths and segmentation",
		Text: "Pad octets round a packet up to 4, are under the ICRC, and are not of the message.",
		Code: []string{"transport/recv.go LengthOK", "wire/burst.go End"}, Tests: []string{"wire/oracle_test.go TestICRCOracle"},
	},
	{
		ID: "zero-length", Group: "Lengths and segmentation", Clause: "C9-88",
		Text: "Zero-length SEND, WRITE, WRITE with immediate and READ are legal, take one PSN, and need no key.",
		Code: []string{"rc/responder.go checkRKey", "transport/send.go Packets"},
	},
	{
		ID: "sge-lists", Group: "Lengths and segmentation",
		Text: "The length of a message is the sum of its entries, of which there may be none, or empty ones.",
		Code: []string{"transport/send.go Fetch", "transport/memory.go Resolve"}, Tests: []string{"verbs/wqe_test.go TestUnequalSGEs"},
	},
	{
		ID: "message-length", Group: "Lengths and segmentation", Clause: "9.7.3.3",
		Text: "A message has at most 2^31 octets; longer ones fail at the requester, and are invalid requests at the responder.",
		Code: []string{"transport/send.go Fetch", "rc/responder.go checkLength"}, Tests: []string{"rc/requester_test.go TestLongestMessage"},
	},
	{
		ID: "write-imm-receive", Group: "Lengths and segmentation",
		Text: "A WRITE with immediate takes its receive request at the last packet only, and reports the length of the whole message.",
		Code: []string{"rc/responder.go checkResource", "rc/execute.go finish", "uc/responder.go check"},
	},

	{
		ID: "error-class", Group: "Errors", Clause: "9.7.5.2, 9.9.3",
		Text: "Key, range, domain and access of a region are NAK 0x62; opcode order, unsupported operation, length, alignment, too many READs 0x61; trouble with the responder's own receive request 0x63.",
		Code: []string{"rc/responder.go check", "rc/responder.go reject"},
	},
	{
		ID: "qp-access", Group: "Errors", Clause: "C9-93, C9-94",
		Text: "A request that the queue pair's access flags forbid is an invalid request.",
		Code: []string{"rc/responder.go checkOpcode", "uc/responder.go check"},
	},
	{
		ID: "address-wrap", Group: "Errors", Clause: "C9-89",
		Text: "An address and length that wrap 2^64 are outside of every region.",
		Code: []string{"mr/mr.go Resolve"},
	},
	{
		ID: "opcode-sequence", Group: "Errors", Clause: "C9-92",
		Text: "A packet continues the message in progress, or begins one when none is: otherwise an invalid request.",
		Code: []string{"rc/responder.go checkSequence"},
	},
	{
		ID: "opcode-unsupported", Group: "Errors", Clause: "C9-93",
		Text: "A request of an operation that is not offered is an invalid request.",
		Code: []string{"rc/responder.go checkOpcode"},
	},
	{
		ID: "too-many-reads", Group: "Errors", Clause: "C9-93",
		Text: "As many READs and atomics as max_dest_rd_atomic are taken at once; one more is an invalid request.",
		Code: []string{"rc/replay.go room", "rc/responder.go checkResource"},
	},
	{
		ID: "recv-too-short", Group: "Errors", Clause: "9.7.4.1.6",
		Text: "A message longer than its receive request is an invalid request, and LOC_LEN_ERR at the responder.",
		Code: []string{"rc/responder.go checkLength", "transport/recv.go ErrStatus"},
	},
	{
		ID: "recv-local-error", Group: "Errors", Clause: "9.9.3",
		Text: "A receive request with a wrong key, range or permission is LOC_PROT_ERR there and NAK 0x63 to the peer.",
		Code: []string{"rc/execute.go execute", "transport/recv.go Place"},
	},
	{
		ID: "fatal-once", Group: "Errors", Clause: "9.9.3",
		Text: "An error is answered by one NAK, behind the responses that were due; then the queue pair is in ERR and silent, and the packet is not executed again.",
		Code: []string{"rc/responder.go reject", "rc/flush.go toErr"},
	},
	{
		ID: "access-event", Group: "Errors",
		Text: "A responder tells its program of a broken access rule or an invalid request by an event.",
		Code: []string{"rc/responder.go reject", "nic/qp.go reportQP"},
	},
	{
		ID: "requester-status", Group: "Errors", Clause: "C10-39",
		Text: "A NAK ends the request it is for with REM_INV_REQ_ERR, REM_ACCESS_ERR or REM_OP_ERR; those before it are acknowledged, those after it flushed.",
		Code: []string{"rc/acks.go handleAck", "rc/flush.go failSend"},
	},
	{
		ID: "read-length", Group: "Errors",
		Text: "A READ response of the wrong length or position is LOC_LEN_ERR, before it touches memory.",
		Code: []string{"rc/acks.go handleReadResp"},
	},
	{
		ID: "lkey", Group: "Errors",
		Text: "A send request with a wrong local key, range, domain or permission is LOC_PROT_ERR in its turn, and is not sent.",
		Code: []string{"transport/send.go Payload", "rc/requester.go putRead", "rc/requester.go failBad"},
	},
	{
		ID: "local-operation", Group: "Errors",
		Text: "A send request of an operation that is unknown, or that the service has not, is refused when posted, or LOC_QP_OP_ERR.",
		Code: []string{"rc/sq.go fetch", "uc/qp.go put", "ud/qp.go put", "verbs/qp.go checkSend"}, Tests: []string{"verbs/qp_test.go TestPostStates"},
	},
	{
		ID: "max-rd-atomic", Group: "Errors",
		Text: "A requester has no more READs and atomics outstanding than max_rd_atomic.",
		Code: []string{"rc/requester.go held"},
	},

	{
		ID: "state-transitions", Group: "States", Clause: "table 91",
		Text: "A queue pair goes up through INIT and RTR to RTS, with the attributes of each step; what is missing, too much or out of range is refused and changes nothing.",
		Code: []string{"verbs/attr.go CheckTransition", "transport/attr.go CheckModify"}, Tests: []string{"rc/state_test.go TestTransitions"},
	},
	{
		ID: "state-receive", Group: "States",
		Text: "Packets are taken in RTR, RTS, SQD and SQE, responses from RTS on; others are dropped and counted.",
		Code: []string{"rc/qp.go HandlePacket", "transport/unreliable.go Receives", "nic/rx.go admits"}, Tests: []string{"nic/drop_test.go TestDropStates"},
	},
	{
		ID: "state-send", Group: "States",
		Text: "Requests are sent from RTS on.",
		Code: []string{"rc/requester.go requestReady", "transport/unreliable.go Ready"},
	},
	{
		ID: "post-states", Group: "States", Clause: "C10-41",
		Text: "Send requests may be posted from RTS on, receive requests from INIT on, both in ERR, where they are flushed.",
		Code: []string{"verbs/qp.go PostSend", "verbs/qp.go PostRecv"}, Tests: []string{"verbs/qp_test.go TestPostStates"},
	},
	{
		ID: "sqd", Group: "States", Clause: "10.3.1.5",
		Text: "In SQD a message begun is finished, one not begun is held, packets are received; an event tells when nothing is in flight.",
		Code: []string{"rc/requester.go held", "rc/retransmit.go drained", "transport/unreliable.go drained"},
	},
	{
		ID: "flush", Group: "States", Clause: "10.3.1.6, C10-41, C10-42",
		Text: "In ERR every request of both queues is flushed, oldest first, also one posted later; no timer runs.",
		Code: []string{"rc/flush.go flush", "transport/unreliable.go Doorbell", "transport/recv.go Flush"},
	},
	{
		ID: "last-wqe", Group: "States",
		Text: "A queue pair with a shared receive queue tells once in ERR that it takes no more receive requests.",
		Code: []string{"rc/flush.go toErr", "nic/qp.go reportQP"},
	},
	{
		ID: "srq-limit", Group: "States", Clause: "10.2.9.3",
		Text: "A shared receive queue that falls below its limit tells once, and is then disarmed.",
		Code: []string{"nic/srq.go check"}, Tests: []string{"nic/datagram_test.go TestSharedReceive"},
	},
	{
		ID: "destroyed", Group: "States",
		Text: "A destroyed queue pair is silent: packets to it are of an unknown number, and no timer of it fires.",
		Code: []string{"nic/qp.go destroyQP"}, Tests: []string{"nic/life_test.go TestDestroyPendingTimer"},
	},

	{
		ID: "atomic-operands", Group: "Atomics", Clause: "9.4.5",
		Text: "FETCH_ADD and CMP_SWAP work on 8 octets at a multiple of 8, big-endian on the wire and in the host's order in memory; the local buffer is 8 octets.",
		Code: []string{"atomic/atomic.go FetchAdd", "atomic/atomic.go CmpSwap", "rc/responder.go checkLength", "rc/acks.go storeAtomic"},
	},

	{
		ID: "memory-windows", Group: "Memory windows", Clause: "10.6.7",
		Text: "A bound window gives peers its part of a region with rights of its own, under its present key: on any queue pair of its domain (type 1), or on the one that bound it (2B).",
		Code: []string{"mr/window.go Bind", "mr/window.go resolve"}, Tests: []string{"mr/window_test.go TestWindow", "rc/window_test.go TestWindowOfAnother", "nic/mw_test.go TestWindows"},
	},
	{
		ID: "window-region", Group: "Memory windows", Clause: "11.2.8.3",
		Text: "A region to which windows are bound is not deregistered.",
		Code: []string{"mr/mr.go Deregister", "nic/objects.go deregister"}, Tests: []string{"nic/mw_test.go TestWindows"},
	},
	{
		ID: "bind-refused", Group: "Memory windows", Clause: "C10-72 to C10-75, o10-37.2.30",
		Text: "A bind of a wrong key, beyond its region, without the region's leave or of another domain fails as a memory management operation, and changes nothing.",
		Code: []string{"mr/window.go Bind", "transport/send.go RunLocal"}, Tests: []string{"mr/window_test.go TestBindRefused"},
	},
	{
		ID: "invalidate", Group: "Memory windows", Clause: "9.4.1, 10.6.5",
		Text: "LOCAL_INV and a SEND with invalidate, when its message is complete, free a window of type 2; the receive completion carries the key; one that comes again invalidates nothing.",
		Code: []string{"mr/window.go Invalidate", "rc/execute.go execute", "rc/execute.go finish"},
	},
	{
		ID: "invalidate-refused", Group: "Memory windows", Clause: "9.9.3, o10-37.2.26",
		Text: "No other key is invalidated, a region's, one of type 1, of a free window or another queue pair's: a LOCAL_INV fails, of a SEND the receive request tells, in ERR, and no NAK (class J): its message is acknowledged, as by Soft-RoCE.",
		Code: []string{"mr/window.go Invalidate", "rc/responder.go reject"}, Tests: []string{"mr/window_test.go TestInvalidateRefused", "rc/window_test.go TestWindowOfAnother"},
	},
	{
		ID: "local-operations", Group: "Memory windows", Clause: "10.8.3.3, 10.6.5.1",
		Text: "BIND_MW and LOCAL_INV run in the order of the send queue, once, however often what is around them is sent; they take no PSN, complete in order, and a fenced LOCAL_INV waits for everything before it.",
		Code: []string{"rc/requester.go runLocal", "rc/sq.go skipRun", "rc/requester.go finishLocal", "rc/requester.go held"}, Tests: []string{"rc/window_test.go TestLocalOnce"},
	},

	{
		ID: "ackreq-unreliable", Group: "UC and UD", Clause: "9.8.3",
		Text: "AckReq is never set on UC and UD packets.",
		Code: []string{"uc/qp.go put", "ud/qp.go put"},
	},
	{
		ID: "unreliable-silent", Group: "UC and UD", Clause: "9.8.3",
		Text: "UC and UD answer nothing, whatever is wrong and whatever is asked for.",
		Code: []string{"uc/responder.go giveUp", "ud/qp.go HandlePacket"},
	},
	{
		ID: "unreliable-completion", Group: "UC and UD", Clause: "9.8.3, 9.9.4.1",
		Text: "A UC or UD send request is complete when its last packet has left.",
		Code: []string{"transport/unreliable.go finish"},
	},
	{
		ID: "unreliable-sqe", Group: "UC and UD",
		Text: "A local error of a UC or UD send request ends in SQE: sends are flushed, packets received; RTS revives it.",
		Code: []string{"transport/unreliable.go failBad", "transport/unreliable.go Enter"},
	},
	{
		ID: "uc-gap", Group: "UC and UD", Clause: "C9-226, 9.8.2.2",
		Text: "After a gap UC drops what is left of the message; the next FIRST or ONLY begins anew, in the receive request that was begun.",
		Code: []string{"uc/responder.go inSequence", "uc/responder.go check"},
	},
	{
		ID: "uc-duplicate", Group: "UC and UD",
		Text: "UC does not deliver twice what the network repeats.",
		Code: []string{"uc/responder.go inSequence"},
	},
	{
		ID: "uc-errors", Group: "UC and UD", Clause: "9.9.3.1",
		Text: "A UC request that breaks a rule loses its message, not the queue pair.",
		Code: []string{"uc/responder.go giveUp"},
	},
	{
		ID: "ud-grh", Group: "UC and UD", Clause: "11.4.1.2, A17.4.5.3",
		Text: "A UD receive begins with 40 octets: the IPv6 header, or 20 octets of 0 and the IPv4 header; its length counts them.",
		Code: []string{"wire/grh.go PutGRH", "ud/qp.go deliver"}, Tests: []string{"nic/datagram_test.go TestDatagram"},
	},
	{
		ID: "ud-too-long", Group: "UC and UD", Clause: "9.9.3.1",
		Text: "A datagram longer than its receive request is dropped and counted; queue pair and request live on.",
		Code: []string{"ud/qp.go deliver"},
	},
	{
		ID: "ud-send-too-long", Group: "UC and UD", Clause: "C10-93.1.1",
		Text: "A datagram longer than the path MTU is refused when posted; one that got by completes and is not sent.",
		Code: []string{"ud/qp.go put", "verbs/qp.go checkDatagram"},
	},
	{
		ID: "ud-psn", Group: "UC and UD", Clause: "9.8.4",
		Text: "UD takes any PSN in any order.",
		Code: []string{"ud/qp.go HandlePacket"},
	},

	{
		ID: "icrc", Group: "Addressing and keys", Clause: "A17.3.3",
		Text: "The ICRC covers 64 bits of ones, the IP header on, with all that routers change as ones, and the pad; a packet whose ICRC is wrong is dropped and counted.",
		Code: []string{"wire/verify.go Examine", "wire/burst.go Seal"},
		Tests: []string{
			"wire/verify_test.go TestGoldenICRC", "wire/oracle_test.go TestICRCOracle", "nic/drop_test.go TestLogsICRC",
		},
	},
	{
		ID: "qpn", Group: "Addressing and keys", Clause: "9.6.1.1",
		Text: "Packets to a queue pair that does not exist, and to QP0, are dropped and counted.",
		Code: []string{"nic/rx.go packet"}, Tests: []string{"nic/drop_test.go TestDrops"},
	},
	{
		ID: "address-match", Group: "Addressing and keys", Clause: "9.6.1.1",
		Text: "A connected queue pair takes packets from its peer's address alone.",
		Code: []string{"nic/rx.go admits"}, Tests: []string{"nic/drop_test.go TestDrops"},
	},
	{
		ID: "pkey-match", Group: "Addressing and keys", Clause: "10.9.1, C9-8",
		Text: "P_Keys match when their low 15 bits do, are not 0, and one is a full member.",
		Code: []string{"nic/rx.go pkeysMatch"}, Tests: []string{"nic/drop_test.go TestPartialMembers"},
	},
	{
		ID: "qkey-match", Group: "Addressing and keys", Clause: "10.2.5, C9-9",
		Text: "A datagram with another Q_Key than the queue pair's is dropped and counted.",
		Code: []string{"nic/rx.go admits"}, Tests: []string{"nic/ud_test.go TestDatagramDrops"},
	},
	{
		ID: "qkey-own", Group: "Addressing and keys", Clause: "10.2.5",
		Text: "A send request whose Q_Key has its highest bit set is sent with the queue pair's own.",
		Code: []string{"ud/qp.go put"},
	},
	{
		ID: "multicast", Group: "Addressing and keys",
		Text: "A datagram to a group has destination 0xffffff; each queue pair attached with its Q_Key gets one, the sender none.",
		Code: []string{"nic/multicast.go multicast", "nic/multicast.go loopback"}, Tests: []string{"nic/datagram_test.go TestMulticast"},
	},
	{
		ID: "migreq", Group: "Addressing and keys",
		Text: "MigReq is sent as 1 and taken either way.",
		Code: []string{"rc/requester.go header"},
	},

	{
		ID: "fence", Group: "Order, completions and events", Clause: "10.8.3.3",
		Text: "A fenced request waits for READs and atomics before it, and for nothing else.",
		Code: []string{"rc/requester.go held"},
	},
	{
		ID: "solicited", Group: "Order, completions and events",
		Text: "The solicited event bit is on the last packet of a SEND or WRITE with immediate that asks for it; immediate data do not imply it.",
		Code: []string{"transport/send.go Describe", "rc/execute.go finish"}, Tests: []string{"nic/wait_test.go TestWaitSolicited"},
	},
	{
		ID: "unsignaled", Group: "Order, completions and events",
		Text: "An unsignaled request completes silently; its error always makes a completion.",
		Code: []string{"rc/flush.go finishSend", "transport/unreliable.go complete"},
	},
	{
		ID: "inline", Group: "Order, completions and events",
		Text: "Inline data are copied when posted, need no key, and are refused beyond the maximum.",
		Code: []string{"verbs/wqe.go Put", "transport/send.go Put"}, Tests: []string{"verbs/wqe_test.go TestSendLimits"},
	},
	{
		ID: "post-copies", Group: "Order, completions and events",
		Text: "A work request is copied when posted; the device checks its copy.",
		Code: []string{"verbs/wqe.go Put", "verbs/wqe.go Fetch"}, Tests: []string{"verbs/wqe_test.go TestSendCopied"},
	},
	{
		ID: "bad-wr", Group: "Order, completions and events",
		Text: "Of a list of requests those before the first that is refused run.",
		Code: []string{"verbs/qp.go PostSend"}, Tests: []string{"verbs/qp_test.go TestPostSend"},
	},
	{
		ID: "cq-overflow", Group: "Order, completions and events",
		Text: "A completion queue that overflows tells by an event, and its queue pairs go to ERR.",
		Code: []string{"nic/cq.go Push"}, Tests: []string{"nic/life_test.go TestOverflow"},
	},

	{
		ID: "ect", Group: "Congestion",
		Text: "What an RC or UC queue pair sends is marked ECT(0) when it heeds CNPs, and only then; a program's own ECN field stays.",
		Code: []string{"nic/congestion.go classify"}, Tests: []string{"nic/reaction_test.go TestECT"},
	},
	{
		ID: "cnp-sent", Group: "Congestion", Clause: "A17.9.3",
		Text: "The first packet with mark CE that an RC or UC queue pair admits makes a CNP at once, with BECN and 16 octets of 0; later ones at least np_min_time_between_cnps apart for each pacing key.",
		Code: []string{"nic/congestion.go notifyPeer", "nic/congestion.go fillCNPs"},
		Tests: []string{
			"nic/cnp_test.go TestCNPIsConnectX", "nic/cnp_test.go TestCNPByTshark", "nic/cnp_test.go TestCNPSpacing", "nic/cnp_test.go TestCNPKeys",
			"nic/cnp_test.go TestCNPFor", "nic/cnp_test.go TestCNPOnlyForWhatIsTaken", "nic/cnp_test.go TestCNPNoRoom", "nic/cnp_test.go TestCNPOutlived",
		},
	},
	{
		ID: "cnp", Group: "Congestion", Clause: "A17.9.3",
		Text: "A CNP is taken in whatever form ConnectX sends it, slows requests and READ responses of the queue pair that it names, if it comes from its peer, and is not answered.",
		Code: []string{"nic/rx.go admits", "nic/congestion.go react", "cc/dcqcn.go OnCNP"},
		Tests: []string{
			"nic/cnp_test.go TestCNPOfConnectX", "nic/reaction_test.go TestReaction", "nic/reaction_test.go TestCNPFlood", "nic/reaction_test.go TestReadSlowsResponder",
		},
	},
	{
		ID: "slow-restart", Group: "Congestion", Clause: "none; ConnectX-5 and 6 have it",
		Text: "A gap counts as congestion unless that is switched off: who reports it sends a CNP along, and who is told of it cuts its rate.",
		Code: []string{"nic/congestion.go gap", "cc/dcqcn.go OnLoss"}, Tests: []string{"nic/reaction_test.go TestSlowRestart"},
	},
	{
		ID: "rate-limit", Group: "Congestion",
		Text: "The lowest of static rate, rate limit and the rate of congestion control is kept, in octets of IP packets, in bursts of one packet or 50 us; it holds back no ACK, NAK or atomic acknowledgement, but behind a READ's response.",
		Code: []string{"nic/pace.go charge", "cc/pacer.go Sent", "rc/qp.go Urgent"},
		Tests: []string{
			"nic/pace_test.go TestPacedRate", "nic/pace_test.go TestPacedSmall", "nic/pace_test.go TestPacedStaticRate", "nic/pace_test.go TestPacedChange",
			"nic/pace_test.go TestPacedMany", "nic/reaction_test.go TestAnswersNotPaced",
		},
	},
	{
		ID: "rate-timeout", Group: "Congestion",
		Text: "However low the rate, a packet asks for an ACK early enough for the timer not to fire.",
		Code: []string{"rc/requester.go overdue", "rc/requester.go slow"}, Tests: []string{"nic/pace_test.go TestPacedTimeout"},
	},

	{
		ID: "malformed", Group: "Hostile and odd packets", Clause: "9.6.1",
		Text: "A packet shorter than its headers, pad and ICRC, or of another transport version, is dropped and counted, and not answered.",
		Code: []string{"bth/packet.go Parse"}, Tests: []string{"bth/packet_test.go TestEveryOpcodeAtEveryLength", "nic/drop_test.go TestEveryOpcodeAndLength"},
	},
	{
		ID: "opcode-unknown", Group: "Hostile and odd packets", Clause: "table 38",
		Text: "An opcode that the specification does not have is dropped and counted.",
		Code: []string{"bth/packet.go Parse"}, Tests: []string{"bth/opcode_test.go TestTableAgainstTshark"},
	},
	{
		ID: "opcode-class", Group: "Hostile and odd packets",
		Text: "A packet of another service than the queue pair's is dropped and counted.",
		Code: []string{"rc/qp.go HandlePacket", "transport/unreliable.go Receives", "nic/rx.go admits"},
	},
	{
		ID: "liberal", Group: "Hostile and odd packets", Clause: "9.2",
		Text: "Reserved bits, FECN and BECN of a request change nothing.",
		Code: []string{"bth/packet.go Parse"}, Tests: []string{"bth/golden_test.go TestReservedBitsIgnored"},
	},

	{
		ID: "atomic-write", Group: "Other services", Clause: "A19",
		Text: "ATOMIC WRITE writes 8 octets at a multiple of 8 at once; anything else is an invalid request and leaves memory alone.",
		Code: []string{"rc/responder.go checkOpcode"},
		Gap:  "memory placement extensions: every ATOMIC WRITE is refused as an invalid request.",
	},
	{
		ID: "flush-operation", Group: "Other services", Clause: "A19",
		Text: "FLUSH makes what was written visible, or persistent.",
		Code: []string{"rc/responder.go checkOpcode"},
		Gap:  "memory placement extensions: every FLUSH is refused as an invalid request.",
	},
	{
		ID: "cm", Group: "Other services", Clause: "12",
		Text: "Connections are made by the connection manager's messages to QP1; REQ and REP carry the RNR retry count and end-to-end flow control.",
		Gap:  "connection manager: packets to QP1 are dropped and counted.",
	},
	{
		ID: "xrc", Group: "Other services", Clause: "A14",
		Text: "XRC shares one receive queue among many connections of a node.",
		Gap:  "XRC: no queue pair is of this service; its packets are dropped and counted.",
	},
}
