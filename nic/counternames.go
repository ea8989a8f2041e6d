package nic

import (
	"slices"
	"strings"

	"github.com/gorxe/gorxe/trace"
)

// CounterInfo says what a counter of NIC.Counters and NIC.QueryQP counts.
type CounterInfo struct {
	Name string
	Unit string // "packets", "octets", "words" of 4 octets, "ns", "messages", "requests", "times", ...
	// Kind is "port" for what passes the port, "queue pair" for what queue pairs
	// have too, "device" for the rest, and for those of trace.Reason "drop",
	// "failure", "retry" or "note".
	Kind string
	Text string // one sentence, without a full stop
}

// counterNames are all counters but those of reasons, in the order of
// docs/counters.md.
var counterNames = []CounterInfo{
	{"port_xmit_data", "words", "port", "octets of UDP payload that the link took, divided by 4"},
	{"port_rcv_data", "words", "port", "octets of UDP payload that the link gave, divided by 4"},
	{"port_xmit_packets", "packets", "port", "packets that the link took"},
	{"port_rcv_packets", "packets", "port", "packets that the link gave, good or not"},
	{"port_xmit_wait", "ns", "port", "time during which a packet was ready and the link had no room for it; what a window, a rate, a credit or an RNR timer holds back is not in it"},
	{"port_xmit_discards", "packets", "port", "packets that the system refused to send: no route, a firewall, a packet too large, an interface that is down"},
	{"port_rcv_errors", "packets", "port", "packets that came malformed or with a wrong checksum or ICRC"},
	{"link_downed", "times", "port", "times that the link failed or its interface went down"},

	{"duplicate_request", "packets", "queue pair", "request packets that came again"},
	{"out_of_sequence", "packets", "queue pair", "packets that came beyond a gap"},
	{"out_of_seq_request", "times", "queue pair", "gaps: the first packet that came beyond each"},
	{"packet_seq_err", "NAKs", "queue pair", "sequence NAKs received: the peer missed a packet"},
	{"rcvd_seq_err", "NAKs", "queue pair", "the same as packet_seq_err, by its name in rxe"},
	{"implied_nak_seq_err", "times", "queue pair", "times that an answer passed an unanswered READ or atomic, so its response was lost"},
	{"local_ack_timeout_err", "times", "queue pair", "times that the retransmission timer fired"},
	{"completer_retry_err", "times", "queue pair", "times that a requester went back and sent again, for whatever reason but RNR"},
	{"retry_exceeded_err", "requests", "queue pair", "send requests that failed after all retries"},
	{"rnr_nak_retry_err", "NAKs", "queue pair", "RNR NAKs received: the peer had no receive request"},
	{"rcvd_rnr_err", "NAKs", "queue pair", "the same as rnr_nak_retry_err, by its name in rxe"},
	{"send_rnr_err", "NAKs", "queue pair", "RNR NAKs sent: there was no receive request"},
	{"retry_rnr_exceeded_err", "requests", "queue pair", "send requests that failed after all RNR retries"},
	{"out_of_buffer", "messages", "queue pair", "messages that found no receive request, RNR NAKs included"},
	{"ack_deferred", "ACKs", "queue pair", "ACKs that a later one made unnecessary"},
	{"ack_deffered", "ACKs", "queue pair", "the same as ack_deferred, by its name in rxe of old"},
	{"rdma_sends", "messages", "queue pair", "SEND messages begun"},
	{"rdma_recvs", "messages", "queue pair", "messages received into receive requests"},
	{"completed", "requests", "queue pair", "send requests that ended well"},
	{"sent_requests", "packets", "queue pair", "request packets sent, repeats included"},
	{"sent_responses", "packets", "queue pair", "response packets sent, ACKs included"},
	{"rcvd_requests", "packets", "queue pair", "request packets received"},
	{"rcvd_responses", "packets", "queue pair", "response packets received, ACKs included"},
	{"sent_payload", "octets", "queue pair", "payload of the packets sent"},
	{"rcvd_payload", "octets", "queue pair", "payload of the packets received"},
	{"repeated_requests", "packets", "queue pair", "request packets sent more than once"},
	{"acks_sent", "packets", "queue pair", "ACK and NAK packets sent"},
	{"uc_lost_packets", "packets", "queue pair", "packets of unreliable connections that never came, by their PSNs"},
	{"window_wait", "ns", "queue pair", "time that a send request waited for room in the congestion window"},
	{"credit_wait", "ns", "queue pair", "time that a send request waited for the peer to post a receive request, by its credits"},
	{"rnr_wait", "ns", "queue pair", "time that send requests waited because an RNR NAK asked for it"},
	{"pacing_wait", "ns", "queue pair", "time that something waited for a rate to be kept"},
	{"np_ecn_marked_roce_packets", "packets", "queue pair", "packets that came with a congestion mark (CE)"},
	{"np_cnp_sent", "packets", "queue pair", "congestion notifications (CNPs) sent"},
	{"rp_cnp_handled", "packets", "queue pair", "CNPs received and heeded"},
	{"rp_cnp_ignored", "packets", "queue pair", "CNPs received and not heeded: congestion control is off, or no queue pair has their number and addresses"},
	{"roce_slow_restart", "times", "queue pair", "losses that were taken for congestion, so that the rate was cut"},
	{"roce_slow_restart_trans", "times", "queue pair", "the first such loss since the rate was full"},
	{"roce_slow_restart_cnps", "packets", "queue pair", "CNPs sent along with a sequence NAK"},

	{"sent_pkts", "packets", "device", "the same as port_xmit_packets, by its name in rxe"},
	{"rcvd_pkts", "packets", "device", "packets proven and admitted to a queue pair, those from this device itself included"},
	{"sent_bytes", "octets", "device", "UDP payload of sent_pkts"},
	{"rcvd_bytes", "octets", "device", "UDP payload of rcvd_pkts"},
	{"hairpin_pkts", "packets", "device", "packets from this device to itself, which pass no link"},
	{"send_err", "packets", "device", "packets lost because a send failed as a whole"},
	{"rx_icrc_encapsulated", "packets", "device", "packets with a wrong ICRC"},
	{"tx_bursts", "bursts", "device", "super-packets offered to the link"},
	{"tx_sends", "calls", "device", "calls that offered them"},
	{"rx_datagrams", "datagrams", "device", "packets that the link gave, merged ones as one"},
	{"shard_busy", "times", "device", "times that a program found another thread at its shard"},
	{"np_cnp_delay", "ns", "device", "time from the step that saw a marked packet until its CNP was sent, all together"},

	{"link_rx_packets", "packets", "device", "packets received, by the link's own count"},
	{"link_rx_bytes", "octets", "device", "their octets"},
	{"link_tx_packets", "packets", "device", "packets sent, by the link's own count"},
	{"link_tx_bytes", "octets", "device", "their octets"},
	{"link_rx_dropped", "packets", "device", "packets lost before the device saw them, for want of room in a receive buffer"},
	{"link_rx_invalid", "packets", "device", "packets that the link refused as no RoCEv2"},
	{"link_tx_errors", "packets", "device", "packets that the system refused to send"},
	{"link_tx_short", "times", "device", "times that the link had room for less than was offered"},
}

