package verbs

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// openPD makes a protection domain over a fake.
func openPD(t testing.TB) (*fake, *Context, *PD) {
	t.Helper()
	f := &fake{}
	c := NewContext(f)
	pd, err := c.AllocPD()
	require.NoError(t, err)
	f.log = nil
	return f, c, pd
}

// TestSRQ: creating, posting in order, the limit, and destroying.
func TestSRQ(t *testing.T) {
	f, c, pd := openPD(t)
	s, err := pd.CreateSRQ(SRQConfig{})
	require.NoError(t, err)
	require.Equal(t, SRQConfig{MaxWR: 1024, MaxSGE: 4}, s.Config())
	require.Equal(t, Handle(51), s.Handle())
	require.Equal(t, []string{"CreateSRQ 11 1024 4"}, f.log)

	s, err = pd.CreateSRQ(SRQConfig{MaxWR: 3, MaxSGE: 2})
	require.NoError(t, err)
	n, err := s.PostRecv(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, f.srq.Len())
	n, err = s.PostRecv([]RecvWR{{ID: 1, SGL: sges(2)}, {ID: 2}, {ID: 3, SGL: sges(3)}, {ID: 4}})
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, ErrInvalidWR)
	require.ErrorContains(t, err, "3 scatter/gather entries")
	require.Equal(t, 2, f.srq.Len(), "what was taken before the error is there")
	n, err = s.PostRecv([]RecvWR{{ID: 5}, {ID: 6}})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, ErrQueueFull)
	require.Zero(t, f.bells, "posting a receive rings no doorbell")
	var sgl [2]SGE
	for _, want := range []uint64{1, 2, 5} {
		id, _, ok := f.srq.Fetch(sgl[:])
		require.True(t, ok)
		require.Equal(t, want, id.ID)
	}
	n, err = s.PostRecv([]RecvWR{{ID: 7}})
	require.NoError(t, err)
	require.Equal(t, 1, n)

	f.log = nil
	require.NoError(t, s.SetLimit(3))
	limit, err := s.Limit()
	require.NoError(t, err)
	require.Equal(t, 3, limit)
	for _, bad := range []int{-1, 4} {
		require.ErrorContains(t, s.SetLimit(bad), "range is 0..3")
	}
	f.err = errors.New("in use")
	require.ErrorIs(t, s.Destroy(), f.err)
	require.ErrorIs(t, s.SetLimit(1), f.err)
	_, err = pd.CreateSRQ(SRQConfig{})
	require.ErrorIs(t, err, f.err)
	f.err = nil
	_, err = s.PostRecv([]RecvWR{{ID: 8}})
	require.NoError(t, err, "a queue that could not be destroyed lives on")
	f.log = nil
	require.NoError(t, s.Destroy())
	require.Equal(t, []string{"Destroy 5 51"}, f.log)
	_, err = s.PostRecv([]RecvWR{{}})
	require.ErrorIs(t, err, ErrClosed)

	s, err = pd.CreateSRQ(SRQConfig{})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = s.PostRecv([]RecvWR{{}})
	require.ErrorIs(t, err, ErrClosed)
}

// TestSRQRefused: configurations beyond the limits, and a provider whose ring
// is too short, which leaves nothing behind.
func TestSRQRefused(t *testing.T) {
	f, _, pd := openPD(t)
	for _, c := range []SRQConfig{{MaxWR: -1}, {MaxWR: MaxSRQWR + 1}, {MaxSGE: -1}, {MaxSGE: MaxSGE + 1}} {
		_, err := pd.CreateSRQ(c)
		require.ErrorContains(t, err, "range is 1..")
	}
	require.Empty(t, f.log)
	f.short = "recv"
	_, err := pd.CreateSRQ(SRQConfig{})
	require.ErrorContains(t, err, "receive ring of 1 units")
	require.Equal(t, []string{"CreateSRQ 11 1024 4", "Destroy 5 51"}, f.log)
}

