package server_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// big is what the client has whose end is measured: 1000 queue pairs, some of them
// with all that fits posted, and 1000 regions, some of 64 MiB.
const (
	bigQPs   = 1000
	bigMRs   = 1000
	hugeMRs  = 8
	hugeSize = 64 << 20
)

// bigClient attaches and makes all that, without mapping what it need not. When the
// connection is closed all of it goes.
func bigClient(t testing.TB, s *site) net.Conn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.socket, Net: "unixpacket"})
	require.NoError(t, err)
	conn := control.NewConn(c)
	call := func(op control.Op, in, out any) []int {
		require.NoError(t, conn.Send(op, control.OK, 1, in, nil, 0))
		var m control.Message
		require.NoError(t, conn.Receive(&m))
		require.Equal(t, control.OK, m.Status, "%s", m.Body)
		if out != nil {
			_, err := control.Decode(m.Body, out)
			require.NoError(t, err)
		}
		return m.FDs
	}
	sys.CloseFDs(call(control.OpHello, &control.Hello{Magic: control.Magic, Major: control.VersionMajor}, nil)...)
	var pd control.HandleReply
	call(control.OpAllocPD, nil, &pd)
	var cq control.RingReply
	sys.CloseFDs(call(control.OpCreateCQ, &control.CreateCQReq{Depth: 4096}, &cq)...)
	for i := range bigMRs {
		n := uint64(16 << 10)
		if i < hugeMRs {
			n = hugeSize
		}
		sys.CloseFDs(call(control.OpRegMR, &control.RegMRReq{PD: pd.Handle, Len: n, Access: 15}, nil)...)
	}
	for range bigQPs {
		var qp control.CreateQPReply
		sys.CloseFDs(call(control.OpCreateQP, &control.CreateQPReq{PD: pd.Handle, SendCQ: cq.Handle, RecvCQ: cq.Handle, Type: 2}, &qp)...)
		for _, m := range []control.ModifyQPReq{
			{Mask: 0x39, Attr: control.QPAttr{State: 1, Port: 1, Access: 15}},
			{Mask: 0x129181, Attr: control.QPAttr{State: 2, PathMTU: 1024, DestQPN: 5, AV: control.AV{DGID: verbs.GIDOf(peerAddr)}}},
			{Mask: 0x12e01, Attr: control.QPAttr{State: 3, Timeout: 14, RetryCnt: 7, RNRRetry: 7}},
		} {
			m.Handle = qp.Handle
			call(control.OpModifyQP, &m, nil)
		}
	}
	return c
}

// times are durations, sorted.
type times []time.Duration

func (t times) at(part float64) float64 {
	if len(t) == 0 {
		return 0
	}
	return float64(t[min(len(t)-1, int(part*float64(len(t))))]) / 1e3
}

// BenchmarkTeardown has a client of 1000 queue pairs and 1000 regions, 8 of them of
// 64 MiB, end while a peer writes into another client's memory, and reports how long
// until each of those is acknowledged, in microseconds, meanwhile and for as long
// afterwards.
func BenchmarkTeardown(b *testing.B) {
	for range b.N {
		x := &arena{site: newSite(b, gorxe.PairConfig{}, server.Config{})}
		a := newEnd(b, x.attach(), verbs.RC, 1<<16)
		p := newEnd(b, x.peer, verbs.RC, 1<<16)
		connect(b, a, p, servedAddr, peerAddr)
		round := func() time.Duration {
			began := time.Now()
			p.send(verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{p.mr.SGE(0, 64)}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()})
			p.wait()
			return time.Since(began)
		}
		c := bigClient(b, x.site)
		run := func(until func() bool) (ts times) {
			for !until() {
				ts = append(ts, round())
			}
			slices.Sort(ts)
			return ts
		}
		began := time.Now()
		require.NoError(b, c.Close())
		during := run(func() bool { return x.server.Held()["clients"] == 1 })
		took := time.Since(began)
		again := time.Now()
		idle := run(func() bool { return time.Since(again) > took })
		b.ReportMetric(float64(took.Milliseconds()), "teardown-ms")
		for _, m := range []struct {
			name string
			ts   times
		}{{"during", during}, {"idle", idle}} {
			b.ReportMetric(m.ts.at(0.5), m.name+"-p50-us")
			b.ReportMetric(m.ts.at(0.99), m.name+"-p99-us")
			b.ReportMetric(m.ts.at(1), m.name+"-max-us")
		}
	}
}

// BenchmarkDestroy reports how long each call of a teardown takes, which is no less
// than it holds a lock: the longest, and of a hundred the longest but one.
func BenchmarkDestroy(b *testing.B) {
	for range b.N {
		ctx, peer := gorxe.NewPair(gorxe.PairConfig{})
		n := ctx.Provider().(*nic.NIC)
		pd, err := n.AllocPD()
		require.NoError(b, err)
		cq, err := n.CreateCQ(verbs.CQConfig{Depth: 4096})
		require.NoError(b, err)
		var qps, mrs []verbs.Handle
		for range bigQPs {
			q, err := n.CreateQP(verbs.QPReq{PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, Type: verbs.RC})
			require.NoError(b, err)
			qps = append(qps, q.Handle)
			a := verbs.QPAttr{State: verbs.StateInit, Port: 1}
			require.NoError(b, n.ModifyQP(q.Handle, &a, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccess))
		}
		var mems [][]byte
		for range bigMRs {
			size := 16 << 10
			if len(mems) < hugeMRs {
				size = hugeSize
			}
			fd, m, err := sys.NewShared("teardown", size)
			require.NoError(b, err)
			sys.CloseFDs(fd)
			r, err := n.RegMR(verbs.MRReq{PD: pd, Mem: m, Len: len(m)})
			require.NoError(b, err)
			mems, mrs = append(mems, m), append(mrs, r.Handle)
		}
		timed := func(name string, k int, f func(int)) {
			var ts times
			for i := range k {
				began := time.Now()
				f(i)
				ts = append(ts, time.Since(began))
			}
			slices.Sort(ts)
			b.ReportMetric(ts.at(0.99), name+"-p99-us")
			b.ReportMetric(ts.at(1), name+"-max-us")
		}
		timed("qp", bigQPs, func(i int) { require.NoError(b, n.Destroy(verbs.KindQP, qps[i])) })
		timed("mr", bigMRs, func(i int) { require.NoError(b, n.Destroy(verbs.KindMR, mrs[i])) })
		timed("barrier", 1000, func(int) { n.Barrier() })
		const step = 256 << 10
		timed("discard", hugeMRs*hugeSize/step, func(i int) {
			off := i % (hugeSize / step) * step
			require.NoError(b, sys.Discard(mems[i/(hugeSize/step)][off:off+step]))
		})
		timed("unmap", hugeMRs*hugeSize/step, func(i int) {
			off := i % (hugeSize / step) * step
			sys.Unmap(mems[i/(hugeSize/step)][off : off+step])
		})
		for _, m := range mems[hugeMRs:] {
			sys.Unmap(m)
		}
		require.NoError(b, ctx.Close())
		require.NoError(b, peer.Close())
	}
}
