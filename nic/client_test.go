package nic

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/verbs"
)

// attached is a device as one of its clients has it: a verbs.Provider whose rings
// and doorbells are shared, but with the test itself.
type attached struct {
	*NIC
	c      *Client
	blocks []*verbs.BellBlock
	bells  map[verbs.Handle]Bell
	wakes  int
}

func attach(t *testing.T, n *NIC, id uint32) *attached {
	t.Helper()
	mem := verbs.NewRingBytes(n.Shards() * verbs.BellBlockLen)
	blocks, ok := verbs.BellBlocks(mem, n.Shards())
	require.True(t, ok)
	c, err := n.Attach(id, mem)
	require.NoError(t, err)
	return &attached{NIC: n, c: c, blocks: blocks, bells: map[verbs.Handle]Bell{}}
}

func (a *attached) CreateCQ(cfg verbs.CQConfig) (verbs.CQInfo, error) {
	return a.c.CreateCQ(cfg, verbs.NewRingMem(cfg.Depth))
}

func (a *attached) CreateQP(r verbs.QPReq) (verbs.QPInfo, error) {
	sq, rq, err := QPRingBytes(&r)
	if err != nil {
		return verbs.QPInfo{}, err
	}
	info, bell, err := a.c.CreateQP(r, verbs.NewRingBytes(sq), verbs.NewRingBytes(rq))
	a.bells[info.Handle] = bell
	return info, err
}

func (a *attached) Doorbell(h verbs.Handle) {
	at := a.bells[h]
	b := a.blocks[at.Shard]
	b.Bells.Ring(at.Index)
	if b.Asleep.CompareAndSwap(1, 0) {
		a.wakes++
		a.c.Wake(at.Shard)
	}
}

func (a *attached) Progress(verbs.Handle) { time.Sleep(time.Microsecond) }

func (a *attached) WaitCQ(ctx context.Context, _ verbs.Handle, q *verbs.CompQueue, solicited bool) error {
	for seen := q.Notifications().Load(); q.Empty() && ctx.Err() == nil; {
		q.Arm(solicited)
		if q.Notifications().Load() != seen {
			break
		}
		time.Sleep(10 * time.Microsecond)
	}
	return ctx.Err()
}

// TestClient has two clients of one device talk to a program of its own at the other
// end, each over rings and doorbells of its own.
func TestClient(t *testing.T) {
	a, b := pair(t, 2)
	for i := range uint32(2) {
		p := attach(t, a.nic, i+1)
		x := *a
		x.ctx = verbs.NewContext(p)
		var err error
		x.pd, err = x.ctx.AllocPD()
		require.NoError(t, err)
		x.mr, err = x.pd.AllocMR(memLen, verbs.AccessAll)
		require.NoError(t, err)
		cq := x.newCQ(verbs.CQConfig{Depth: 64, Vector: int(i)})
		qa, qb := x.newQP(cq), b.newQP(b.cq)
		connect(t, &x, b, qa, qb)
		pattern(x.mr.Bytes(), int(i))
		post(t, qa, verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.mr.SGE(0, memLen)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		good(t, cq, 1)
		require.Equal(t, x.mr.Bytes(), b.mr.Bytes())

		require.ErrorIs(t, p.c.Detach(), ErrInUse)
		require.NoError(t, qa.Destroy())
		require.NoError(t, p.c.Detach())
		require.NoError(t, qb.Destroy())
	}
	assert.Empty(t, a.nic.others())
	_, err := a.nic.Attach(1, make([]byte, 100))
	require.Error(t, err, "too few doorbells")
}

// A doorbell that is not a client's own does nothing, and one that is rung all the
// time keeps nobody from its turn.
func TestClientForeignBell(t *testing.T) {
	l := newFakeLink()
	n, qp, _ := bulk(t, l, 1)
	other := attach(t, n, 2)
	for i := range uint32(verbs.MaxBells) {
		other.blocks[0].Bells.Ring(i)
	}
	require.True(t, n.shards[0].pending())
	qp[0].post(t)
	n.Step(0, 1)
	require.NotEmpty(t, l.out, "the client's own was seen in the same step")
	steps := 0
	for other.blocks[0].Bells.Rung() {
		n.Step(0, 2)
		steps++
	}
	require.Greater(t, steps, 1000, "a few in each step")
}

// sendingQP is a queue pair of UC that has much to send.
type sendingQP struct {
	qp   *verbs.QP
	mr   *verbs.MR
	dest bth.QPN
}

func (s *sendingQP) post(t *testing.T) {
	t.Helper()
	for range 3 {
		post(t, s.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{s.mr.SGE(0, memLen)}, RemoteAddr: 1, RKey: 1})
	}
}

// bulk opens a device on a link, which moves by Step, with clients that have a
// number of queue pairs each.
func bulk(t *testing.T, l link.Link, qps ...int) (n *NIC, out []*sendingQP, by map[bth.QPN]int) {
	t.Helper()
	addr := netip.MustParseAddr("2001:db8::1")
	n, err := Open(Config{Links: []link.Link{l}, GIDs: gidsOf(addr), Seed: 3, Manual: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	by = map[bth.QPN]int{}
	for i, k := range qps {
		ctx := verbs.NewContext(attach(t, n, uint32(i+1)))
		pd, err := ctx.AllocPD()
		require.NoError(t, err)
		mr, err := pd.AllocMR(memLen, verbs.AccessAll)
		require.NoError(t, err)
		cq, err := ctx.CreateCQ(verbs.CQConfig{Depth: 64})
		require.NoError(t, err)
		for range k {
			qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: cq, RecvCQ: cq})
			require.NoError(t, err)
			dest := bth.QPN(0x1000 + len(out))
			local, err := qp.Endpoint(netip.MustParseAddr("2001:db8::2"))
			require.NoError(t, err)
			remote := verbs.Endpoint{QPN: uint32(dest), GID: verbs.GIDOf(netip.MustParseAddr("2001:db8::2"))}
			require.NoError(t, qp.Connect(local, remote, verbs.ConnectOptions{}))
			out = append(out, &sendingQP{qp, mr, dest})
			by[dest] = i
		}
	}
	n.Step(0, 0)
	return n, out, by
}

// Two clients that send all they can get half of the link each, however many queue
// pairs they have.
func TestClientShares(t *testing.T) {
	l := newFakeLink()
	n, qps, by := bulk(t, l, 1, 7)
	for _, q := range qps {
		q.post(t)
	}
	sent := [2]int{}
	for now := int64(1); sent[0] < 600 && sent[1] < 600; now++ {
		l.out = l.out[:0]
		n.Step(0, now)
		require.NotEmpty(t, l.out)
		require.LessOrEqual(t, len(l.out), 2*15, "a step of a shared device sends little at a time")
		for i := range l.out {
			sent[by[l.out[i].DestQP]]++
		}
	}
	assert.InEpsilon(t, sent[0], sent[1], 0.06)
}
