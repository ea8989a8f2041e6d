package nic

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestDrops provokes every reason for which the NIC itself drops a packet:
// exactly that one is counted, the peer gets no answer, and the same packet
// put right afterwards is taken.
//
// = test IBA C9-8
// = test IBA C9-9
func TestDrops(t *testing.T) {
	stranger := netip.MustParseAddr("192.0.2.99")
	raw := func(op byte, hdr, payload int, change func([]byte)) func(*bench) wire.Datagram {
		return func(b *bench) wire.Datagram {
			return sealed(there, here, payload, hdr, func(h []byte) {
				p := b.request()
				var good [bth.BTHLen]byte
				p.PutHeaders(good[:])
				clear(h)
				copy(h, good[:])
				h[0] = op
				if change != nil {
					change(h)
				}
			})
		}
	}
	with := func(change func(*bth.Packet)) func(*bench) wire.Datagram {
		return func(b *bench) wire.Datagram {
			p := b.request()
			change(&p)
			return datagram(p, 8)
		}
	}
	for _, c := range []struct {
		name  string
		want  trace.Reason
		known bool // counted for the queue pair
		make  func(*bench) wire.Datagram
	}{
		{"empty", trace.DropShort, false, func(*bench) wire.Datagram { return wire.Datagram{Src: there, Dst: here, IDKnown: true} }},
		{"15 octets", trace.DropShort, false, func(b *bench) wire.Datagram {
			d := datagram(b.request(), 0)
			d.Payload = d.Payload[:15]
			return d
		}},
		{"no room for RETH", trace.DropShort, false, raw(byte(bth.RCWriteOnly), bth.BTHLen+12, 0, nil)},
		{"pad longer than the packet", trace.DropShort, false, raw(byte(bth.RCSendOnly), bth.BTHLen, 0, func(h []byte) { h[1] |= 0x30 })},
		{"opcode of no class", trace.DropOpcode, false, raw(0xff, bth.BTHLen, 8, nil)},
		{"reserved RC opcode", trace.DropOpcode, false, raw(0x1f, bth.BTHLen, 8, nil)},
		{"transport version", trace.DropTVer, false, raw(byte(bth.RCSendOnly), bth.BTHLen, 8, func(h []byte) { h[1] |= 1 })},
		{"one bit of payload", trace.DropICRC, false, func(b *bench) wire.Datagram {
			d := datagram(b.request(), 8)
			d.Payload[14] ^= 1
			return d
		}},
		{"translated address", trace.DropICRC, false, func(b *bench) wire.Datagram {
			d := datagram(b.request(), 8)
			d.Src = stranger
			return d
		}},
		{"unknown QPN", trace.DropQPN, false, with(func(p *bth.Packet) { p.DestQP ^= 0x10 })},
		{"unknown shard", trace.DropQPN, false, with(func(p *bth.Packet) { p.DestQP ^= 0x01 })},
		{"QP0", trace.DropQPN, false, with(func(p *bth.Packet) { p.DestQP = 0 })},
		{"QP1", trace.DropUnsupported, false, with(func(p *bth.Packet) { p.DestQP, p.Opcode = 1, bth.UDSendOnly })},
		{"multicast number, other address", trace.DropAddress, false, with(func(p *bth.Packet) { p.DestQP, p.Opcode = 0xffffff, bth.UDSendOnly })},
		{"UC", trace.DropClass, true, with(func(p *bth.Packet) { p.Opcode = 0x20 | bth.RCSendOnly })},
		{"UD", trace.DropClass, true, with(func(p *bth.Packet) { p.Opcode = bth.UDSendOnly })},
		{"XRC", trace.DropClass, true, with(func(p *bth.Packet) { p.Opcode = 0xa4 })},
		{"other source", trace.DropAddress, true, func(b *bench) wire.Datagram {
			return sealed(stranger, here, 8, bth.BTHLen, func(h []byte) { p := b.request(); p.PutHeaders(h) })
		}},
		{"other destination", trace.DropAddress, true, func(b *bench) wire.Datagram {
			return sealed(there, stranger, 8, bth.BTHLen, func(h []byte) { p := b.request(); p.PutHeaders(h) })
		}},
		{"other family", trace.DropAddress, true, func(b *bench) wire.Datagram {
			return sealed(netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 8, bth.BTHLen, func(h []byte) { p := b.request(); p.PutHeaders(h) })
		}},
		{"other partition", trace.DropPKey, true, with(func(p *bth.Packet) { p.PKey = 0x8001 })},
		{"invalid partition", trace.DropPKey, true, with(func(p *bth.Packet) { p.PKey = 0x8000 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 1, nil).connect()
			recv(t, b.qp, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
			before := b.counts()
			b.links[0].arrive(c.make(b))
			b.step()
			require.Empty(t, b.links[0].took(), "answered")
			after := b.counts()
			for r := range after {
				want := before[r]
				if trace.Reason(r) == c.want {
					want++
				}
				require.Equal(t, want, after[r], trace.Reason(r).String())
			}
			require.Equal(t, []trace.Reason{c.want}, b.links[0].verdicts)
			ev := b.nic.Trace(0)
			require.Equal(t, c.want, ev[len(ev)-1].Reason)
			st, err := b.qp.Stats()
			require.NoError(t, err)
			if c.known {
				require.Equal(t, uint64(1), st[c.want.String()])
			}
			all, err := b.ctx.Counters()
			require.NoError(t, err)
			require.Equal(t, uint64(1), all[c.want.String()])
			require.Zero(t, all["rcvd_pkts"])

			b.links[0].arrive(datagram(b.request(), 8))
			b.step()
			require.Len(t, b.links[0].took(), 1, "a good packet after it is not acknowledged")
		})
	}
}

// TestLogsICRC is report B77: a path that translates addresses leaves a line in
// the log that says so, once, and a counter.
func TestLogsICRC(t *testing.T) {
	var log bytes.Buffer
	b := newBench(t, 1, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }).connect()
	for range 3 {
		d := datagram(b.request(), 8)
		d.Src = netip.MustParseAddr("192.0.2.99")
		b.links[0].arrive(d)
	}
	b.step()
	require.Equal(t, uint64(3), counter(t, b.node, "icrc_error"))
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), "the invariant CRC is wrong")
	require.Contains(t, log.String(), "from=192.0.2.99")
}

