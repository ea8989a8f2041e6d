package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBindRing: a BIND_MW stands in the ring as docs/rings.md says, and comes out
// as it went in.
func TestBindRing(t *testing.T) {
	c := QPCap{MaxSendWR: 2, MaxSendSGE: 1}
	mem := NewRingMem(8)
	q, err := NewSendQueue(mem, c)
	require.NoError(t, err)
	b := Bind{Key: 0x11223344, NewKey: 0x11223355, LKey: 0x66778899, Addr: 0xa0a1a2a3a4a5a6a7, Length: 0xb0b1b2b3b4b5b6b7, Access: AccessRemoteRead | AccessZeroBased}
	require.NoError(t, q.Put(&SendWR{ID: 9, Opcode: WRBindMW, Flags: SendSignaled, Bind: b, RemoteAddr: 1, RKey: 2, Imm: 3, CompareAdd: 4, Swap: 5}))
	q.Publish()
	layout := []field{
		{16, "u64", "address of the window's first octet", b.Addr},
		{24, "u32", "R_Key of the window, as it is", 0x11223344},
		{28, "u32", "R_Key of the window, as it will be", 0x11223355},
		{32, "u64", "length of the window", b.Length},
		{40, "u32", "L_Key of the region", 0x66778899},
		{44, "u32", "rights", 0x24},
	}
	checkDoc(t, "Requests that send nothing", layout)
	checkOctets(t, mem[192:256], append(layout, field{0, "u8", "opcode", 8}, field{2, "u8", "entries", 0}, field{3, "u8", "units", 1}, field{8, "u64", "wr_id", 9}))
	r, ok := NewSendRing(mem)
	require.True(t, ok)
	var w SendWQE
	more, ok := r.Fetch(&w, nil)
	require.True(t, more && ok)
	require.Equal(t, WRBindMW, w.Opcode)
	require.Equal(t, b, w.Bind())
}

func TestNextRKey(t *testing.T) {
	require.Equal(t, uint32(0x12345601), NextRKey(0x12345600))
	require.Equal(t, uint32(0x12345600), NextRKey(0x123456ff))
	require.Equal(t, uint32(0xffffff00), NextRKey(0xffffffff))
}

// window is a memory window of the fake's, in the domain of q.
func window(t *testing.T, q *QP, typ MWType) *MW {
	t.Helper()
	m, err := q.pd.AllocMW(typ)
	require.NoError(t, err)
	return m
}

// TestAllocMW: a window has the provider's key until it is bound, and is freed.
func TestAllocMW(t *testing.T) {
	f, q, _ := open(t, QPConfig{}, StateRTS)
	m := window(t, q, MWType2)
	require.Equal(t, MWType2, m.Type())
	require.Equal(t, uint32(0x12345ff), m.RKey())
	require.NoError(t, m.Dealloc())
	require.Equal(t, []string{"AllocMW 11 2", "Destroy 7 71"}, f.log[len(f.log)-2:])
	for _, typ := range []MWType{0, 3, 255} {
		_, err := q.pd.AllocMW(typ)
		require.ErrorContains(t, err, "MWType1 and MWType2")
	}
	f.err = ErrClosed
	_, err := q.pd.AllocMW(MWType1)
	require.ErrorIs(t, err, ErrClosed)
}

