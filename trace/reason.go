package trace

import "strconv"

// Reason says why something happened. Its zero value, None, is "nothing
// wrong".
type Reason uint8

// Reasons for dropping a received packet begin with Drop, reasons for failing
// a work request or a queue pair with Fail, reasons for sending again with
// Retry, and things worth a note with Note.
const (
	None Reason = iota

	DropShort       // fewer octets than the headers, pad and ICRC need
	DropOpcode      // opcode that the specification does not define
	DropTVer        // transport version other than 0
	DropNotIP       // not IPv4 or IPv6, or a broken IP header
	DropFragment    // an IP fragment
	DropNotRoCE     // not UDP to the RoCEv2 port
	DropUDPLen      // UDP length disagrees with the IP length
	DropIPChecksum  // IPv4 header checksum is wrong
	DropICRC        // invariant CRC is wrong
	DropICRCWindow  // ICRC holds only for an IPv4 ID out of the peer's window
	DropQPN         // no such queue pair
	DropClass       // transport of the opcode is not the queue pair's
	DropState       // queue pair is in a state that does not receive
	DropAddress     // addresses are not those the queue pair is connected to
	DropPKey        // partition key does not match
	DropQKey        // queue key does not match
	DropNoRecv      // unreliable message found no receive work request
	DropDuplicate   // repeated packet that calls for no answer
	DropOutOfOrder  // packet beyond a gap that was already reported
	DropResponse    // response that answers nothing outstanding
	DropGhostAck    // ACK of a packet that was not sent, or long acknowledged
	DropReservedAck // AETH with a reserved kind or NAK code
	DropLength      // length rule broken where no NAK may be sent
	DropCNP         // CNP for a queue pair that has no rate control
	DropOverflow    // receive queue of the link or hand-over was full
	DropInjected    // dropped by a fault rule
	DropStray       // segment for another shard, handed over
	DropMessage     // rest of an unreliable message that was given up
	DropTooLong     // unreliable message longer than its receive request or path
	DropGroup       // multicast group that no queue pair is attached to
	DropLoopback    // what this device itself sent to a multicast group
	DropUnsupported // valid, but of a service that is not implemented

	FailRetryExceeded // transport retries used up
	FailRNRExceeded   // RNR retries used up
	FailInvalidReq    // peer answered NAK invalid request
	FailRemoteAccess  // peer answered NAK remote access error
	FailRemoteOp      // peer answered NAK remote operational error
	FailLocalProt     // local key, range or access flag of a work request is wrong
	FailLocalLen      // message longer than its buffer, or a response of the wrong length
	FailLocalQPOp     // malformed work request
	FailBadResponse   // response that breaks the protocol
	FailFlushed       // queue pair left the working states
	FailCQOverflow    // completion queue was full
	FailAccess        // request broke a key, range or access flag of ours
	FailOpcodeSeq     // request opcode out of sequence
	FailReqLength     // request broke a length, pad or alignment rule
	FailTooManyReads  // more READs and atomics at once than max_dest_rd_atomic
	FailQPAccess      // request that the queue pair's access flags forbid
	FailDevice        // the device failed or was closed
	FailMemory        // bind or invalidation in a work request that is not allowed
	FailInvalidate    // SEND that invalidates a key of ours that may not be

	RetryTimeout    // no answer within the timeout
	RetrySequence   // NAK sequence error
	RetryAdaptive   // what a NAK asked for was not acknowledged soon after
	RetryImplied    // an answer passed an unanswered READ or atomic
	RetryRNR        // peer had no receive work request
	RetryLink       // link took fewer segments than offered; not a loss
	NoteSequenceNAK // gap seen, sequence NAK sent
	NoteRNRNAK      // no receive work request, RNR NAK sent
	NoteDuplicate   // duplicate request answered again
	NoteState       // queue pair changed state
	NoteIDLearned   // first IPv4 ID of a peer taken into the window

	NoteMarked           // packet with a congestion mark (CE) received
	NoteCNPSent          // congestion notification sent
	NoteCNP              // congestion notification heeded
	NoteSlowRestart      // loss taken for congestion
	NoteSlowRestartTrans // the first such since the rate was full
	NoteSlowRestartCNP   // gap seen, congestion notification sent along with the NAK

	NumReasons
)

type reasonText struct{ name, text string }

