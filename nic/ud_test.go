package nic

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// to returns a signaled datagram of some octets to a queue pair at an address.
func (x *node) to(id uint64, a *verbs.AH, qpn uint32, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.mr.SGE(0, n)}, AH: a.Handle(), RemoteQPN: qpn, RemoteQKey: qkey}
}

// polled returns the IDs of what completed well, as text.
func (b *bench) polled(cq *verbs.CQ) string {
	b.t.Helper()
	var wc [64]verbs.WC
	var ids []uint64
	for _, w := range wc[:cq.Poll(wc[:])] {
		require.NoError(b.t, w.Err())
		ids = append(ids, w.ID)
	}
	return fmt.Sprint(ids)
}

// TestMixedDestinations: a queue pair that sends to a peer and to this device
// in turn keeps its order, also when the link takes nothing for a while: no
// request completes before it left, and each is sent once.
func TestMixedDestinations(t *testing.T) {
	b := newBench(t, 1, nil)
	rcq := b.newCQ(verbs.CQConfig{})
	q, to := b.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{SendCQ: b.cq, RecvCQ: rcq})
	b.step()
	for i := range 8 {
		recv(t, to, verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(4096, 2048)}})
	}
	out, own := b.ah(there), b.ah(here)
	wrs := []verbs.SendWR{b.to(0, out, 5, 1000), b.to(1, own, to.QPN(), 100), b.to(2, out, 5, 1000), b.to(3, own, to.QPN(), 100), b.to(4, own, to.QPN(), 50)}
	b.links[0].room = 0
	post(t, q, wrs...)
	b.step()
	require.Equal(t, "[]", b.polled(b.cq), "completed before it left")
	require.Equal(t, "[]", b.polled(rcq), "overtaken")
	b.links[0].room = 1
	b.step()
	require.Equal(t, "[0 1]", b.polled(b.cq))
	b.links[0].room = -1
	b.step()
	require.Equal(t, "[2 3 4]", b.polled(b.cq))
	require.Equal(t, "[0 1 2]", b.polled(rcq))
	out2 := b.links[0].took()
	require.Len(t, out2, 2)
	require.Equal(t, 2, out2[1].PSN.Diff(out2[0].PSN))
	post(t, q, wrs...)
	b.step()
	require.Equal(t, "[0 1 2 3 4]", b.polled(b.cq))
	require.Equal(t, "[3 4 5]", b.polled(rcq))
	st, err := q.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 10, st["rdma_sends"])
	require.EqualValues(t, 10, st["sent_requests"])
}

// toUD is a datagram from the peer to a queue pair; a test changes what it
// wants to be wrong.
func toUD(q *verbs.QP) bth.Packet {
	return bth.Packet{Opcode: bth.UDSendOnly, MigReq: true, PKey: 0xffff, DestQP: bth.QPN(q.QPN()), PSN: bth.MakePSN(5), QKey: qkey, SrcQP: peerQPN}
}

var group = netip.MustParseAddr("239.1.2.3")

// from seals a packet as one from and to some addresses.
func (b *bench) from(src, dst netip.Addr, p bth.Packet, payload int) wire.Datagram {
	return sealed(src, dst, payload, p.Info().HdrLen, func(h []byte) { p.Pad = uint8(-payload & 3); p.PutHeaders(h) })
}

