package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// groupLink is a fake link that joins groups, or refuses to.
type groupLink struct {
	*fakeLink
	groups  sync.Map // netip.Addr -> true
	refuses error    // of JoinGroup and LeaveGroup
}

func (l *groupLink) JoinGroup(a netip.Addr) error {
	if l.refuses == nil {
		l.groups.Store(a, true)
	}
	return l.refuses
}

func (l *groupLink) LeaveGroup(a netip.Addr) error {
	l.groups.Delete(a)
	return l.refuses
}

func (l *groupLink) joined() (out []string) {
	l.groups.Range(func(a, _ any) bool { out = append(out, a.(netip.Addr).String()); return true })
	return out
}

// newGroupBench is newBench on links that have multicast, with a datagram queue
// pair that is attached to group.
func newGroupBench(t *testing.T, shards int) (*bench, *verbs.QP) {
	b := &bench{now: 1e9}
	var ls []link.Link
	for range shards {
		l := &groupLink{fakeLink: newFakeLink()}
		b.links = append(b.links, l.fakeLink)
		ls = append(ls, l)
	}
	b.node = open(t, ls, here, func(c *Config) { c.Manual, c.Clock = true, func() int64 { return b.now } })
	t.Cleanup(b.close)
	q := b.datagrams(verbs.QPConfig{})
	require.NoError(t, q.AttachMulticast(verbs.GIDOf(group)))
	b.step()
	return b, q
}

// TestJoin: the device joins with the first queue pair of a group and leaves
// with the last; what the link refuses is refused.
func TestJoin(t *testing.T) {
	b, q := newGroupBench(t, 2)
	l := b.nic.shards[0].link.(*groupLink)
	require.Equal(t, []string{"239.1.2.3"}, l.joined())
	q2 := b.datagrams(verbs.QPConfig{})
	l.refuses = errors.New("no room")
	require.NoError(t, q2.AttachMulticast(verbs.GIDOf(group)), "joined twice")
	require.NoError(t, q2.AttachMulticast(verbs.GIDOf(group)))
	six := verbs.GIDOf(netip.MustParseAddr("ff0e::7"))
	require.ErrorContains(t, q.AttachMulticast(six), "joining ff0e::7 at mem: no room")
	require.Len(t, b.nic.groupsNow(), 1)
	l.refuses = nil
	require.NoError(t, q.AttachMulticast(six))
	require.ElementsMatch(t, []string{"239.1.2.3", "ff0e::7"}, l.joined())
	require.NoError(t, q.DetachMulticast(verbs.GIDOf(group)))
	require.ErrorContains(t, q.DetachMulticast(verbs.GIDOf(group)), "not attached")
	require.Len(t, l.joined(), 2, "left while one is attached")
	require.NoError(t, q2.DetachMulticast(verbs.GIDOf(group)))
	require.Equal(t, []string{"ff0e::7"}, l.joined())

	// A queue pair that is destroyed is gone, whether the link can leave or not.
	l.refuses = errors.New("no such device")
	require.NoError(t, q.Destroy())
	require.Empty(t, l.joined())
	require.Empty(t, b.nic.groupsNow())
	require.ErrorIs(t, q.AttachMulticast(six), verbs.ErrClosed)
	require.ErrorIs(t, q.DetachMulticast(six), verbs.ErrClosed)
	l.refuses = nil

	require.NoError(t, q2.AttachMulticast(six))
	l.refuses = errors.New("no such device")
	require.ErrorContains(t, q2.DetachMulticast(six), "leaving ff0e::7: no such device")
	l.refuses = nil
	require.NoError(t, q2.AttachMulticast(six))
	l.refuses = link.ErrClosed
	require.NoError(t, q2.DetachMulticast(six), "a link that is closed has left")
}