// TestQPWithSRQ: the queue pair is made with it, takes no receive requests
// itself, and one of another device is refused.
func TestQPWithSRQ(t *testing.T) {
	f, c, pd := openPD(t)
	s, err := pd.CreateSRQ(SRQConfig{})
	require.NoError(t, err)
	cq, err := c.CreateCQ(CQConfig{})
	require.NoError(t, err)
	q, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: s})
	require.NoError(t, err)
	require.Equal(t, 51, f.limit, "the handle in the request")
	_, err = q.PostRecv([]RecvWR{{}})
	require.ErrorIs(t, err, ErrInvalidWR)
	require.ErrorContains(t, err, "shared receive queue")
	require.NoError(t, q.Modify(&QPAttr{State: StateReset}, AttrState), "no ring of its own to reset")

	_, c2, pd2 := openPD(t)
	cq2, err := c2.CreateCQ(CQConfig{})
	require.NoError(t, err)
	_, err = pd2.CreateQP(QPConfig{SendCQ: cq2, RecvCQ: cq2, SRQ: s})
	require.ErrorContains(t, err, "of another device")
}

// TestBrokenRecvRing: a producer's index that makes no sense shows, gives one
// malformed request and then none, until the ring is reset.
func TestBrokenRecvRing(t *testing.T) {
	mem := NewRingMem(8)
	r, _ := NewRecvRing(mem, 1)
	q, err := NewRecvQueue(mem, 8, 1)
	require.NoError(t, err)
	require.NoError(t, q.Put(&RecvWR{ID: 1}))
	q.Publish()
	mem[2] = 1
	require.False(t, r.Broken())
	_, n, ok := r.Fetch(nil)
	require.True(t, ok)
	require.Equal(t, -1, n)
	require.True(t, r.Broken())
	require.Zero(t, r.Len())
	_, _, ok = r.Fetch(nil)
	require.False(t, ok)
	r.Reset()
	require.False(t, r.Broken())
}

// TestAH: what is asked for reaches the provider.
func TestAH(t *testing.T) {
	f, _, pd := openPD(t)
	av := AV{DGID: GIDOf(netip.MustParseAddr("192.0.2.1")), SGIDIndex: 3, SL: 2, HopLimit: 7}
	a, err := pd.CreateAH(av)
	require.NoError(t, err)
	require.Equal(t, av, f.av)
	require.Equal(t, av, a.AV())
	require.EqualValues(t, 61, a.Handle())
	require.NoError(t, a.Destroy())
	require.Equal(t, []string{"CreateAH 11", "Destroy 6 61"}, f.log)
	f.err = errors.New("no way there")
	_, err = pd.CreateAH(av)
	require.ErrorIs(t, err, f.err)
}

// TestAVFrom: addresses, class and flow label come from the GRH area, the GID
// from where the datagram was sent to, or for a group from whom to answer.
func TestAVFrom(t *testing.T) {
	f, c, _ := openPD(t)
	own := GID{15: 3} // ::3 is index 3 of the fake's table
	grh6 := func(dst GID) []byte {
		b := make([]byte, GRHLen)
		b[0], b[1], b[2], b[3] = 0x6a, 0xb1, 0x23, 0x45
		src := GIDOf(netip.MustParseAddr("2001:db8::3"))
		copy(b[8:], src[:])
		copy(b[24:], dst[:])
		return b
	}
	ok := &WC{Flags: WCGRH | WCWithImm}
	av, err := c.AVFrom(ok, grh6(own))
	require.NoError(t, err)
	require.Equal(t, AV{DGID: GIDOf(netip.MustParseAddr("2001:db8::3")), SGIDIndex: 3, TrafficClass: 0xa8, FlowLabel: 0x12345}, av)
	av, err = c.AVFrom(ok, grh6(GIDOf(netip.MustParseAddr("ff02::1"))))
	require.NoError(t, err)
	require.Equal(t, 3, av.SGIDIndex, "the fake chooses by the peer's last octet")
	_, err = c.AVFrom(ok, grh6(GID{15: 9}))
	require.ErrorContains(t, err, "not in the GID table")

	four := make([]byte, 60)
	four[20], four[21] = 0x45, 0xff
	copy(four[32:], []byte{192, 0, 2, 3, 239, 1, 1, 1})
	av, err = c.AVFrom(ok, four)
	require.NoError(t, err)
	require.Equal(t, AV{DGID: GIDOf(netip.MustParseAddr("192.0.2.3")), SGIDIndex: 3, TrafficClass: 0xfc}, av)

	for _, bad := range [][]byte{nil, four[:39], make([]byte, 40)} {
		_, err = c.AVFrom(ok, bad)
		require.Error(t, err)
	}
	_, err = c.AVFrom(&WC{}, four)
	require.ErrorContains(t, err, "not of a UD receive")
	f.err = errors.New("gone")
	_, err = c.AVFrom(ok, four)
	require.ErrorIs(t, err, f.err)
	_, err = c.AVFrom(ok, grh6(own))
	require.ErrorIs(t, err, f.err)
}