// TestDatagramDrops provokes every reason for which the NIC drops a datagram,
// unicast or multicast: exactly that one is counted, and the same datagram put
// right afterwards is taken. A queue pair that is attached to the group and one
// that is not stand by.
func TestDatagramDrops(t *testing.T) {
	stranger := netip.MustParseAddr("239.9.9.9")
	type make func(b *bench, q *verbs.QP) wire.Datagram
	plain := func(change func(p *bth.Packet)) make {
		return func(b *bench, q *verbs.QP) wire.Datagram {
			p := toUD(q)
			change(&p)
			return b.from(there, here, p, 8)
		}
	}
	multi := func(src, dst netip.Addr, change func(p *bth.Packet)) make {
		return func(b *bench, q *verbs.QP) wire.Datagram {
			p := toUD(q)
			p.DestQP = bth.QPNMulticast
			change(&p)
			return b.from(src, dst, p, 8)
		}
	}
	same := func(*bth.Packet) {}
	for _, c := range []struct {
		name  string
		want  trace.Reason
		known bool // counted for the queue pair
		make  make
	}{
		{"Q_Key", trace.DropQKey, true, plain(func(p *bth.Packet) { p.QKey ^= 1 << 30 })},
		{"Q_Key with the high bit", trace.DropQKey, true, plain(func(p *bth.Packet) { p.QKey |= 1 << 31 })},
		{"partition", trace.DropPKey, true, plain(func(p *bth.Packet) { p.PKey = 0x8001 })},
		{"partition before Q_Key", trace.DropPKey, true, plain(func(p *bth.Packet) { p.PKey, p.QKey = 0x7ffe, 1 })},
		{"RC", trace.DropClass, true, plain(func(p *bth.Packet) { p.Opcode = bth.RCSendOnly })},
		{"UC", trace.DropClass, true, plain(func(p *bth.Packet) { p.Opcode = 0x24 })},
		{"CNP", trace.DropCNP, true, func(b *bench, q *verbs.QP) wire.Datagram {
			return sealed(there, here, 0, bth.BTHLen+bth.CNPReserved, func(h []byte) {
				p := toUD(q)
				p.PutHeaders(h)
				h[0] = byte(bth.CNP)
			})
		}},
		{"longer than the active MTU", trace.DropLength, true, func(b *bench, q *verbs.QP) wire.Datagram { return b.from(there, here, toUD(q), 4100) }},
		{"broadcast", trace.DropAddress, true, func(b *bench, q *verbs.QP) wire.Datagram {
			return b.from(there, netip.MustParseAddr("192.0.2.255"), toUD(q), 8)
		}},
		{"multicast number, unicast address", trace.DropAddress, false, plain(func(p *bth.Packet) { p.DestQP = bth.QPNMulticast })},
		{"multicast address, unicast number", trace.DropAddress, false, func(b *bench, q *verbs.QP) wire.Datagram { return b.from(there, group, toUD(q), 8) }},
		{"multicast, nobody there", trace.DropGroup, false, multi(there, stranger, same)},
		{"multicast, our own come back", trace.DropLoopback, false, multi(here, group, same)},
		{"multicast, Q_Key", trace.DropQKey, true, multi(there, group, func(p *bth.Packet) { p.QKey++ })},
		{"multicast, partition", trace.DropPKey, true, multi(there, group, func(p *bth.Packet) { p.PKey = 0 })},
		{"multicast, RC", trace.DropClass, true, multi(there, group, func(p *bth.Packet) { p.Opcode = bth.RCSendOnly })},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, q := newGroupBench(t, 1)
			b.datagrams(verbs.QPConfig{})
			recv(t, q, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 2000)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{b.mr.SGE(0, 2000)}})
			b.step()
			before := b.counts()
			b.links[0].arrive(c.make(b, q))
			b.step()
			after := b.counts()
			for r := range after {
				want := before[r]
				if trace.Reason(r) == c.want {
					want++
				}
				require.Equal(t, want, after[r], trace.Reason(r).String())
			}
			verdict := c.want
			if c.want == trace.DropLength {
				verdict = trace.None // the engine's, not the NIC's
			}
			require.Equal(t, []trace.Reason{verdict}, b.links[0].verdicts)
			st, err := q.Stats()
			require.NoError(t, err)
			require.Equal(t, c.known, st[c.want.String()] == 1)
			require.Equal(t, "[]", b.polled(b.cq))

			good := toUD(q)
			b.links[0].arrive(b.from(there, here, good, 8))
			good.DestQP = bth.QPNMulticast
			b.links[0].arrive(b.from(there, group, good, 8))
			b.step()
			require.Equal(t, "[1 2]", b.polled(b.cq))
			require.Empty(t, b.links[0].took(), "answered")
		})
	}
}

