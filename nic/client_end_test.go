package nic

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// When a client's completion queue is destroyed nothing of the device looks at its
// memory any more, though a call has just put completions there and no step has told
// of them: the memory may be unmapped at once.
func TestNoStepTouchesDestroyedQueue(t *testing.T) {
	x, _ := pairWith(t, mem.Config{}, func(c *Config) { c.Manual = true })
	c, err := x.nic.Attach(1, verbs.NewRingBytes(verbs.BellBlockLen))
	require.NoError(t, err)
	for _, depth := range []int{8, 1} { // with room, and overflown
		ring := verbs.NewRingMem(depth)
		cq, err := c.CreateCQ(verbs.CQConfig{Depth: depth}, ring)
		require.NoError(t, err)
		pd, err := x.nic.AllocPD()
		require.NoError(t, err)
		req := verbs.QPReq{PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, Type: verbs.RC}
		sqLen, rqLen, err := QPRingBytes(&req)
		require.NoError(t, err)
		rq := verbs.NewRingBytes(rqLen)
		qp, _, err := c.CreateQP(req, verbs.NewRingBytes(sqLen), rq)
		require.NoError(t, err)

		queue, err := verbs.NewCompQueue(ring)
		require.NoError(t, err)
		queue.Arm(false)
		binary.LittleEndian.PutUint32(rq, uint32(3*verbs.RecvUnits(4))) // three requests without entries
		init := verbs.QPAttr{State: verbs.StateInit, Port: 1}
		require.NoError(t, x.nic.ModifyQP(qp.Handle, &init, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccess))
		require.NoError(t, x.nic.ModifyQP(qp.Handle, &verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		require.False(t, queue.Empty(), "nothing was flushed")
		require.NotEmpty(t, x.nic.shards[0].woken)

		require.NoError(t, x.nic.Destroy(verbs.KindQP, qp.Handle))
		require.NoError(t, x.nic.Destroy(verbs.KindCQ, cq.Handle))
		require.Empty(t, x.nic.shards[0].woken)
		require.Empty(t, x.nic.shards[0].lost)
		x.nic.Step(0, 1)
		require.Zero(t, queue.Notifications().Load(), "a step wrote into memory of a destroyed queue")
		require.NoError(t, x.nic.Destroy(verbs.KindPD, pd))
	}
	require.NoError(t, c.Detach())
}

// When a client has been detached its doorbells may be unmapped at once, whatever the
// background and callers are about: a look at them would end this process.
func TestNobodyTouchesDetachedDoorbells(t *testing.T) {
	x, _ := pairWith(t, mem.Config{}, nil)
	s := x.nic.shards[0]
	for id := range uint32(2000) { // so many that a look at all of them takes a while
		_, err := x.nic.Attach(2+id, verbs.NewRingBytes(verbs.BellBlockLen))
		require.NoError(t, err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // as calls for other clients do
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				s.tellAsleep(0)
				s.pending()
				runtime.Gosched()
			}
		}
	}()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		fd, bells, err := sys.NewShared("bells", sys.PageRound(verbs.BellBlockLen))
		require.NoError(t, err)
		sys.CloseFDs(fd)
		c, err := x.nic.Attach(1, bells)
		require.NoError(t, err)
		c.Wake(0)
		require.NoError(t, c.Detach())
		sys.Unmap(bells)
	}
	close(stop)
	<-stopped
	for s.looks.Load() > 0 { // the background's, which end
		runtime.Gosched()
	}
}

// When a completion queue overflows its queue pairs fail a few in each step, not all
// their requests at once: others' packets do not wait for that.
func TestOverflowInBites(t *testing.T) {
	x, _ := pairWith(t, mem.Config{}, func(c *Config) { c.Manual = true })
	cq, err := x.nic.CreateCQ(verbs.CQConfig{Depth: 4})
	require.NoError(t, err)
	pd, err := x.nic.AllocPD()
	require.NoError(t, err)
	const n, depth = 24, 1024
	req := verbs.QPReq{PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, Type: verbs.RC, Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxRecvSGE: 1}}
	var qps []verbs.Handle
	for range n {
		q, err := x.nic.CreateQP(req)
		require.NoError(t, err)
		binary.LittleEndian.PutUint32(q.RecvRing, depth)
		init := verbs.QPAttr{State: verbs.StateInit, Port: 1}
		require.NoError(t, x.nic.ModifyQP(q.Handle, &init, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccess))
		qps = append(qps, q.Handle)
	}
	failed := func() (k int) {
		for _, h := range qps {
			a, _, err := x.nic.QueryQP(h)
			require.NoError(t, err)
			if a.State == verbs.StateErr {
				k++
			}
		}
		return k
	}
	require.NoError(t, x.nic.ModifyQP(qps[0], &verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	for before, now := 1, int64(1); before < len(qps); now++ {
		deadline := x.nic.Step(0, now)
		k := failed()
		require.Greater(t, k, before, "a step without progress")
		require.LessOrEqual(t, (k-before)*2*depth, 2*(4096+2*depth), "more than a step's share")
		if k < len(qps) {
			require.Equal(t, now, deadline, "the rest waits for somebody to come by")
		}
		if before = k; now == 2 { // one goes meanwhile
			require.NoError(t, x.nic.Destroy(verbs.KindQP, qps[n-1]))
			qps = qps[:n-1]
		}
	}
	for _, h := range qps {
		require.NoError(t, x.nic.Destroy(verbs.KindQP, h))
	}
	require.NoError(t, x.nic.Destroy(verbs.KindCQ, cq.Handle))
}
