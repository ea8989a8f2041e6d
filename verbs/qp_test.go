package verbs

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPostSend: what is taken before the first request that is refused runs,
// and the error is that request's.
func TestPostSend(t *testing.T) {
	f, q, cq := open(t, QPConfig{Cap: QPCap{MaxSendWR: 4, MaxSendSGE: 2, MaxInline: 10}}, StateRTS)
	var wc [8]WC
	ok := func(id uint64) SendWR { return SendWR{ID: id, Opcode: WRSend, SGL: sges(2)} }
	for _, c := range []struct {
		wr   []SendWR
		n    int
		want error
		text string
	}{
		{nil, 0, nil, ""},
		{[]SendWR{ok(1)}, 1, nil, ""},
		{[]SendWR{ok(1), ok(2), ok(3), ok(4)}, 4, nil, ""},
		{[]SendWR{ok(1), ok(2), ok(3), ok(4), ok(5)}, 4, ErrQueueFull, "poll completions"},
		{[]SendWR{{Opcode: WRSend, SGL: sges(3)}, ok(2)}, 0, ErrInvalidWR, "3 scatter/gather entries"},
		{[]SendWR{ok(1), {Opcode: WRSend, Flags: SendInline, Inline: octets(11)}, ok(3)}, 1, ErrInvalidWR, "11 octets of inline data"},
		{[]SendWR{ok(1), {Opcode: WRSend, Flags: SendInline, Inline: octets(10)}, {Opcode: 10}}, 2, ErrInvalidWR, "unknown opcode 10"},
		{[]SendWR{{Opcode: 255}}, 0, ErrInvalidWR, "unknown opcode 255"},
	} {
		f.bells = 0
		n, err := q.PostSend(c.wr)
		require.Equal(t, c.n, n, c.text)
		require.ErrorIs(t, err, c.want)
		if c.want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.text)
		}
		require.Equal(t, min(n, 1), f.bells, "one doorbell for what was taken, none for nothing")
		require.Equal(t, n, cq.Poll(wc[:]))
		for i := range n {
			require.Equal(t, c.wr[i].ID, wc[i].ID)
		}
	}
	// Full until completions retire: max_send_wr, not the ring's units.
	f.bell = func() {}
	for i := range 4 {
		n, err := q.PostSend([]SendWR{{Opcode: WRSend}})
		require.NoError(t, err, i)
		require.Equal(t, 1, n)
	}
	n, err := q.PostSend([]SendWR{{Opcode: WRSend}})
	require.Zero(t, n)
	require.ErrorIs(t, err, ErrQueueFull)
	f.carryOut()
	n, err = q.PostSend([]SendWR{{Opcode: WRSend}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestPostRecv: like PostSend; a doorbell only where what is posted is flushed.
func TestPostRecv(t *testing.T) {
	f, q, _ := open(t, QPConfig{Cap: QPCap{MaxRecvWR: 3, MaxRecvSGE: 2}}, StateInit)
	n, err := q.PostRecv(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = q.PostRecv([]RecvWR{{ID: 1, SGL: sges(2)}, {ID: 2, SGL: sges(3)}, {ID: 3}})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, ErrInvalidWR)
	n, err = q.PostRecv([]RecvWR{{ID: 4}, {ID: 5, SGL: sges(1)}, {ID: 6}})
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, ErrQueueFull)
	require.Zero(t, f.bells)
	require.Equal(t, 3, f.rq.Len())
	for _, want := range []uint64{1, 4, 5} {
		id, _, ok := f.rq.Fetch(f.sgl[:2])
		require.True(t, ok)
		require.Equal(t, want, id.ID)
	}
	f.rq.SetFlushing(true)
	n, err = q.PostRecv(make([]RecvWR, 2))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 1, f.bells)
	n, err = q.PostRecv([]RecvWR{{SGL: sges(3)}})
	require.Zero(t, n)
	require.Error(t, err)
	require.Equal(t, 1, f.bells, "for nothing")
}

// TestPostStates: where send and receive requests may be posted, and which
// operations each service has.
func TestPostStates(t *testing.T) {
	for s := StateReset; s <= StateErr; s++ {
		_, q, _ := open(t, QPConfig{}, s)
		n, err := q.PostSend([]SendWR{{Opcode: WRSend}})
		if s < StateRTS {
			require.ErrorIs(t, err, ErrState, s)
			require.ErrorContains(t, err, "before RTS")
			require.Zero(t, n)
		} else {
			require.NoError(t, err, s)
		}
		n, err = q.PostRecv(make([]RecvWR, 1))
		if s == StateReset {
			require.ErrorIs(t, err, ErrState)
			require.ErrorContains(t, err, "Modify to INIT first")
			require.Zero(t, n)
		} else {
			require.NoError(t, err, s)
		}
	}
	for typ, ops := range map[QPType]map[WROpcode]bool{
		RC: {0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true},
		UC: {0: true, 1: true, 2: true, 3: true},
		UD: {2: true, 3: true},
	} {
		_, q, _ := open(t, QPConfig{Type: typ}, StateRTS)
		for o := range WROpcode(20) {
			_, err := q.PostSend([]SendWR{{Opcode: o, AH: 1}})
			require.Equal(t, ops[o], err == nil, "%v %v: %v", typ, o, err)
			if !ops[o] {
				require.ErrorIs(t, err, ErrInvalidWR)
			}
		}
	}
}