// TestAttachErrors: who may attach to what, and how often.
func TestAttachErrors(t *testing.T) {
	b, q := newGroupBench(t, 1)
	require.ErrorContains(t, q.AttachMulticast(verbs.GIDOf(there)), "not a multicast address")
	require.ErrorIs(t, b.qpOf(verbs.RC).AttachMulticast(verbs.GIDOf(group)), verbs.ErrNotSupported)
	require.ErrorIs(t, b.qpOf(verbs.UC).AttachMulticast(verbs.GIDOf(group)), verbs.ErrNotSupported)
	plain := newBench(t, 1, nil) // whose link has no multicast
	require.ErrorIs(t, plain.datagrams(verbs.QPConfig{}).AttachMulticast(verbs.GIDOf(group)), verbs.ErrNotSupported)

	for i := range MaxGroups - 1 {
		require.NoError(t, q.AttachMulticast(verbs.GIDOf(netip.AddrFrom4([4]byte{239, 200, byte(i >> 8), byte(i)}))))
	}
	extra := verbs.GIDOf(netip.MustParseAddr("239.9.9.9"))
	require.ErrorIs(t, q.AttachMulticast(extra), ErrLimit)
	require.NoError(t, q.DetachMulticast(verbs.GIDOf(netip.MustParseAddr("239.200.0.0"))))
	require.NoError(t, q.AttachMulticast(extra))
	require.NoError(t, q.Destroy())
	require.Empty(t, b.nic.groupsNow())

	small := verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	for range maxGroupQPs {
		require.NoError(t, b.datagrams(small).AttachMulticast(extra))
	}
	require.ErrorIs(t, b.datagrams(small).AttachMulticast(extra), ErrLimit)
}

// qpOf makes a queue pair of a type.
func (x *node) qpOf(typ verbs.QPType) *verbs.QP {
	x.t.Helper()
	q, err := x.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: x.cq, RecvCQ: x.cq})
	require.NoError(x.t, err)
	return q
}

// TestGroupQKeys: of the members of a group those get a datagram whose Q_Key it
// has, whatever shard they are of; one that no member would take teaches no
// identification of its sender, and one that a member of another shard takes
// does.
func TestGroupQKeys(t *testing.T) {
	b, _ := newGroupBench(t, 2)
	var cqs []*verbs.CQ
	for i := range 4 {
		cq := b.newCQ(verbs.CQConfig{Vector: i % 2})
		q := b.datagrams(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, q.AttachMulticast(verbs.GIDOf(group)))
		require.NoError(t, q.Modify(&verbs.QPAttr{QKey: uint32(100 + i)}, verbs.AttrQKey))
		recv(t, q, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}}, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}})
		cqs = append(cqs, cq)
	}
	b.step()
	send := func(id uint16, key uint32) string {
		p := bth.Packet{Opcode: bth.UDSendOnly, PKey: 0xffff, DestQP: bth.QPNMulticast, QKey: key, SrcQP: 7}
		d := b.from(there, group, p, 8)
		icrc := wire.ICRC(d.Payload[:len(d.Payload)-bth.ICRCLen], netip.AddrPortFrom(there, d.SrcPort), netip.AddrPortFrom(group, wire.Port), id, true)
		binary.LittleEndian.PutUint32(d.Payload[len(d.Payload)-4:], icrc)
		d.IDKnown = false
		b.links[0].arrive(d)
		b.step()
		got := ""
		for i, cq := range cqs {
			var wc [4]verbs.WC
			for range cq.Poll(wc[:]) {
				got += fmt.Sprint(i)
			}
		}
		return got
	}
	require.Empty(t, send(40000, 99))
	require.Empty(t, send(40000, 1<<31|100))
	require.Zero(t, b.counts()[trace.NoteIDLearned])
	require.Equal(t, "1", send(40000, 101), "of the other shard")
	require.EqualValues(t, 1, b.counts()[trace.NoteIDLearned])
	require.Empty(t, send(50000, 99))
	require.Empty(t, send(50001, 99))
	require.Empty(t, send(20000, 103), "a jump")
	require.Equal(t, "3", send(20001, 103))
	require.Equal(t, "0", send(20002, 100))
	require.NotZero(t, b.counts()[trace.DropQKey])
}