// TestDropStates: a queue pair hears nothing before RTR and after an error.
func TestDropStates(t *testing.T) {
	b := newBench(t, 1, nil)
	quiet := func(want uint64) {
		t.Helper()
		b.links[0].arrive(datagram(b.request(), 8))
		b.step()
		require.Empty(t, b.links[0].took())
		require.Equal(t, want, b.counts()[trace.DropState])
	}
	quiet(1)
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: verbs.AccessAll}, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccess))
	quiet(2)
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	quiet(3)
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	quiet(4)
	qpn := b.qp.QPN()
	require.NoError(t, b.qp.Destroy())
	b.links[0].arrive(datagram(b.request(), 8))
	b.step()
	require.Empty(t, b.links[0].took())
	require.Equal(t, uint64(1), b.counts()[trace.DropQPN])
	require.NotEqual(t, qpn, b.newQP(b.cq).QPN(), "the number is used again at once")
}

// TestPartialMembers: 0x7fff is the same partition with the membership bit
// clear; a full member here hears it.
func TestPartialMembers(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false},
		{0x8000, 0x8000, false},
		{0, 0, false},
		{0x8000, 0, false},
		{0x8001, 0x0001, true},
		{0x8001, 0x8002, false},
	} {
		require.Equal(t, c.want, pkeysMatch(c.a, c.b), "%#x %#x", c.a, c.b)
	}
	b := newBench(t, 1, nil).connect()
	recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
	p := b.request()
	p.PKey = 0x7fff
	b.links[0].arrive(datagram(p, 8))
	b.step()
	require.Len(t, b.links[0].took(), 1)
}

// TestHiddenIDs: with the IPv4 identification hidden, one far from the peer's
// last is dropped under a reason of its own, and the first is noted.
func TestHiddenIDs(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	hidden := func(id uint16) wire.Datagram { return hide(b.request(), id, true) }
	b.links[0].arrive(hidden(40000))
	b.step()
	require.Equal(t, uint64(1), b.counts()[trace.NoteIDLearned])
	require.Zero(t, b.counts()[trace.DropICRCWindow])
	b.links[0].arrive(hidden(20000))
	b.step()
	require.Equal(t, uint64(1), b.counts()[trace.DropICRCWindow])
	require.Equal(t, uint64(1), b.counts()[trace.NoteIDLearned])
}