// Counter names are those of rxe or mlx5 where one exists.
var reasons = [NumReasons]reasonText{
	None:            {"none", "nothing is wrong"},
	DropShort:       {"short_packet", "the packet ends before its headers, pad and ICRC do; a truncated capture, a broken sender, or not RoCEv2 at all"},
	DropOpcode:      {"unknown_opcode", "the opcode is not in the specification; a corrupted packet or a vendor extension"},
	DropTVer:        {"bad_tver", "the transport version is not 0; a corrupted packet or not RoCEv2"},
	DropNotIP:       {"not_ip", "the frame has no valid IPv4 or IPv6 header"},
	DropFragment:    {"ip_fragment", "RoCEv2 is never fragmented; the path MTU is larger than a hop's MTU and the sender does not set DF"},
	DropNotRoCE:     {"not_roce", "not UDP to port 4791"},
	DropUDPLen:      {"udp_length", "UDP and IP lengths disagree; a truncated or corrupted packet"},
	DropIPChecksum:  {"ip_checksum", "the IPv4 header checksum is wrong; a corrupted packet"},
	DropICRC:        {"icrc_error", "the invariant CRC is wrong: a corrupted packet, an address or port translation on the path (RoCEv2 cannot cross NAT), or a sender with a wrong ICRC"},
	DropICRCWindow:  {"icrc_id_window", "the ICRC fits only an IPv4 identification far from the peer's last; a corrupted packet, or the first after a long pause, whose retransmission will be taken"},
	DropQPN:         {"unknown_qpn", "no queue pair has this number; the peer was given a wrong or stale QPN"},
	DropClass:       {"wrong_transport", "the opcode's transport is not the queue pair's; the two ends created different queue pair types"},
	DropState:       {"qp_state", "the queue pair is not ready to receive; the peer sent before the connection was complete, or after an error here"},
	DropAddress:     {"wrong_address", "source or destination address is not the one the queue pair is connected to; a wrong GID index on one side, or a packet of an earlier connection"},
	DropPKey:        {"bad_pkey", "the partition keys do not match"},
	DropQKey:        {"bad_qkey", "the queue keys do not match; the sender used a Q_Key other than the receiver's"},
	DropNoRecv:      {"out_of_buffer", "an unreliable message found no receive work request and is lost; post more receives"},
	DropDuplicate:   {"duplicate_dropped", "a repeated packet that needs no answer"},
	DropOutOfOrder:  {"out_of_sequence", "a packet beyond a gap; the missing one was asked for already"},
	DropResponse:    {"unexpected_response", "a response that answers nothing outstanding; a late answer, or one of an earlier connection"},
	DropGhostAck:    {"ghost_ack", "an ACK for a packet that was never sent or was acknowledged long ago"},
	DropReservedAck: {"reserved_aeth", "an AETH with a reserved code; the peer is newer or broken"},
	DropLength:      {"length_error", "payload length breaks the rule for its opcode"},
	DropCNP:         {"rp_cnp_ignored", "a congestion notification for a queue pair without rate control"},
	DropOverflow:    {"rx_overflow", "a queue inside the host was full; packets arrive faster than they are taken"},
	DropInjected:    {"fault_injected", "a fault rule dropped it"},
	DropStray:       {"stray_segment", "the segment belonged to another shard and was handed over"},
	DropMessage:     {"message_rest", "the rest of an unreliable message whose beginning was lost or refused"},
	DropTooLong:     {"message_too_long", "an unreliable message is longer than the receive request it met, or than the path MTU, and is lost; a UD receive request needs 40 octets more than the message"},
	DropGroup:       {"unknown_mcast_group", "no queue pair is attached to the multicast group the packet was sent to"},
	DropLoopback:    {"multicast_loop", "what this device sent to a multicast group came back to it from the network; its own queue pairs had it already"},
	DropUnsupported: {"unsupported", "valid, but of a service that is not implemented"},

	FailRetryExceeded: {"retry_exceeded_err", "no acknowledgement after all retries: the peer is down or its queue pair is in error, packets cannot reach it (MTU, firewall, wrong GID or port 4791 blocked), or its ICRC check fails"},
	FailRNRExceeded:   {"retry_rnr_exceeded_err", "the peer had no receive work request after all RNR retries; it posts receives too late"},
	FailInvalidReq:    {"req_remote_invalid_request", "the peer refused the request as invalid: message longer than its receive buffer, different path MTUs at the two ends, operation not enabled on its queue pair, or too many READs at once"},
	FailRemoteAccess:  {"req_remote_access_errors", "the peer refused the access: wrong rkey, address out of the region, or region without that permission"},
	FailRemoteOp:      {"req_remote_operational", "the peer could not carry the request out, by its own account"},
	FailLocalProt:     {"local_protection", "a work request names a key, range or permission that its local memory region does not have"},
	FailLocalLen:      {"local_length", "a message is longer than its buffer, or a response has the wrong length; path MTUs of the two ends may differ"},
	FailLocalQPOp:     {"local_qp_operation", "a work request is malformed"},
	FailBadResponse:   {"bad_response", "the peer's response breaks the protocol"},
	FailFlushed:       {"wr_flushed", "the work request was outstanding when its queue pair was stopped or failed; the first failed completion, if there is one, tells why"},
	FailCQOverflow:    {"cq_overflow", "the completion queue was full; make it deeper or poll more often"},
	FailAccess:        {"resp_remote_access_errors", "a request broke a key, range or permission of a memory region here"},
	FailOpcodeSeq:     {"resp_opcode_sequence", "request opcodes came in an order that is no message"},
	FailReqLength:     {"resp_local_length_error", "a request broke a length, pad or alignment rule; path MTUs of the two ends may differ"},
	FailTooManyReads:  {"resp_too_many_reads", "the peer has more READs and atomics outstanding than max_dest_rd_atomic allows"},
	FailQPAccess:      {"resp_qp_access", "the request is one that the queue pair's access flags forbid"},
	FailDevice:        {"device_fatal", "the device failed or was closed"},
	FailMemory:        {"memory_management", "a work request binds or invalidates a memory window that does not allow it: a key that is not the window's present one, a region without AccessMWBind or the rights asked for, a range beyond it, or a window of another protection domain, queue pair or type"},
	FailInvalidate:    {"resp_invalidate_err", "the peer asked to invalidate a key that is not of a bound type 2 window of this queue pair"},

	RetryTimeout:    {"local_ack_timeout_err", "no answer within the timeout; packets or answers are lost, or the timeout is too short"},
	RetrySequence:   {"packet_seq_err", "the peer missed a packet and asked for it"},
	RetryAdaptive:   {"roce_adp_retrans", "what the peer asked for was sent again and not acknowledged, so it was sent once more, ahead of the timeout"},
	RetryImplied:    {"implied_nak_seq_err", "an answer passed an unanswered READ or atomic, so its response was lost"},
	RetryRNR:        {"rnr_nak_retry_err", "the peer had no receive work request yet"},
	RetryLink:       {"link_short_send", "the link took fewer packets than offered; they follow"},
	NoteSequenceNAK: {"rcvd_gap", "a packet is missing; a sequence NAK asks for it"},
	NoteRNRNAK:      {"send_rnr_err", "a message found no receive work request; an RNR NAK was sent"},
	NoteDuplicate:   {"duplicate_request", "a request came again and was answered again"},
	NoteState:       {"qp_state_change", "the queue pair changed state"},
	NoteIDLearned:   {"icrc_id_learned", "the first IPv4 identification of a peer was taken on the word of the ICRC alone"},

	NoteMarked:           {"np_ecn_marked_roce_packets", "a packet came with a congestion mark (CE): a queue on the way was long"},
	NoteCNPSent:          {"np_cnp_sent", "the peer was notified that its packets, or a gap in them, show congestion"},
	NoteCNP:              {"rp_cnp_handled", "the peer told of congestion, and the rate was cut"},
	NoteSlowRestart:      {"roce_slow_restart", "a loss was taken for congestion, and the rate was cut"},
	NoteSlowRestartTrans: {"roce_slow_restart_trans", "the first such loss since the rate was full"},
	NoteSlowRestartCNP:   {"roce_slow_restart_cnps", "a packet is missing, and the peer was notified of congestion along with the NAK"},
}

// String returns the reason's counter name.
func (r Reason) String() string {
	if r < NumReasons {
		return reasons[r].name
	}
	return "unknown_reason"
}

// Explain returns one sentence that says what the reason means and what
// probably caused it.
func (r Reason) Explain() string {
	if r < NumReasons {
		return reasons[r].text
	}
	return "a reason this version does not know"
}

// IsDrop reports whether the reason discards a received packet.
func (r Reason) IsDrop() bool { return r >= DropShort && r <= DropUnsupported }

// Drops lists what counters by name hold of reasons to discard received packets,
// one line of words for each: how often, which, and what it means.
func Drops(counters map[string]uint64) []string {
	var out []string
	for r := range NumReasons {
		if n := counters[r.String()]; r.IsDrop() && n > 0 {
			out = append(out, strconv.FormatUint(n, 10)+" x "+r.String()+", "+r.Explain())
		}
	}
	return out
}

// Counts holds one counter per reason.
type Counts [NumReasons]uint64
