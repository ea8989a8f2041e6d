package nic

import (
	"errors"
	"maps"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
)

// qpTotals adds up the counters of queue pairs.
type qpTotals struct {
	counts trace.Counts
	stats  transport.Stats
}

func (t *qpTotals) add(q *qp) {
	q.countStall(q.s.now) // the last of it, when the queue pair is about to go
	t.addAll(q.eng.Counts(), q.eng.Stats())
}

func (t *qpTotals) addAll(c *trace.Counts, s *transport.Stats) {
	for i, v := range c {
		t.counts[i] += v
	}
	mine, more := t.stats.Each(), s.Each()
	for i := range mine {
		*mine[i] += *more[i]
	}
}

// named returns the counters by name: those below, and every other reason that
// occurred, under its own.
//
//	duplicate_request       request packets received again (rxe, mlx5)
//	out_of_sequence         request packets beyond a gap (mlx5)
//	out_of_seq_request      gaps: the first packet beyond each (rxe)
//	out_of_buffer           messages that found no receive request (mlx5)
//	rcvd_rnr_err            RNR NAKs received (rxe); rnr_nak_retry_err in mlx5
//	send_rnr_err            RNR NAKs sent (rxe)
//	rcvd_seq_err            sequence NAKs received (rxe); packet_seq_err in mlx5
//	implied_nak_seq_err     responses that passed an unanswered READ or atomic (mlx5)
//	local_ack_timeout_err   retransmit timers that fired (mlx5)
//	completer_retry_err     times the requester went back: timeout, NAK, implied NAK (rxe)
//	ack_deferred            ACKs left to a later one (rxe, whose own counts deferred tasks; spelled
//	                        ack_deffered as well, as it was in rxe once)
//	retry_exceeded_err      work requests failed after all retries (rxe)
//	retry_rnr_exceeded_err  the same for RNR retries (rxe)
//	rdma_sends              SEND messages begun (rxe)
//	rdma_recvs              receive completions (rxe)
//	sent_requests           request packets, repeats included
//	sent_responses          response packets
//	rcvd_requests, rcvd_responses
//	sent_payload, rcvd_payload   their octets of payload
//	repeated_requests       request packets sent more than once
//	acks_sent               ACK and NAK packets
//	completed               send requests finished well
//	uc_lost_packets         UC packets that never came, by their PSNs
//	window_wait             nanoseconds that a send request waited for room in the congestion window,
//	credit_wait             for the peer to post a receive request,
//	rnr_wait                and for the time that an RNR NAK asks for
//	pacing_wait             nanoseconds that something waited for a rate to be kept
//	np_ecn_marked_roce_packets  packets that came with a congestion mark (mlx5)
//	np_cnp_sent             congestion notifications sent (mlx5)
//	rp_cnp_handled          and received, and heeded (mlx5)
//	rp_cnp_ignored          and not: for a queue pair that has no rate control (mlx5), or none at all
//	roce_slow_restart       losses that were taken for congestion (mlx5)
//	roce_slow_restart_trans the first of them since the rate was full (mlx5)
//	roce_slow_restart_cnps  notifications sent along with a sequence NAK (mlx5)
func (t *qpTotals) named() map[string]uint64 {
	c, s := &t.counts, &t.stats
	m := map[string]uint64{
		"duplicate_request":      c[trace.NoteDuplicate] + c[trace.DropDuplicate],
		"out_of_sequence":        c[trace.DropOutOfOrder],
		"out_of_buffer":          c[trace.NoteRNRNAK] + c[trace.DropNoRecv],
		"rcvd_rnr_err":           c[trace.RetryRNR],
		"rnr_nak_retry_err":      c[trace.RetryRNR],
		"send_rnr_err":           c[trace.NoteRNRNAK],
		"rcvd_seq_err":           c[trace.RetrySequence],
		"packet_seq_err":         c[trace.RetrySequence],
		"implied_nak_seq_err":    c[trace.RetryImplied],
		"local_ack_timeout_err":  c[trace.RetryTimeout],
		"completer_retry_err":    c[trace.RetryTimeout] + c[trace.RetrySequence] + c[trace.RetryImplied] + c[trace.RetryAdaptive],
		"ack_deffered":           s.AcksCoalesced,
		"ack_deferred":           s.AcksCoalesced,
		"out_of_seq_request":     c[trace.NoteSequenceNAK],
		"retry_exceeded_err":     c[trace.FailRetryExceeded],
		"retry_rnr_exceeded_err": c[trace.FailRNRExceeded],
		"rdma_sends":             s.Sends,
		"rdma_recvs":             s.Recvs,
		"sent_requests":          s.SentRequests,
		"sent_responses":         s.SentResponses,
		"rcvd_requests":          s.RcvdRequests,
		"rcvd_responses":         s.RcvdResponses,
		"sent_payload":           s.SentBytes,
		"rcvd_payload":           s.RcvdBytes,
		"repeated_requests":      s.Repeated,
		"acks_sent":              s.AcksSent,
		"completed":              s.Completed,
		"uc_lost_packets":        s.Lost,
		"window_wait":            s.WindowWait,
		"credit_wait":            s.CreditWait,
		"rnr_wait":               s.RNRWait,
		"pacing_wait":            s.PacingWait,

		"np_ecn_marked_roce_packets": c[trace.NoteMarked],
		"np_cnp_sent":                c[trace.NoteCNPSent],
		"rp_cnp_handled":             c[trace.NoteCNP],
		"rp_cnp_ignored":             c[trace.DropCNP],
		"roce_slow_restart":          c[trace.NoteSlowRestart],
		"roce_slow_restart_trans":    c[trace.NoteSlowRestartTrans],
		"roce_slow_restart_cnps":     c[trace.NoteSlowRestartCNP],
	}
	for r, v := range c {
		name := trace.Reason(r).String()
		if _, known := m[name]; v > 0 && !known {
			m[name] = v
		}
	}
	return m
}