// hide seals a packet for an identification and DF bit that the NIC does not
// see.
func hide(p bth.Packet, id uint16, df bool) wire.Datagram {
	d := datagram(p, 8)
	icrc := wire.ICRC(d.Payload[:len(d.Payload)-bth.ICRCLen], netip.AddrPortFrom(there, d.SrcPort), netip.AddrPortFrom(here, wire.Port), id, df)
	binary.LittleEndian.PutUint32(d.Payload[len(d.Payload)-4:], icrc)
	d.IDKnown = false
	return d
}

// TestForgedIDs: packets with a peer's address and a right ICRC that name no
// queue pair do not move the window of the peer's identifications, neither
// before its first packet nor between later ones. One that leaves the window
// for a good reason, and names the queue pair, does.
func TestForgedIDs(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	psn := bth.MakePSN(peerPSN)
	forge := func() {
		p := b.request()
		p.DestQP ^= 0x10
		for i := range uint16(5) {
			b.links[0].arrive(hide(p, 30000+i, false), hide(p, 20000+60*i, true), hide(p, 50000+i, true))
		}
		b.step()
	}
	taken := func(id uint16) bool {
		p := b.request()
		p.PSN = psn
		recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
		b.links[0].arrive(hide(p, id, true))
		b.step()
		if len(b.links[0].took()) == 0 {
			return false
		}
		psn = psn.Add(1)
		return true
	}
	for id := range uint16(10) {
		forge()
		require.True(t, taken(40000+id), "packet %d", id)
	}
	require.False(t, taken(10000))
	forge()
	require.True(t, taken(10001))
}

// TestEveryOpcodeAndLength sends all 256 opcodes at every length up to 64,
// with a right ICRC where there is room for one. What is no request of a
// reliable connection is never answered, and every packet is counted.
func TestEveryOpcodeAndLength(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	for op := range 256 {
		info := bth.Opcode(op).Info()
		for n := range 65 {
			before := total(b.counts()) + b.nic.shards[0].stats.rcvdPkts
			d := wire.Datagram{Src: there, Dst: here, IDKnown: true, Flags: wire.FlagDF, Payload: make([]byte, n)}
			if n >= bth.BTHLen+bth.ICRCLen {
				body := n - bth.BTHLen - bth.ICRCLen
				d = sealed(there, here, body&^3, bth.BTHLen+body&3, func(h []byte) {
					p := b.request()
					var good [bth.BTHLen]byte
					p.PutHeaders(good[:])
					clear(h)
					copy(h, good[:])
					h[0] = byte(op)
				})
			}
			b.links[0].arrive(d)
			b.step()
			out := b.links[0].took()
			if info.Class != bth.RC || !info.Has(bth.Request) {
				require.Empty(t, out, "%v of %d octets was answered", bth.Opcode(op), n)
			}
			require.LessOrEqual(t, len(out), 1)
			require.Greater(t, total(b.counts())+b.nic.shards[0].stats.rcvdPkts, before, "%v of %d octets left no trace", bth.Opcode(op), n)
			if b.state() == verbs.StateErr { // a request that ends the connection
				require.NoError(t, b.qp.Destroy())
				b.qp = b.newQP(b.cq)
				b.connect()
				b.cq.Poll(make([]verbs.WC, 16))
			}
		}
	}
}

func (b *bench) state() verbs.QPState {
	a, err := b.qp.Query()
	require.NoError(b.t, err)
	return a.State
}

func total(c trace.Counts) (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// TestStrays: a merged run may hold packets for queue pairs of several shards.
// Each goes to its own, and one of another shard is handed over and answered
// there.
func TestStrays(t *testing.T) {
	b := newBench(t, 2, nil)
	q1 := b.newQP(b.newCQ(verbs.CQConfig{Vector: 1}))
	require.Equal(t, uint32(1), q1.QPN()&0xf)
	b.connect()
	b.connectQP(q1)
	recv(t, q1, verbs.RecvWR{ID: 9, SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
	p := b.request()
	p.DestQP = bth.QPN(q1.QPN())
	b.links[0].arrive(datagram(p, 8))
	b.step()
	require.Empty(t, b.links[0].took())
	require.Len(t, b.links[1].took(), 1)
	require.Equal(t, uint64(1), b.counts()[trace.DropStray])
	require.Equal(t, []trace.Reason{trace.DropStray}, b.links[0].verdicts)

	// An inbox that nobody empties is bounded, and what it does not take is
	// counted.
	for range inboxSegs + 5 {
		b.links[0].arrive(datagram(p, 8))
	}
	for len(b.links[0].in) > 0 {
		b.nic.Step(0, b.now)
	}
	require.Equal(t, uint64(5), b.counts()[trace.DropOverflow])
	b.step()
}
