package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// refusal is a way for a connection to fail: a program does what is wrong, and
// both sides must be told the right reason.
type refusal struct {
	sight
	options func(requester, responder *verbs.ConnectOptions)
	// bad makes the request that is to fail of a WRITE of 8 octets that would
	// not.
	bad      func(r *refused, w *verbs.SendWR)
	receive  func(r *refused) []verbs.SGE // that the request meets; nil for none
	more     int                          // times the bad request is posted besides
	status   verbs.WCStatus               // of the request
	received verbs.WCStatus               // of the receive request, or 0
	reason   trace.Reason                 // at the responder, or at the requester when that gives up
	event    verbs.EventType              // at the responder, or 0
	tries    int                          // sendings after which the requester gives up, or 0
	gone     bool                         // the responder is in ERR from the first
}

func send(n int) func(*refused, *verbs.SendWR) {
	return func(r *refused, w *verbs.SendWR) {
		*w = verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{r.local.SGE(0, n)}}
	}
}

func bufferOf(n int) func(*refused) []verbs.SGE {
	return func(r *refused) []verbs.SGE { return []verbs.SGE{r.sink.SGE(0, n)} }
}

const refusedLen = 4096 // octets of each region

var refusals = []refusal{
	{
		sight: sight{"access-event", "WRITE with a wrong key"}, bad: func(_ *refused, w *verbs.SendWR) { w.RKey ^= 0x100 },
		status: verbs.WCRemAccessErr, reason: trace.FailAccess, event: verbs.EventQPAccessErr,
	},
	{
		sight: sight{"error-class", "READ beyond a region's end"}, bad: func(_ *refused, w *verbs.SendWR) { w.Opcode, w.RemoteAddr = verbs.WRRead, w.RemoteAddr+refusedLen-7 },
		status: verbs.WCRemAccessErr, reason: trace.FailAccess, event: verbs.EventQPAccessErr,
	},
	{
		sight: sight{"address-wrap", "WRITE whose address wraps"}, bad: func(_ *refused, w *verbs.SendWR) { w.RemoteAddr = math.MaxUint64 - 6 },
		status: verbs.WCRemAccessErr, reason: trace.FailAccess, event: verbs.EventQPAccessErr,
	},
	{
		sight: sight{"error-class", "WRITE to a region that may only be read"}, bad: func(r *refused, w *verbs.SendWR) { w.RKey, w.RemoteAddr = r.sealed.RKey(), r.sealed.Addr() },
		status: verbs.WCRemAccessErr, reason: trace.FailAccess, event: verbs.EventQPAccessErr,
	},
	{
		sight: sight{"qp-access", "READ that the queue pair's access flags forbid"}, bad: func(_ *refused, w *verbs.SendWR) { w.Opcode = verbs.WRRead },
		options: func(_, b *verbs.ConnectOptions) { b.Access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite },
		status:  verbs.WCRemInvReqErr, reason: trace.FailQPAccess, event: verbs.EventQPReqErr,
	},
	{
		sight: sight{"too-many-reads", "more READs than max_dest_rd_atomic"}, bad: func(_ *refused, w *verbs.SendWR) { w.Opcode = verbs.WRRead }, more: 7, // those that a paced restart sends apart leave four together
		options: func(a, b *verbs.ConnectOptions) { a.MaxRdAtomic, b.MaxDestRdAtomic = 8, 3 },
		status:  verbs.WCRemInvReqErr, reason: trace.FailTooManyReads, event: verbs.EventQPReqErr,
	},
	{
		sight: sight{"requester-status", "an atomic that is not at a multiple of 8"}, bad: func(_ *refused, w *verbs.SendWR) { w.Opcode, w.RemoteAddr = verbs.WRFetchAdd, w.RemoteAddr+4 },
		status: verbs.WCRemInvReqErr, reason: trace.FailReqLength, event: verbs.EventQPReqErr,
	},
	{
		sight: sight{"recv-too-short", "SEND longer than the receive request"}, bad: send(2000), receive: bufferOf(1999),
		status: verbs.WCRemInvReqErr, received: verbs.WCLocLenErr, reason: trace.FailLocalLen, event: verbs.EventQPReqErr,
	},
	{
		sight: sight{"recv-local-error", "a receive request with a wrong key"}, bad: send(8),
		receive: func(r *refused) []verbs.SGE {
			return []verbs.SGE{{Addr: r.sink.Addr(), Length: 100, LKey: r.sink.LKey() ^ 0x100}}
		},
		status: verbs.WCRemOpErr, received: verbs.WCLocProtErr, reason: trace.FailLocalProt, event: verbs.EventQPFatal,
	},
	{
		sight: sight{"rnr-retry", "no receive request comes"}, bad: send(8), tries: 4,
		options: func(a, _ *verbs.ConnectOptions) { a.RNRRetry = 3 },
		status:  verbs.WCRNRRetryExcErr, reason: trace.FailRNRExceeded,
	},
	{
		sight: sight{"retry-count", "the responder is gone"}, bad: func(*refused, *verbs.SendWR) {}, tries: 3, gone: true,
		options: func(a, _ *verbs.ConnectOptions) { a.RetryCnt = 2 },
		status:  verbs.WCRetryExcErr, reason: trace.FailRetryExceeded,
	},
}