// TestModify: the state that posting depends on is the one the provider took,
// and RESET forgets what was posted.
func TestModify(t *testing.T) {
	f, q, _ := open(t, QPConfig{Cap: QPCap{MaxSendWR: 2, MaxRecvWR: 2}}, StateRTS)
	f.bell = func() {}
	_, err := q.PostSend([]SendWR{{Opcode: WRSend}, {Opcode: WRSend}})
	require.NoError(t, err)
	_, err = q.PostRecv(make([]RecvWR, 2))
	require.NoError(t, err)
	f.err = errors.New("not now")
	require.Equal(t, f.err, q.Modify(&QPAttr{State: StateReset}, AttrState))
	require.Equal(t, f.err, q.Modify(&QPAttr{State: StateInit}, AttrState))
	f.err = nil
	_, err = q.PostSend([]SendWR{{Opcode: WRSend}})
	require.ErrorIs(t, err, ErrQueueFull, "a Modify that failed changed the state")
	require.NoError(t, q.Modify(&QPAttr{State: StateReset, MinRNRTimer: 3}, AttrMinRNRTimer))
	_, err = q.PostSend([]SendWR{{Opcode: WRSend}})
	require.ErrorIs(t, err, ErrQueueFull, "the state changed without AttrState")
	require.NoError(t, q.Modify(&QPAttr{State: StateReset}, AttrState))
	_, err = q.PostRecv(make([]RecvWR, 1))
	require.ErrorIs(t, err, ErrState)
	require.NoError(t, q.Modify(&QPAttr{State: StateRTS}, AttrState))
	n, err := q.PostSend([]SendWR{{ID: 8, Opcode: WRSend}, {Opcode: WRSend}})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = q.PostRecv(make([]RecvWR, 2))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	more, ok := f.sq.Fetch(&f.wqe, f.sgl[:])
	require.True(t, more && ok)
	require.EqualValues(t, 8, f.wqe.ID)
	a, err := q.Query()
	require.NoError(t, err)
	require.Equal(t, StateRTS, a.State)
	s, err := q.Stats()
	require.NoError(t, err)
	require.Equal(t, QPStats{"y": 2}, s)
}

// TestConnect: the three steps with the attributes that each takes, for both
// connected services; the golden table says the same.
func TestConnect(t *testing.T) {
	for _, typ := range []QPType{RC, UC} {
		f, q, _ := open(t, QPConfig{Type: typ}, StateReset)
		local, err := q.Endpoint(netip.MustParseAddr("::3"))
		require.NoError(t, err)
		require.Equal(t, Endpoint{QPN: 0x123, PSN: 0x456, GID: GID{15: 3}, GIDIndex: 3}, local)
		_, err = q.Endpoint(netip.MustParseAddr("::4"))
		require.ErrorContains(t, err, "GID index 4 is not in the table")
		remote := Endpoint{QPN: 0x789, PSN: 0xabc, GID: GID{15: 9}, GIDIndex: 77}
		require.NoError(t, q.Connect(local, remote, ConnectOptions{}))
		require.Len(t, f.mask, 3)
		for i, to := range []QPState{StateInit, StateRTR, StateRTS} {
			require.NoError(t, CheckTransition(typ, []QPState{StateReset, StateInit, StateRTR}[i], to, f.mask[i]))
		}
		require.Equal(t, QPAttr{
			State: StateRTS, PathMTU: 1024, DestQPN: 0x789, RQPSN: 0xabc, SQPSN: 0x456, Access: AccessAll,
			AV: AV{DGID: GID{15: 9}, SGIDIndex: 3, HopLimit: 64}, Port: 1, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
			MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		}, f.attr)
		// What is not set keeps its default.
		require.NoError(t, q.Connect(local, remote, ConnectOptions{PathMTU: 256, RetryCnt: 1, Timeout: Zero}))
		require.Equal(t, QPAttr{
			State: StateRTS, PathMTU: 256, DestQPN: 0x789, RQPSN: 0xabc, SQPSN: 0x456, Access: AccessAll,
			AV: AV{DGID: GID{15: 9}, SGIDIndex: 3, HopLimit: 64}, Port: 1, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
			MinRNRTimer: 12, Timeout: 0, RetryCnt: 1, RNRRetry: 7,
		}, f.attr)
		// Literally, every 0 is one.
		require.NoError(t, q.Connect(local, remote, ConnectOptions{PathMTU: 256, RetryCnt: 1}.Literal()))
		require.Equal(t, QPAttr{
			State: StateRTS, PathMTU: 256, DestQPN: 0x789, RQPSN: 0xabc, SQPSN: 0x456,
			AV: AV{DGID: GID{15: 9}, SGIDIndex: 3, HopLimit: 64}, Port: 1, RetryCnt: 1,
		}, f.attr)
		f.err = errors.New("no")
		require.Equal(t, f.err, q.Connect(local, remote, ConnectOptions{}))
		require.Equal(t, f.err, q.Connect(local, remote, ConnectOptions{PathMTU: 256}))
	}
}