// TestDatagramStrays: a merged run with datagrams for queue pairs of several
// shards: each gets its own, with its own GRH.
func TestDatagramStrays(t *testing.T) {
	b := newBench(t, 2, nil)
	cq1 := b.newCQ(verbs.CQConfig{Vector: 1})
	qs := []*verbs.QP{b.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{SendCQ: cq1, RecvCQ: cq1})}
	for _, q := range qs {
		for i := range 3 {
			recv(t, q, verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(int(q.QPN()&1)*4096+i*100, 100)}})
		}
	}
	b.step()
	f := &wire.Flow{Src: there, Dst: here, SrcPort: 0xc000, TTL: 7, TOS: 0x20}
	w := wire.NewBurst()
	w.Reset(f, 0, 0)
	for i := range 6 {
		p := toUD(qs[i%2])
		p.PSN, p.SrcQP = bth.MakePSN(uint32(i)), bth.QPN(100+i)
		p.PutHeaders(w.Begin(p.PSN, p.Opcode, p.Info().HdrLen, 8))
		w.Copy(8)[0] = byte(i)
		w.End()
	}
	w.Seal(wire.IDCount)
	d := wire.Datagram{Src: there, Dst: here, SrcPort: 0xc000, TTL: 7, TOS: 0x20, IDKnown: true, Flags: wire.FlagDF, SegLen: w.SegLen()}
	for i := range 6 {
		d.Payload = w.AppendSegment(d.Payload, i)
	}
	b.links[0].arrive(d)
	b.step()
	for k, cq := range []*verbs.CQ{b.cq, cq1} {
		var wc [9]verbs.WC
		require.Equal(t, 3, cq.Poll(wc[:]))
		for i := range 3 {
			n := 2*i + k
			require.EqualValues(t, 100+n, wc[i].SrcQP)
			buf := b.mr.Bytes()[k*4096+i*100:]
			require.EqualValues(t, n, buf[40])
			h := wire.IPv4(buf[20:40])
			require.True(t, h.ChecksumOK())
			require.Equal(t, []any{uint16(n), uint8(7), uint8(0x20), uint16(wire.FlagDF), 28 + w.SegLen()}, []any{h.ID(), h.TTL(), h.TOS(), h.FlagsOffset(), h.TotalLen()})
		}
	}
	require.EqualValues(t, 3, b.counts()[trace.DropStray])
	require.Equal(t, []trace.Reason{0, trace.DropStray, 0, trace.DropStray, 0, trace.DropStray}, b.links[0].verdicts)
}

// TestDatagramToSelf: a queue pair may send to itself.
func TestDatagramToSelf(t *testing.T) {
	b := newBench(t, 1, nil)
	q := b.datagrams(verbs.QPConfig{})
	recv(t, q, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(4096, 100)}})
	copy(b.mr.Bytes(), "self")
	post(t, q, b.to(2, b.ah(here), q.QPN(), 4))
	b.step()
	require.Equal(t, "[2 1]", b.polled(b.cq))
	require.Equal(t, "self", string(b.mr.Bytes()[4136:4140]))
	require.Empty(t, b.links[0].took())
	require.EqualValues(t, 1, counter(t, b.node, "hairpin_pkts"))
	av, err := b.ctx.AVFrom(&verbs.WC{Flags: verbs.WCGRH}, b.mr.Bytes()[4096:])
	require.NoError(t, err)
	require.Equal(t, verbs.AV{DGID: verbs.GIDOf(here), TrafficClass: 0x68}, av)
}