// Requests of a connection that is to fail: good ones, bad ones, and some more.
const (
	goodOnes = 3
	lateOnes = 2
)

// refused is a connection that fails as it is to.
type refused struct {
	refusal
	w      *world
	a, b   *host
	cq     *verbs.CQ // requester's
	rcq    *verbs.CQ
	qa, qb *verbs.QP
	local  *verbs.MR
	remote *verbs.MR
	sealed *verbs.MR // may be read only
	sink   *verbs.MR // for receives
	before []byte    // of remote, as it must be in the end
	got    []verbs.WC
	recvs  []verbs.WC
	naks   []bth.Syndrome // that reached the requester, but sequence NAKs
	psn    bth.PSN        // first
	tried  int            // times the first packet reached the responder
	good   int
}

// refuse makes a connection that is to fail, and starts it.
func refuse(w *world, kind refusal, a, b *host) {
	psn := bth.MakePSN(0xfffff0 + w.rng.Uint32N(16))
	p := w.plan(psn, 1)
	if p.left() == 0 {
		return
	}
	x, rng := p.next()
	p.post(x, 0, 1<<20, kind.what)
	r := &refused{refusal: kind, w: w, a: a, b: b, good: goodOnes}
	if r.gone {
		r.good = 0
	}
	var err error
	check := func() { require.NoError(w.t, err) }
	r.cq, err = a.node.Ctx.CreateCQ(verbs.CQConfig{})
	check()
	r.rcq, err = b.node.Ctx.CreateCQ(verbs.CQConfig{})
	check()
	r.qa, err = a.pd.CreateQP(verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq})
	check()
	r.qb, err = b.pd.CreateQP(verbs.QPConfig{SendCQ: r.rcq, RecvCQ: r.rcq})
	check()
	mr := func(h *host, access verbs.Access) *verbs.MR {
		m, err := h.pd.AllocMR(refusedLen, access)
		require.NoError(w.t, err)
		fillRandom(rng, m.Bytes())
		return m
	}
	r.local, r.remote, r.sink = mr(a, verbs.AccessLocalWrite), mr(b, verbs.AccessAll), mr(b, verbs.AccessLocalWrite)
	r.sealed = mr(b, verbs.AccessRemoteRead)
	r.before = append(append(r.before, r.remote.Bytes()...), r.sealed.Bytes()...)

	oa, ob := verbs.DefaultConnectOptions(), verbs.DefaultConnectOptions()
	oa.PathMTU, ob.PathMTU = 256, 256
	if r.options != nil {
		r.options(&oa, &ob)
	}
	c := Conn{PSN: psn.Uint32()}
	r.psn = psn
	w.carries(p, bth.QPN(r.qb.QPN()), bth.QPN(r.qa.QPN()))
	ea, err := endpoint(a.node, r.qa, &c)
	check()
	eb, err := endpoint(b.node, r.qb, &c)
	check()
	require.NoError(w.t, r.qa.Connect(ea, eb, oa))
	require.NoError(w.t, r.qb.Connect(eb, ea, ob))
	if r.event != 0 {
		b.failed[r.qb.QPN()] = r.event
	}
	w.refuses = true
	w.ends = append(w.ends, r)
	w.see(a.node, r.qa, func(_ Packet, h *bth.Packet) {
		if k := h.Syndrome.Kind(); h.Info().Op == bth.OpAck && k != bth.KindAck && h.Syndrome != bth.NAKSequence {
			r.naks = append(r.naks, h.Syndrome)
		}
	})
	w.see(b.node, r.qb, func(_ Packet, h *bth.Packet) { r.tried += btoi(h.PSN == r.psn) })
	w.s.After(time.Duration(rng.IntN(1000))*time.Microsecond, r.start)
}

func (r *refused) start() {
	if r.receive != nil {
		_, err := r.qb.PostRecv([]verbs.RecvWR{{ID: 1, SGL: r.receive(r)}, {ID: 2}})
		require.NoError(r.w.t, err)
	}
	if r.gone {
		require.NoError(r.w.t, r.qb.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	}
	for i := range r.good + 1 + r.more + lateOnes {
		at := 8 * i
		wr := verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{r.local.SGE(at, 8)}, RemoteAddr: r.remote.Addr() + uint64(at), RKey: r.remote.RKey()}
		switch {
		case i < r.good:
			copy(r.before[at:], r.local.Bytes()[at:at+8])
		case i <= r.good+r.more:
			r.bad(r, &wr)
		}
		wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
		_, err := r.qa.PostSend([]verbs.SendWR{wr})
		require.NoError(r.w.t, err)
	}
}