// TestBindMW: a bind of a window of type 1 is a request under the window's next
// key, which is the window's once it is posted, and not if it was refused.
func TestBindMW(t *testing.T) {
	f, q, _ := open(t, QPConfig{Cap: QPCap{MaxSendWR: 2}}, StateRTS)
	f.bell = func() {}
	m := window(t, q, MWType1)
	r, err := q.pd.RegMR(make([]byte, 64), AccessLocalWrite|AccessMWBind)
	require.NoError(t, err)
	require.NoError(t, q.BindMW(m, MWBind{ID: 5, Flags: SendSignaled | SendFence, MR: r, Addr: 0x1010, Length: 16, Access: AccessRemoteWrite}))
	require.Equal(t, uint32(0x1234500), m.RKey())
	require.NoError(t, q.BindMW(m, MWBind{}))
	require.Equal(t, uint32(0x1234501), m.RKey())
	require.ErrorIs(t, q.BindMW(m, MWBind{}), ErrQueueFull)
	require.Equal(t, uint32(0x1234501), m.RKey(), "nothing was bound")
	_, _ = f.sq.Fetch(&f.wqe, f.sgl[:])
	require.Equal(t, SendWQE{
		ID: 5, Opcode: WRBindMW, Flags: SendSignaled | SendFence, Units: 1,
		RemoteAddr: 0x1010, RKey: 0x12345ff, Imm: 0x1234500, CompareAdd: 16, Swap: 31 | uint64(AccessRemoteWrite)<<32,
	}, f.wqe)
	_, _ = f.sq.Fetch(&f.wqe, f.sgl[:])
	require.Equal(t, Bind{Key: 0x1234500, NewKey: 0x1234501}, f.wqe.Bind())
}

// TestBind: what a program posts to bind a window of type 2.
func TestBind(t *testing.T) {
	_, q, _ := open(t, QPConfig{}, StateRTS)
	m := window(t, q, MWType2)
	r, err := q.pd.RegMR(make([]byte, 64), AccessLocalWrite|AccessMWBind)
	require.NoError(t, err)
	b := m.Bind(r, 0x1008, 8, AccessRemoteRead)
	require.Equal(t, Bind{Key: 0x12345ff, NewKey: 0x1234500, LKey: 31, Addr: 0x1008, Length: 8, Access: AccessRemoteRead}, b)
	require.Equal(t, uint32(0x12345ff), m.RKey())
	m.SetRKey(b.NewKey)
	require.Equal(t, b.NewKey, m.RKey())
}

// TestBindRefused: what a queue pair can never carry out is refused with a word
// about what to do, and the window keeps its key.
func TestBindRefused(t *testing.T) {
	_, q, _ := open(t, QPConfig{}, StateRTS)
	other, err := q.pd.ctx.AllocPD()
	require.NoError(t, err)
	m, two := window(t, q, MWType1), window(t, q, MWType2)
	foreign, err := other.AllocMW(MWType1)
	require.NoError(t, err)
	strange, err := other.RegMR(make([]byte, 64), AccessMWBind)
	require.NoError(t, err)
	r, err := q.pd.RegMR(make([]byte, 64), AccessMWBind)
	require.NoError(t, err)
	for want, err := range map[string]error{
		"post a WRBindMW with MW.Bind":                               q.BindMW(two, MWBind{MR: r, Length: 4}),
		"window is of another protection domain than the queue pair": q.BindMW(foreign, MWBind{}),
		"region is of another protection domain than the window":     q.BindMW(m, MWBind{MR: strange, Length: 4}),
		"4 octets of no memory region; Length 0 unbinds":             q.BindMW(m, MWBind{Length: 4}),
		"never zero-based": q.BindMW(m, MWBind{MR: r, Length: 4, Access: AccessZeroBased}),
	} {
		require.ErrorIs(t, err, ErrInvalidWR)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, uint32(0x12345ff), m.RKey())
	for _, c := range []struct {
		w    SendWR
		want string
	}{
		{SendWR{Opcode: WRLocalInv, SGL: sges(1)}, "LOCAL_INV carries no data"},
		{SendWR{Opcode: WRBindMW, Flags: SendInline}, "BIND_MW carries no data"},
		{SendWR{Opcode: WRBindMW, Bind: Bind{Key: 0x100, NewKey: 0x201}}, "changes the low 8 bits"},
	} {
		_, err := q.PostSend([]SendWR{c.w})
		require.ErrorIs(t, err, ErrInvalidWR)
		require.ErrorContains(t, err, c.want)
	}
	for _, typ := range []QPType{UC, UD} {
		_, q, _ := open(t, QPConfig{Type: typ}, StateRTS)
		for _, o := range []WROpcode{WRLocalInv, WRBindMW} {
			_, err := q.PostSend([]SendWR{{Opcode: o}})
			require.ErrorIs(t, err, ErrInvalidWR)
			require.ErrorContains(t, err, "needs an RC queue pair")
		}
	}
}