// TestMulticastIPv6, to a group of either scope, comes with its GRH.
func TestMulticastIPv6(t *testing.T) {
	a6, b6 := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2")
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{Addrs: []netip.Addr{b6, here}})
	require.NoError(t, err)
	a := open(t, as, there, func(c *Config) { c.GIDs = gidsOf(there, a6) })
	b := open(t, bs, here, func(c *Config) { c.GIDs = gidsOf(here, b6) })
	t.Cleanup(func() { a.close(); b.close() })
	qa, qb := a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
	g := netip.MustParseAddr("ff02::77")
	require.NoError(t, qb.AttachMulticast(verbs.GIDOf(g)))
	recv(t, qb, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}})
	h, err := a.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(g), SGIDIndex: 1, TrafficClass: 0x10})
	require.NoError(t, err)
	post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("six"), AH: h.Handle(), RemoteQPN: 0xffffff, RemoteQKey: qkey})
	wc := good(t, b.cq, 1)[0]
	ip := wire.IPv6(b.mr.Bytes()[:40])
	require.Equal(t, []any{a6.As16(), g.As16(), uint8(0x10)}, []any{ip.Src(), ip.Dst(), ip.TrafficClass()})
	av, err := b.ctx.AVFrom(&wc, b.mr.Bytes())
	require.NoError(t, err)
	require.Equal(t, 1, av.SGIDIndex)
}

// TestMulticastChurn: while datagrams come from the other device and from this
// one, queue pairs of all shards attach, detach, change their Q_Key and are
// destroyed; the member that stays gets every datagram, once.
func TestMulticastChurn(t *testing.T) {
	const rounds = 60
	a, b := pair(t, 2)
	gid := verbs.GIDOf(group)
	var senders []*verbs.QP
	var ahs []*verbs.AH
	for _, x := range []*node{a, b} {
		senders, ahs = append(senders, x.datagrams(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.newCQ(verbs.CQConfig{})})), append(ahs, x.ah(group))
	}
	scq := b.newCQ(verbs.CQConfig{Vector: 1})
	stays := b.datagrams(verbs.QPConfig{SendCQ: scq, RecvCQ: scq})
	require.NoError(t, stays.AttachMulticast(gid))

	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		cq := b.newCQ(verbs.CQConfig{Vector: w % 2, Depth: 1024})
		wg.Go(func() {
			var wc [64]verbs.WC
			for {
				select {
				case <-done:
					return
				default:
				}
				q, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, RecvCQ: cq})
				if err == nil {
					err = errors.Join(q.Activate(verbs.DatagramOptions{QKey: qkey}), q.AttachMulticast(gid))
				}
				if err == nil {
					room := []verbs.SGE{b.mr.SGE(8192*(w+1), 100)} // shards write at the same time
					_, err = q.PostRecv([]verbs.RecvWR{{SGL: room}, {SGL: room}})
				}
				err = errors.Join(err, q.Modify(&verbs.QPAttr{QKey: uint32(w)}, verbs.AttrQKey))
				if w != 0 {
					err = errors.Join(err, q.DetachMulticast(gid))
				}
				if err = errors.Join(err, q.Destroy()); err != nil {
					t.Error(err)
					return
				}
				cq.Poll(wc[:])
			}
		})
	}
	for i := range rounds {
		k := i % 2
		x := []*node{a, b}[k]
		for range 8 {
			recv(t, stays, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}})
		}
		for j := range 8 {
			post(t, senders[k], verbs.SendWR{ID: uint64(j), Opcode: verbs.WRSendImm, Flags: verbs.SendInline | verbs.SendSignaled, Imm: uint32(i*8 + j), Inline: []byte("churn"), AH: ahs[k].Handle(), RemoteQPN: 0xffffff, RemoteQKey: qkey})
		}
		good(t, x.cq, 8)
		for j, w := range good(t, scq, 8) {
			require.EqualValues(t, i*8+j, w.Imm)
		}
	}
	close(done)
	wg.Wait()
	require.NoError(t, stays.Destroy())
	require.Empty(t, b.nic.groupsNow())
	require.Empty(t, a.nic.groupsNow())
}