func (r *refused) work() {
	var wc [16]verbs.WC
	for n := r.cq.Poll(wc[:]); n > 0; n = r.cq.Poll(wc[:]) {
		r.got = append(r.got, wc[:n]...)
	}
	for n := r.rcq.Poll(wc[:]); n > 0; n = r.rcq.Poll(wc[:]) {
		r.recvs = append(r.recvs, wc[:n]...)
	}
}

func (r *refused) finished() bool { return len(r.got) >= r.good+1+r.more+lateOnes }

// verify: the good requests are done, the first that is not has the status of
// its error, the rest are flushed, each once and in order; and so at the
// responder, whose memory is untouched by what it refused.
func (r *refused) verify() {
	t := r.w.t
	failed := -1
	for i, c := range r.got {
		require.EqualValues(t, i, c.ID, r.what)
		switch {
		case failed >= 0:
			require.Equal(t, verbs.WCWRFlushErr, c.Status, r.what)
		case c.Status != verbs.WCSuccess:
			failed = i
			require.Equal(t, r.status, c.Status, "%s: request %d", r.what, i)
		}
	}
	require.GreaterOrEqual(t, failed, r.good, r.what)
	require.LessOrEqual(t, failed, r.good+r.more, r.what)
	require.Len(t, r.got, r.good+1+r.more+lateOnes, r.what)
	require.Equal(t, r.before, append(append([]byte{}, r.remote.Bytes()...), r.sealed.Bytes()...), "memory: %s", r.what)

	q := r.qb
	if r.tries > 0 {
		q = r.qa
	}
	s, err := q.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 1, s[r.reason.String()], "%s: %v", r.what, r.reason)
	for _, q := range []*verbs.QP{r.qa, r.qb} {
		a, err := q.Query()
		require.NoError(t, err)
		if q == r.qa || r.tries == 0 {
			require.Equal(t, verbs.StateErr, a.State, r.what)
			r.w.note(seenFlush, true)
		}
	}
	require.NotContains(t, r.b.failed, r.qb.QPN(), "%s: no %v", r.what, r.event)
	if r.receive != nil {
		require.Len(t, r.recvs, 2, r.what)
		require.Equal(t, r.received, r.recvs[0].Status, r.what)
		require.Equal(t, verbs.WCWRFlushErr, r.recvs[1].Status, r.what)
	}
	want := map[verbs.WCStatus]bth.Syndrome{
		verbs.WCRemInvReqErr: bth.NAKInvalidRequest, verbs.WCRemAccessErr: bth.NAKRemoteAccess, verbs.WCRemOpErr: bth.NAKRemoteOperational,
	}[r.status]
	seen, n := map[bth.Syndrome]sight{bth.NAKInvalidRequest: seenInvalid, bth.NAKRemoteAccess: seenAccess, bth.NAKRemoteOperational: seenOperational}[want], len(r.naks)
	switch {
	case r.gone:
		require.Empty(t, r.naks, r.what)
		n = r.tried
	case r.tries > 0:
		want, seen = bth.RNRNAK(12), seenRNR
		fallthrough
	default:
		require.NotEmpty(t, r.naks, r.what)
	}
	for _, s := range r.naks {
		require.Equal(t, want, s, r.what)
		r.w.note(seen, true)
	}
	if r.w.s.cfg.Faults == "" {
		require.Equal(t, max(1, r.tries), n, "%s: NAKs, or sendings", r.what)
	}
	r.w.note(r.sight, true)
}

func (r *refused) supply() {}

func (r *refused) empty() {}

func (r *refused) String() string {
	return fmt.Sprintf("RC QP %#x, %s: %d completions", r.qa.QPN(), r.what, len(r.got))
}

// TestRefused: over any network that does not lose the one NAK there is, a
// connection whose program breaks a rule fails for the right reason on both
// sides.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"clean", Config{}},
		{"slow", Config{Latency: 100 * time.Microsecond}},
		{"drop", Config{Faults: "tx drop 5% opcode=RC_WRITE_*; tx drop 5% opcode=RC_SEND_*"}},
		{"dup", Config{Faults: "tx dup 10%"}},
		{"hidden", Config{Single: true, HideIDs: true}},
	} {
		seeds(t, c.name, c.cfg, func(w *world) {
			for i, kind := range refusals {
				refuse(w, kind, w.hosts[i%2], w.hosts[1-i%2])
			}
		})
	}
}