// Counters returns the device's counters by name: those of all queue pairs, of
// destroyed ones too (see qpTotals.named), and
//
//	port_xmit_data, port_rcv_data        UDP payload that the link took and gave, in words of 4 octets (sysfs)
//	port_xmit_packets, port_rcv_packets  and its packets (sysfs)
//	port_xmit_wait         nanoseconds that packets waited because the link had no room (sysfs, in ticks)
//	port_xmit_discards     packets that the system refused (sysfs)
//	port_rcv_errors        packets that were malformed or damaged (sysfs)
//	link_downed            times that the link failed, or its interface went down (sysfs)
//	rx_icrc_encapsulated   packets with a wrong ICRC (mlx5)
//	sent_pkts, sent_bytes  packets that the link took, octets of UDP payload
//	rcvd_pkts, rcvd_bytes  packets proven and admitted to a queue pair
//	tx_bursts, tx_sends    super-packets, and the Send calls that took them
//	rx_datagrams           super-packets or packets that the link gave
//	shard_busy             times that a program found somebody else at its shard
//	hairpin_pkts           packets from this device to itself
//	np_cnp_delay           nanoseconds from the step that saw a marked packet until its CNP was sent, together
//	send_err               packets that the system refused, with all that was behind them
//	fault_...              packets hit by fault rules, by direction and effect
//	link_...               what the link counts itself (link.Stats), in packets
//
// DescribeCounter has their units, and docs/counters.md what compares with what.
// No counter ever goes back. The call takes time in proportion to the queue
// pairs, but holds no shard longer than for a few dozen of them.
func (n *NIC) Counters() (map[string]uint64, error) {
	if err := n.Err(); err != nil {
		return nil, err
	}
	var t qpTotals
	var d shardStats
	var busy uint64
	var l link.Stats
	named := map[string]uint64{}
	for _, s := range n.shards {
		one := s.totals()
		t.addAll(&one.counts, &one.stats)
		s.mu.Lock()
		s.stats.waitFor(n.cfg.Clock(), s.stats.since != 0)
		d.add(&s.stats)
		busy += s.bg.met.Load()
		if r, ok := s.link.(link.StatsReader); ok {
			addLink(&l, r.Stats())
		}
		addNamed(named, s.link)
		s.unlock()
	}
	m := t.named()
	maps.Copy(m, named)
	for k, v := range map[string]uint64{
		"port_xmit_data": d.sentBytes / 4, "port_rcv_data": d.portRcvBytes / 4, "port_xmit_packets": d.sentPkts, "port_rcv_packets": d.portRcvPkts,
		"port_xmit_wait": uint64(d.waited), "port_xmit_discards": d.sendErr + l.TxErrors, "port_rcv_errors": t.malformed(), "link_downed": d.linkDown + n.downs.Load(),
		"rx_icrc_encapsulated": t.counts[trace.DropICRC] + t.counts[trace.DropICRCWindow],
		"sent_pkts":            d.sentPkts, "sent_bytes": d.sentBytes, "rcvd_pkts": d.rcvdPkts, "rcvd_bytes": d.rcvdBytes,
		"tx_bursts": d.txBursts, "tx_sends": d.txSends, "rx_datagrams": d.rxDatagrams, "hairpin_pkts": d.hairpin, "shard_busy": busy,
		"send_err":     d.sendErr,
		"np_cnp_delay": uint64(d.cnpDelay), "rp_cnp_ignored": t.counts[trace.DropCNP] + d.cnpIgnored,
		"link_rx_packets": l.RxPackets, "link_rx_bytes": l.RxBytes, "link_tx_packets": l.TxPackets, "link_tx_bytes": l.TxBytes,
		"link_rx_dropped": l.RxDropped, "link_rx_invalid": l.RxInvalid, "link_tx_errors": l.TxErrors, "link_tx_short": l.TxShort,
	} {
		m[k] = v
	}
	return m, nil
}