// TestAVFrom answers datagrams of both families, and of groups.
func TestAVFrom(t *testing.T) {
	six, peer6 := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::1")
	local6, peerLocal6 := netip.MustParseAddr("fe80::2"), netip.MustParseAddr("fe80::1")
	b := newBench(t, 1, func(c *Config) { c.GIDs = gidsOf(local6, here, six) })
	ok := verbs.WC{Flags: verbs.WCGRH}
	for _, c := range []struct {
		src, dst netip.Addr
		want     int // GID index
	}{
		{there, here, 1},
		{there, group, 1},
		{peer6, six, 2},
		{peer6, netip.MustParseAddr("ff0e::1"), 2},
		{peerLocal6, local6, 0},
		{peerLocal6, netip.MustParseAddr("ff02::1"), 0},
	} {
		d := wire.Datagram{Src: c.src, Dst: c.dst, TOS: 0x6b, TTL: 3, FlowLabel: 0x12345}
		var grh [verbs.GRHLen]byte
		d.PutGRH(&grh, 100)
		av, err := b.ctx.AVFrom(&ok, grh[:])
		require.NoError(t, err)
		want := verbs.AV{DGID: verbs.GIDOf(c.src), SGIDIndex: c.want, TrafficClass: 0x68}
		if c.src.Is6() {
			want.FlowLabel = 0x12345
		}
		require.Equal(t, want, av)
		_, err = b.pd.CreateAH(av)
		require.NoError(t, err)
		_, err = b.ctx.AVFrom(&ok, grh[:39])
		require.ErrorContains(t, err, "shorter")
		_, err = b.ctx.AVFrom(&verbs.WC{}, grh[:])
		require.ErrorContains(t, err, "not of a UD receive")
	}
	var grh [verbs.GRHLen]byte
	_, err := b.ctx.AVFrom(&ok, grh[:])
	require.ErrorContains(t, err, "neither an IPv6 nor an IPv4 header")
	d := wire.Datagram{Src: there, Dst: netip.MustParseAddr("192.0.2.77")}
	d.PutGRH(&grh, 100)
	_, err = b.ctx.AVFrom(&ok, grh[:])
	require.ErrorContains(t, err, "not in the GID table")
}

// TestCreateAH: what cannot be sent to is refused, with advice.
func TestCreateAH(t *testing.T) {
	b := newBench(t, 1, nil)
	for _, c := range []struct {
		av   verbs.AV
		want string
	}{
		{verbs.AV{}, "all zero"},
		{verbs.AV{DGID: verbs.GIDOf(there), SGIDIndex: 1}, "GID index 1"},
		{verbs.AV{DGID: verbs.GIDOf(there), SGIDIndex: -1}, "GID index -1"},
		{verbs.AV{DGID: verbs.GIDOf(there), SL: 8}, "service level 8"},
		{verbs.AV{DGID: verbs.GIDOf(netip.MustParseAddr("2001:db8::1"))}, "IPv6"},
	} {
		_, err := b.pd.CreateAH(c.av)
		require.ErrorContains(t, err, c.want)
	}
	a := b.ah(there)
	require.ErrorContains(t, b.pd.Destroy(), "1 shared receive queues and address handles")
	q := b.datagrams(verbs.QPConfig{})
	require.NoError(t, a.Destroy())
	require.ErrorIs(t, a.Destroy(), verbs.ErrClosed)

	// A request that names a handle that is gone, or another domain's.
	pd, err := b.ctx.AllocPD()
	require.NoError(t, err)
	foreign, err := pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(there)})
	require.NoError(t, err)
	for _, h := range []*verbs.AH{a, foreign} {
		post(t, q, b.to(1, h, 5, 9), b.to(2, b.ah(there), 5, 9))
		b.step()
		var wc [4]verbs.WC
		require.Equal(t, 2, b.cq.Poll(wc[:]))
		require.Equal(t, []verbs.WCStatus{verbs.WCLocQPOpErr, verbs.WCWRFlushErr}, []verbs.WCStatus{wc[0].Status, wc[1].Status})
		require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
		b.step()
	}
	require.Empty(t, b.links[0].took())
	post(t, q, b.to(3, b.ah(there), 5, 9))
	b.step()
	require.Len(t, b.links[0].took(), 1)
	_, err = q.PostSend([]verbs.SendWR{b.to(1, b.ah(there), 5, 4097)})
	require.ErrorContains(t, err, "one packet of at most 4096")
	w := b.to(1, b.ah(there), 5, 1)
	w.AH = 0
	_, err = q.PostSend([]verbs.SendWR{w})
	require.ErrorContains(t, err, "address handle")
}

