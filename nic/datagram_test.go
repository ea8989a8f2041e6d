package nic

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const qkey = 0x11111111

// datagrams makes an active UD queue pair.
func (x *node) datagrams(cfg verbs.QPConfig) *verbs.QP {
	x.t.Helper()
	cfg.Type = verbs.UD
	if cfg.SendCQ == nil {
		cfg.SendCQ, cfg.RecvCQ = x.cq, x.cq
	}
	q, err := x.pd.CreateQP(cfg)
	require.NoError(x.t, err)
	require.NoError(x.t, q.Activate(verbs.DatagramOptions{QKey: qkey}))
	return q
}

func (x *node) ah(to netip.Addr) *verbs.AH {
	x.t.Helper()
	a, err := x.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(to), TrafficClass: 0x68, HopLimit: 9})
	require.NoError(x.t, err)
	return a
}

// TestDatagram: a datagram arrives with the IP header that the receiver needs
// to answer it, and the answer comes back.
func TestDatagram(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			a, b := pair(t, shards)
			qa, qb := a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
			recv(t, qa, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{a.mr.SGE(4096, 2048)}})
			recv(t, qb, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{b.mr.SGE(0, 39), b.mr.SGE(100, 1000)}})
			copy(a.mr.Bytes(), "hello")
			post(t, qa, verbs.SendWR{ID: 3, Opcode: verbs.WRSendImm, Flags: verbs.SendSignaled, Imm: 77, SGL: []verbs.SGE{a.mr.SGE(0, 5)}, AH: a.ah(b.addr).Handle(), RemoteQPN: qb.QPN(), RemoteQKey: qkey})
			good(t, a.cq, 1)
			wc := good(t, b.cq, 1)[0]
			require.Equal(t, verbs.WC{ID: 2, Opcode: verbs.WCRecv, Flags: verbs.WCGRH | verbs.WCWithImm, ByteLen: 45, Imm: 77, QPN: qb.QPN(), SrcQP: qa.QPN()}, wc)
			grh := append(append([]byte{}, b.mr.Bytes()[:39]...), b.mr.Bytes()[100])
			require.Equal(t, "hello", string(b.mr.Bytes()[101:106]))
			ip := wire.IPv4(grh[20:])
			require.True(t, ip.ChecksumOK())
			require.Equal(t, []any{a.addr.As4(), b.addr.As4(), uint8(0x68), uint8(9)}, []any{ip.Src(), ip.Dst(), ip.TOS(), ip.TTL()})
			av, err := b.ctx.AVFrom(&wc, grh)
			require.NoError(t, err)
			back, err := b.pd.CreateAH(av)
			require.NoError(t, err)
			post(t, qb, verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("back"), AH: back.Handle(), RemoteQPN: wc.SrcQP, RemoteQKey: 1<<31 | 5})
			wc = good(t, a.cq, 1)[0]
			require.EqualValues(t, 44, wc.ByteLen)
			require.Equal(t, "back", string(a.mr.Bytes()[4096+40:][:4]))
		})
	}
}