// totals adds up the shard's queue pairs, past ones included. One that is
// destroyed during the count may be missing from it, but is never in it twice,
// so the sum is no more than the truth; and as it was the truth once, the largest
// of all counts is what to tell.
func (s *shard) totals() qpTotals {
	s.mu.Lock()
	t := s.retire
	for i, v := range s.counts {
		t.counts[i] += v
	}
	s.unlock()
	now := s.n.cfg.Clock()
	s.each(func(q *qp) {
		q.countStall(now)
		t.add(q)
	})
	s.mu.Lock()
	t.atLeast(&s.stats.told)
	s.stats.told = t
	s.unlock()
	return t
}

// atLeast raises each counter to what it has been.
func (t *qpTotals) atLeast(o *qpTotals) {
	for i, v := range o.counts {
		t.counts[i] = max(t.counts[i], v)
	}
	mine, was := t.stats.Each(), o.stats.Each()
	for i := range mine {
		*mine[i] = max(*mine[i], *was[i])
	}
}

// malformed counts packets that were damaged, or never good.
func (t *qpTotals) malformed() (sum uint64) {
	for _, r := range [...]trace.Reason{
		trace.DropShort, trace.DropOpcode, trace.DropTVer, trace.DropNotIP, trace.DropFragment, trace.DropUDPLen, trace.DropIPChecksum,
		trace.DropICRC, trace.DropICRCWindow,
	} {
		sum += t.counts[r]
	}
	return sum
}

// addNamed adds the counters that a link, and what it wraps, has of its own
// kind.
func addNamed(m map[string]uint64, l link.Link) {
	for {
		if n, ok := l.(link.NamedCounters); ok {
			for k, v := range n.NamedCounters() {
				m[k] += v
			}
		}
		w, ok := l.(link.Wrapper)
		if !ok {
			return
		}
		l = w.Unwrap()
	}
}

// shardStats counts what a shard did. Octets are UDP payload.
type shardStats struct {
	sentPkts, sentBytes uint64
	rcvdPkts, rcvdBytes uint64 // proven and admitted to a queue pair
	txBursts, txSends   uint64
	rxDatagrams         uint64
	hairpin             uint64 // packets that did not leave the device
	sendErr             uint64 // segments that the system refused

	portRcvPkts, portRcvBytes uint64 // that the link gave, good or not

	linkDown uint64 // times that the link failed
	failed   bool   // the last look at it

	waited int64 // nanoseconds that something waited for the link
	since  int64 // when that was last added to; 0 while nothing waits

	cnpDelay   int64  // nanoseconds from mark to CNP
	cnpIgnored uint64 // of no queue pair, or from a stranger

	told qpTotals // what Counters said last
}

// linkState takes note of what a look at the link ended with, and reports
// whether it is an error to tell of.
func (a *shardStats) linkState(err error) (bad bool) {
	bad = err != nil && !errors.Is(err, link.ErrClosed)
	if bad && !a.failed {
		a.linkDown++
	}
	a.failed = bad
	return bad
}

// waitFor says at the end of a step whether the link was full. Only that is
// waiting for the link: what a window, a credit or a timer holds back is not
// offered to it.
func (a *shardStats) waitFor(now int64, full bool) {
	was := a.since
	a.since = 0
	if was != 0 {
		a.waited += max(0, now-was)
	}
	if full {
		a.since = max(now, was, 1)
	}
}

// moved changes when a packet comes or goes.
func (a *shardStats) moved() uint64 { return a.rcvdPkts + a.sentPkts + a.hairpin }

func (a *shardStats) add(b *shardStats) {
	a.sentPkts += b.sentPkts
	a.sentBytes += b.sentBytes
	a.rcvdPkts += b.rcvdPkts
	a.rcvdBytes += b.rcvdBytes
	a.txBursts += b.txBursts
	a.txSends += b.txSends
	a.rxDatagrams += b.rxDatagrams
	a.hairpin += b.hairpin
	a.sendErr += b.sendErr
	a.linkDown += b.linkDown
	a.portRcvPkts += b.portRcvPkts
	a.portRcvBytes += b.portRcvBytes
	a.waited += b.waited
	a.cnpDelay += b.cnpDelay
	a.cnpIgnored += b.cnpIgnored
}

func addLink(a *link.Stats, b link.Stats) {
	a.RxPackets += b.RxPackets
	a.RxBytes += b.RxBytes
	a.TxPackets += b.TxPackets
	a.TxBytes += b.TxBytes
	a.RxDropped += b.RxDropped
	a.RxInvalid += b.RxInvalid
	a.TxErrors += b.TxErrors
	a.TxShort += b.TxShort
}