// TestServiceLevels: one that the system would refuse to send with is refused
// when the address is given, of a datagram and of a connection.
func TestServiceLevels(t *testing.T) {
	x := open(t, []link.Link{newFakeLink()}, here, func(c *Config) { c.Manual, c.MaxSL = true, 6 })
	defer x.close()
	q := x.newQP(x.cq)
	local, err := q.Endpoint(there)
	require.NoError(t, err)
	peer := verbs.Endpoint{QPN: peerQPN, GID: verbs.GIDOf(there)}
	_, err = x.pd.CreateAH(verbs.AV{DGID: peer.GID, SL: 7})
	require.ErrorContains(t, err, "service level 7: this program may use 0..6; more needs CAP_NET_ADMIN")
	require.ErrorContains(t, q.Connect(local, peer, verbs.ConnectOptions{SL: 7}), "service level 7: this program may use 0..6")
	_, err = x.pd.CreateAH(verbs.AV{DGID: peer.GID, SL: 6})
	require.NoError(t, err)
}

// hideUD seals a datagram from a peer for an identification that the NIC does
// not see.
func hideUD(src netip.Addr, p bth.Packet, id uint16) wire.Datagram {
	b := &bench{}
	d := b.from(src, here, p, 8)
	icrc := wire.ICRC(d.Payload[:len(d.Payload)-bth.ICRCLen], netip.AddrPortFrom(src, d.SrcPort), netip.AddrPortFrom(here, wire.Port), id, true)
	binary.LittleEndian.PutUint32(d.Payload[len(d.Payload)-4:], icrc)
	d.IDKnown = false
	return d
}

// TestHiddenIDsOfDatagrams: with the IPv4 identification hidden, a datagram
// teaches a peer's counter when it names a queue pair and its Q_Key, here or on
// another shard; nothing else does. A counter that jumped is found again by the
// second datagram.
func TestHiddenIDsOfDatagrams(t *testing.T) {
	for _, shard := range []int{0, 1} {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			b := newBench(t, 2, nil)
			cq := b.newCQ(verbs.CQConfig{Vector: shard})
			q := b.datagrams(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
			b.step()
			const peers = 500
			posted := false
			taken := func(i int, id uint16, change func(*bth.Packet)) bool {
				if !posted {
					recv(t, q, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}})
				}
				p := toUD(q)
				change(&p)
				b.links[0].arrive(hideUD(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), p, id))
				b.step()
				var wc [4]verbs.WC
				posted = cq.Poll(wc[:]) == 0
				return !posted
			}
			same := func(*bth.Packet) {}
			wrong := []func(*bth.Packet){
				func(p *bth.Packet) { p.QKey++ },
				func(p *bth.Packet) { p.QKey |= 1 << 31 },
				func(p *bth.Packet) { p.DestQP ^= 0x10 },
				func(p *bth.Packet) { p.Opcode = bth.RCSendOnly },
				func(p *bth.Packet) { // it has no Q_Key
					*p = bth.Packet{Opcode: bth.CNP, BECN: true, PKey: p.PKey, DestQP: p.DestQP, Payload: make([]byte, bth.CNPReserved)}
				},
			}
			for _, w := range wrong {
				for id := range uint16(3) {
					require.False(t, taken(0, 40000+id, w))
				}
			}
			require.Zero(t, b.counts()[trace.NoteIDLearned], "learned from who knows no Q_Key")
			for i := range peers {
				require.True(t, taken(i, uint16(1000+i*60), same), "peer %d", i)
			}
			require.EqualValues(t, peers, b.counts()[trace.NoteIDLearned])
			for i := range peers {
				require.True(t, taken(i, uint16(1000+i*60+5), same), "peer %d", i)
				for _, w := range wrong { // does not move the window
					require.False(t, taken(i, uint16(30000+i*60), w))
					require.False(t, taken(i, uint16(30001+i*60), w))
				}
				require.True(t, taken(i, uint16(1000+i*60+7), same), "peer %d after forgeries", i)
				require.False(t, taken(i, uint16(30000+i*60), same), "peer %d: a jump is taken at once", i)
				require.True(t, taken(i, uint16(30001+i*60), same), "peer %d after a jump", i)
			}
			require.EqualValues(t, peers, b.counts()[trace.NoteIDLearned])
		})
	}
}