// TestMulticast: one sending reaches every queue pair attached, here and at the
// other device, each once, and not the sender.
func TestMulticast(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			a, b := pairWith(t, mem.Config{Shards: shards}, nil)
			group := netip.MustParseAddr("239.1.2.3")
			var qs []*verbs.QP
			var cqs []*verbs.CQ
			for _, x := range []*node{a, b} {
				for i := range 4 {
					cq := x.newCQ(verbs.CQConfig{Vector: i % shards})
					q := x.datagrams(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
					require.NoError(t, q.AttachMulticast(verbs.GIDOf(group)))
					room := []verbs.SGE{x.mr.SGE(i*100, 100)} // shards write at the same time
					recv(t, q, verbs.RecvWR{SGL: room}, verbs.RecvWR{SGL: room})
					qs, cqs = append(qs, q), append(cqs, cq)
				}
			}
			ah := a.ah(group)
			post(t, qs[0], verbs.SendWR{ID: 9, Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("all"), AH: ah.Handle(), RemoteQPN: 0xffffff, RemoteQKey: qkey})
			for i, cq := range cqs {
				wc := good(t, cq, 1)
				require.Len(t, wc, 1)
				if i == 0 {
					require.EqualValues(t, 9, wc[0].ID, "the sender got its own")
				} else {
					require.Equal(t, qs[0].QPN(), wc[0].SrcQP)
					require.EqualValues(t, 43, wc[0].ByteLen)
				}
			}
			for _, q := range qs[1:] {
				require.NoError(t, q.DetachMulticast(verbs.GIDOf(group)))
			}
			require.NoError(t, qs[0].Destroy())
			require.Empty(t, a.nic.groupsNow())
			require.Error(t, qs[1].DetachMulticast(verbs.GIDOf(group)))
			require.Error(t, qs[1].AttachMulticast(verbs.GIDOf(a.addr)))
		})
	}
}

// TestSharedReceive: queue pairs of several shards take from one queue, and its
// limit is told of once.
func TestSharedReceive(t *testing.T) {
	a, b := pair(t, 2)
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 16, MaxSGE: 1})
	require.NoError(t, err)
	for i := range 16 {
		n, err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(64*i, 64)}}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	_, err = srq.PostRecv(make([]verbs.RecvWR, 1))
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.NoError(t, srq.SetLimit(10))
	var qs []*verbs.QP
	for i := range 4 {
		cq := b.newCQ(verbs.CQConfig{Vector: i % 2})
		q, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: b.cq, SRQ: srq})
		require.NoError(t, err)
		_, err = q.PostRecv(make([]verbs.RecvWR, 1))
		require.ErrorContains(t, err, "shared receive queue")
		qa := a.newQP(a.cq)
		connect(t, a, b, qa, q)
		qs = append(qs, qa)
	}
	for _, q := range qs {
		post(t, q, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("x")}, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("y")})
	}
	seen := map[uint64]bool{}
	for _, w := range good(t, b.cq, 8) {
		seen[w.ID] = true
	}
	require.Len(t, seen, 8)
	ev := <-b.ctx.Events()
	require.Equal(t, verbs.EventSRQLimit, ev.Type)
	require.Equal(t, srq.Handle(), ev.SRQ)
	limit, err := srq.Limit()
	require.NoError(t, err)
	require.Zero(t, limit)
	require.ErrorIs(t, srq.Destroy(), ErrInUse)
}

// TestUnreliableConnection: SEND and WRITE of several packets.
func TestUnreliableConnection(t *testing.T) {
	a, b := pair(t, 1)
	qa, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	qb, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: b.cq, RecvCQ: b.cq})
	require.NoError(t, err)
	connect(t, a, b, qa, qb)
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i * 7)
	}
	recv(t, qb, verbs.RecvWR{ID: 5, SGL: []verbs.SGE{b.mr.SGE(0, 100000)}}, verbs.RecvWR{ID: 6})
	post(t, qa,
		verbs.SendWR{ID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(3, 50001)}},
		verbs.SendWR{ID: 2, Opcode: verbs.WRWriteImm, Flags: verbs.SendSignaled, Imm: 8, SGL: []verbs.SGE{a.mr.SGE(0, 200000)}, RemoteAddr: b.mr.Addr() + 200000, RKey: b.mr.RKey()},
	)
	good(t, a.cq, 2)
	wc := good(t, b.cq, 2)
	require.EqualValues(t, 50001, wc[0].ByteLen)
	require.Equal(t, []any{uint64(6), verbs.WCRecvWriteImm, uint32(200000), uint32(8)}, []any{wc[1].ID, wc[1].Opcode, wc[1].ByteLen, wc[1].Imm})
	require.Equal(t, a.mr.Bytes()[3:50004], b.mr.Bytes()[:50001])
	require.Equal(t, a.mr.Bytes()[:200000], b.mr.Bytes()[200000:400000])
}
