package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// shadowModel knows of every request what is to be in the program's memory.
type shadowModel struct {
	*shaded
	recvCQ *CQ
	next   int // the next free piece of 8 octets
	sends  []*modelled
	recvs  []*modelled
	byID   map[uint64]*modelled
	sentTo int // send requests that the NIC has ended
	tookTo int
	failed bool
	resets int
}

type modelled struct {
	id      uint64
	at, n   int // octets in the program's memory
	op      WROpcode
	out     bool   // it sends data, and receives none
	epoch   int    // resets before it
	came    []byte // what the NIC put into the shadow for it
	good    bool
	covered bool // a completion that covers it was polled
	dead    bool // forgotten by a reset
}

// TestShadowProperty: whatever is posted, completed and polled in whatever order,
// what a completion covers is in the program's memory when it is polled, and what
// failed never is.
func TestShadowProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 3, 20, 40}).Draw(rt, "limit")
		m := &shadowModel{shaded: shade(t, QPConfig{}), byID: map[uint64]*modelled{}}
		ctx := m.pd.ctx
		m.mem = make([]byte, 1<<14)
		var err error
		m.mr, err = m.pd.RegMRIOVA(m.mem, 1<<20, AccessLocalWrite)
		require.NoError(rt, err)
		m.sh = m.f.shadows[2]
		m.recvCQ, err = ctx.CreateCQ(CQConfig{Depth: 4096})
		require.NoError(rt, err)
		m.q, err = m.pd.CreateQP(QPConfig{SendCQ: m.cq, RecvCQ: m.recvCQ, Cap: QPCap{MaxSendWR: limit, MaxRecvWR: limit, MaxSendSGE: 2, MaxRecvSGE: 2}})
		require.NoError(rt, err)
		require.NoError(rt, m.q.Modify(&QPAttr{State: StateRTS}, AttrState))
		rt.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"post":    m.post,
			"recv":    m.recv,
			"finish":  m.finishNext,
			"arrive":  m.arriveNext,
			"poll":    m.pollSome,
			"reset":   m.reset,
			"arrive2": m.arriveNext,
			"finish2": m.finishNext,
		})
		m.reset(rt)
		m.check(rt)
		require.Zero(rt, m.q.sends.n)
		require.Len(rt, m.q.recvs.free, len(m.q.recvs.slots))
	})
}

// request makes one over one or two entries, if there is memory left.
func (m *shadowModel) request(t *rapid.T) (*modelled, []SGE) {
	if m.next+16 > len(m.mem) {
		t.Skip("no memory left")
	}
	r := &modelled{id: uint64(len(m.byID)), epoch: m.resets, at: m.next, n: rapid.IntRange(0, 16).Draw(t, "n")}
	cut := rapid.IntRange(0, r.n).Draw(t, "cut")
	m.next += 16
	return r, []SGE{m.sge(r.at, cut), m.sge(r.at+cut, r.n-cut)}
}

func (m *shadowModel) post(t *rapid.T) {
	r, sgl := m.request(t)
	r.op = rapid.SampledFrom([]WROpcode{WRRead, WRRead, WRSend, WRWrite}).Draw(t, "op")
	r.out = r.op != WRRead
	w := SendWR{ID: r.id, Opcode: r.op, SGL: sgl}
	if rapid.Bool().Draw(t, "signaled") {
		w.Flags = SendSignaled
	}
	if r.out {
		set(m.mem[r.at:r.at+r.n], byte(r.id)|1)
	}
	if _, err := m.q.PostSend([]SendWR{w}); err != nil {
		require.ErrorIs(t, err, ErrQueueFull)
		require.Equal(t, m.q.cap.MaxSendWR, len(m.sends)-m.sentTo)
		clear(m.mem[r.at : r.at+r.n])
		return
	}
	if r.out {
		require.Equal(t, m.mem[r.at:r.at+r.n], m.sh[r.at:r.at+r.n])
	}
	m.byID[r.id] = r
	m.sends = append(m.sends, r)
}

func (m *shadowModel) recv(t *rapid.T) {
	r, sgl := m.request(t)
	if _, err := m.q.PostRecv([]RecvWR{{ID: r.id, SGL: sgl}}); err != nil {
		require.ErrorIs(t, err, ErrQueueFull)
		return
	}
	m.byID[r.id] = r
	m.recvs = append(m.recvs, r)
}

// bring puts n octets for r into the shadow.
func (m *shadowModel) bring(r *modelled, n int) {
	r.came = octets(n)
	copy(m.sh[r.at:], r.came)
}

func (m *shadowModel) finishNext(t *rapid.T) {
	if m.sentTo == len(m.sends) {
		t.Skip("nothing posted")
	}
	r := m.sends[m.sentTo]
	m.sentTo++
	st := WCSuccess
	if m.failed || rapid.IntRange(0, 15).Draw(t, "fails") == 0 {
		st, m.failed = WCRemAccessErr, true
	}
	if r.good = st == WCSuccess; !r.out {
		m.bring(r, r.n) // in part, when it failed
	}
	m.finish(st)
}

func (m *shadowModel) arriveNext(t *rapid.T) {
	if m.tookTo == len(m.recvs) {
		t.Skip("nothing posted")
	}
	r := m.recvs[m.tookTo]
	m.tookTo++
	m.bring(r, rapid.IntRange(0, r.n).Draw(t, "arrives"))
	w := WC{QPN: m.q.QPN(), Opcode: WCRecv, ByteLen: uint32(len(r.came))}
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 0:
		w.Status = WCLocLenErr
	case 1:
		w.Opcode = WCRecvWriteImm
	default:
		r.good = true
	}
	m.take(m.f.rq).Name(&w)
	require.True(t, m.f.cqs[1].Push(&w))
}

func (m *shadowModel) pollSome(t *rapid.T) {
	wc := make([]WC, rapid.IntRange(1, 5).Draw(t, "room"))
	for _, cq := range []*CQ{m.cq, m.recvCQ} {
		for _, w := range wc[:cq.Poll(wc)] {
			r := m.byID[w.ID]
			if r.covered = true; w.Opcode&WCRecv != 0 {
				continue
			}
			for _, s := range m.sends {
				if s.id < r.id && s.epoch == r.epoch {
					s.covered = true
				}
			}
		}
	}
}

func (m *shadowModel) reset(t *rapid.T) {
	require.NoError(t, m.q.Modify(&QPAttr{State: StateReset}, AttrState))
	require.NoError(t, m.q.Modify(&QPAttr{State: StateRTS}, AttrState))
	for _, r := range m.sends[m.sentTo:] {
		r.dead = true
	}
	for _, r := range m.recvs[m.tookTo:] {
		r.dead = true
	}
	m.sentTo, m.tookTo, m.failed = len(m.sends), len(m.recvs), false
	m.resets++
}

func (m *shadowModel) check(t *rapid.T) {
	for _, r := range m.byID {
		if r.out {
			continue
		}
		got := m.mem[r.at : r.at+r.n]
		want := make([]byte, r.n)
		copy(want, r.came)
		switch none := make([]byte, r.n); {
		case r.good && r.covered && !r.dead:
			require.Equal(t, want, got, "request %d, %+v", r.id, r)
		case r.good: // what is not covered may be there already
			require.Contains(t, [][]byte{none, want}, got, "request %d, %+v", r.id, r)
		default:
			require.Equal(t, none, got, "request %d, %+v", r.id, r)
		}
	}
}