// CounterNames returns what counters there are, those of reasons last; a link may
// have others besides, which DescribeCounter knows.
func CounterNames() []CounterInfo {
	all := slices.Clone(counterNames)
	for r := trace.None + 1; r < trace.NumReasons; r++ {
		if !slices.ContainsFunc(all, func(c CounterInfo) bool { return c.Name == r.String() }) {
			all = append(all, ofReason(r))
		}
	}
	return all
}

// DescribeCounter says what a counter counts.
func DescribeCounter(name string) CounterInfo {
	for _, c := range CounterNames() {
		if c.Name == name {
			return c
		}
	}
	switch what, _, _ := strings.Cut(name, "_"); what {
	case "fault":
		return CounterInfo{name, "packets", "device", "packets that fault rules hit, by direction and effect"}
	case "xdp":
		return CounterInfo{name, "packets", "device", "what the AF_XDP sockets and their program count, by its name in the kernel where it has one"}
	}
	return CounterInfo{name, "", "device", "a counter of the link's own"}
}

func ofReason(r trace.Reason) CounterInfo {
	c := CounterInfo{Name: r.String(), Unit: "times", Kind: "note", Text: r.Explain()}
	switch {
	case r.IsDrop():
		c.Kind, c.Unit = "drop", "packets"
	case r < trace.RetryTimeout:
		c.Kind, c.Unit = "failure", "requests"
	case r <= trace.RetryLink:
		c.Kind = "retry"
	}
	return c
}