// TestActivate: the way up of a UD queue pair, and what is not for it.
func TestActivate(t *testing.T) {
	f, q, _ := open(t, QPConfig{Type: UD}, StateReset)
	require.NoError(t, q.Activate(DatagramOptions{QKey: 7}))
	require.Equal(t, []AttrMask{AttrState | AttrPKeyIndex | AttrPort | AttrQKey, AttrState, AttrState | AttrSQPSN}, f.mask)
	require.EqualValues(t, 7, f.attr.QKey)
	require.EqualValues(t, 0x456, f.attr.SQPSN, "a random one")
	require.NoError(t, q.Activate(DatagramOptions{PSN: 9}))
	require.EqualValues(t, 9, f.attr.SQPSN)
	require.ErrorIs(t, q.Connect(Endpoint{}, Endpoint{}, ConnectOptions{}), ErrState)
	f.err = errors.New("no")
	require.ErrorIs(t, q.Activate(DatagramOptions{}), f.err)
	f.err = nil

	g := GIDOf(netip.MustParseAddr("239.1.1.1"))
	require.NoError(t, q.AttachMulticast(g))
	require.NoError(t, q.DetachMulticast(g))
	require.Equal(t, []string{"Attach 41 239.1.1.1", "Detach 41 239.1.1.1"}, f.log)

	_, rc, _ := open(t, QPConfig{}, StateReset)
	require.ErrorIs(t, rc.Activate(DatagramOptions{}), ErrState)
}

// TestPostDatagram: what a UD queue pair cannot send is refused when posted.
func TestPostDatagram(t *testing.T) {
	_, q, _ := open(t, QPConfig{Type: UD}, StateRTS)
	q.info.MaxDatagram = 100
	for _, c := range []struct {
		w    SendWR
		want string
	}{
		{SendWR{Opcode: WRSend, AH: 1}, ""},
		{SendWR{Opcode: WRSendImm, AH: 1, SGL: []SGE{{Length: 60}, {Length: 40}}}, ""},
		{SendWR{Opcode: WRSend}, "address handle"},
		{SendWR{Opcode: WRSend, AH: 1, SGL: []SGE{{Length: 60}, {Length: 41}}}, "101 octets"},
		{SendWR{Opcode: WRSend, AH: 1, SGL: []SGE{{Length: 1<<32 - 1}, {Length: 2}}}, "4294967297 octets"},
		{SendWR{Opcode: WRWrite, AH: 1}, "only sends"},
		{SendWR{Opcode: WRWriteImm, AH: 1}, "only sends"},
		{SendWR{Opcode: WRRead, AH: 1}, "needs an RC queue pair"},
		{SendWR{Opcode: WRSendInv, AH: 1}, "needs an RC queue pair"},
	} {
		n, err := q.PostSend([]SendWR{c.w})
		if c.want == "" {
			require.NoError(t, err)
			require.Equal(t, 1, n)
			continue
		}
		require.ErrorIs(t, err, ErrInvalidWR)
		require.ErrorContains(t, err, c.want)
	}
	q.info.MaxDatagram = 10
	_, err := q.PostSend([]SendWR{{Opcode: WRSend, AH: 1, Flags: SendInline, Inline: make([]byte, 11)}})
	require.ErrorContains(t, err, "11 octets")
}
