package verbs

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorxe/gorxe/trace"
)

// compPair is both sides of a completion ring.
type compPair struct {
	mem []byte
	q   *CompQueue
	r   *CompRing
}

func newCompPair(t require.TestingT, depth int, start uint32) *compPair {
	p := &compPair{mem: NewRingMem(depth)}
	setWord(p.mem, 0, start)
	setWord(p.mem, 64, start)
	var err error
	p.q, err = NewCompQueue(p.mem)
	require.NoError(t, err)
	p.q.next = start
	var ok bool
	p.r, ok = NewCompRing(p.mem)
	require.True(t, ok)
	p.r.prod = start
	return p
}

// TestCompLayout: every field of a CQE stands at the octet that docs/rings.md
// gives.
func TestCompLayout(t *testing.T) {
	w := WC{
		ID: 0x1011121314151617, Status: WCRNRRetryExcErr, Opcode: WCRecvWriteImm, Flags: WCGRH | WCWithImm, Reason: trace.FailRNRExceeded,
		VendorErr: 0x20212223, ByteLen: 0x30313233, Imm: 0x40414243, QPN: 0x50515253, SrcQP: 0x60616263,
		cookie: 0x70717273,
	}
	layout := []field{
		{0, "u64", "wr_id", 0x1011121314151617},
		{8, "u8", "status", 13},
		{9, "u8", "opcode", 129},
		{10, "u8", "flags", 3},
		{11, "u8", "reason", uint64(trace.FailRNRExceeded)},
		{12, "u32", "vendor_err", 0x20212223},
		{16, "u32", "octets received or read", 0x30313233},
		{20, "u32", "immediate data in host order, or invalidated key", 0x40414243},
		{24, "u32", "local QPN", 0x50515253},
		{28, "u32", "source QP", 0x60616263},
		{32, "u32", "cookie", 0x70717273},
	}
	checkDoc(t, "Completion ring", layout)
	p := newCompPair(t, 4, 3)
	require.True(t, p.q.Empty())
	require.True(t, p.r.Push(&w))
	require.False(t, p.q.Empty())
	require.EqualValues(t, 4, word(p.mem, 0))
	checkOctets(t, p.mem[192+3*64:], layout)
	got := make([]WC, 3)
	require.Equal(t, 1, p.q.Take(got))
	require.Equal(t, w, got[0])
	require.EqualValues(t, 4, word(p.mem, 64))
	require.Zero(t, p.q.Take(got))
}

// TestCompFull: a ring takes as many completions as it has entries. One more is
// lost and says so, for good; the others are not, and it goes on.
func TestCompFull(t *testing.T) {
	for _, depth := range []int{1, 2, 8} {
		p := newCompPair(t, depth, math.MaxUint32-2)
		for round := range 5 {
			for i := range depth {
				require.True(t, p.r.Push(&WC{ID: uint64(round*100 + i)}))
			}
			if round == 3 {
				require.False(t, p.q.Overflown())
				require.False(t, p.r.Push(&WC{ID: 99}))
				require.EqualValues(t, 4, word(p.mem, 128))
			}
			require.Equal(t, round >= 3, p.q.Overflown())
			got := make([]WC, depth+1)
			n := p.q.Take(got[:(depth+1)/2])
			n += p.q.Take(got[n:])
			require.Equal(t, depth, n)
			for i := range depth {
				require.EqualValues(t, round*100+i, got[i].ID)
			}
			require.Zero(t, p.q.Take(got))
			require.Zero(t, p.q.Take(nil))
		}
	}
	// A consumer index that makes no sense makes the ring full, not larger.
	p := newCompPair(t, 4, 0)
	for _, cons := range []uint32{1, 1 << 31, math.MaxUint32 - 4} {
		setWord(p.mem, 64, cons)
		require.False(t, p.r.Push(&WC{}), cons)
	}
}

// TestCompMemoryGone: a NIC of another process takes its memory back, and zeros are
// left: they are no completions, for who takes or who waits.
func TestCompMemoryGone(t *testing.T) {
	p := newCompPair(t, 4, 0)
	got := make([]WC, 4)
	for _, left := range []int{0, 1, 4} {
		clear(p.mem)
		p.r.prod, p.q.next = 7, 7
		setWord(p.mem, 0, 7)
		setWord(p.mem, 64, 7)
		for range left {
			require.True(t, p.r.Push(&WC{QPN: 1}))
		}
		require.Equal(t, left == 0, p.q.Empty())
		clear(p.mem)
		require.Zero(t, p.q.Take(got), left)
		require.True(t, p.q.Empty(), left)
	}
}

// TestArm: which completion wakes whom, and that it does once.
func TestArm(t *testing.T) {
	for _, c := range []struct {
		name             string
		arm              []bool
		flags            uint32
		plain, solicited bool // what wakes
	}{
		{"not armed", nil, 0, false, false},
		{"any", []bool{false}, 1, true, true},
		{"solicited", []bool{true}, 2, false, true},
		{"both", []bool{true, false}, 3, true, true},
	} {
		for _, solicited := range []bool{false, true} {
			p := newCompPair(t, 4, 0)
			for _, a := range c.arm {
				p.q.Arm(a)
			}
			require.Equal(t, c.flags, word(p.mem, 128), c.name)
			setWord(p.mem, 128, c.flags|4) // overflown, and stays so
			wakes := c.plain && !solicited || c.solicited && solicited
			require.Equal(t, wakes, p.r.Disarm(solicited), c.name)
			left := c.flags | 4
			if wakes {
				left = 4
			}
			require.Equal(t, left, word(p.mem, 128), c.name)
			require.Equal(t, left&2 != 0, p.r.Disarm(true), c.name)
			require.EqualValues(t, 4, word(p.mem, 128), c.name)
			require.False(t, p.r.Disarm(true), c.name)
		}
	}
}

// TestCompProperty: any completions come out once, in order and as they were.
func TestCompProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 9).Draw(t, "depth")
		p := newCompPair(t, depth, -rapid.Uint32Range(0, 30).Draw(t, "start"))
		var pushed []WC
		lost := false
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				w := WC{
					ID: rapid.Uint64().Draw(t, "id"), Status: WCStatus(rapid.Byte().Draw(t, "status")), Opcode: WCOpcode(rapid.Byte().Draw(t, "opcode")),
					Flags: WCFlags(rapid.Byte().Draw(t, "flags")), Reason: trace.Reason(rapid.Byte().Draw(t, "reason")),
					VendorErr: rapid.Uint32().Draw(t, "vendor"), ByteLen: rapid.Uint32().Draw(t, "len"), Imm: rapid.Uint32().Draw(t, "imm"),
					QPN: rapid.Uint32().Draw(t, "qpn"), SrcQP: rapid.Uint32().Draw(t, "src"),
				}
				room := len(pushed) < int(p.r.ring.Units())
				require.Equal(t, room, p.r.Push(&w))
				if room {
					pushed = append(pushed, w)
				}
				lost = lost || !room
			},
			"take": func(t *rapid.T) {
				got := make([]WC, rapid.IntRange(0, 10).Draw(t, "room"))
				n := p.q.Take(got)
				require.Equal(t, min(len(got), len(pushed)), n)
				require.Equal(t, append([]WC{}, pushed[:n]...), append([]WC{}, got[:n]...))
				pushed = pushed[n:]
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(pushed) == 0, p.q.Empty())
				require.Equal(t, lost, p.q.Overflown())
			},
		})
	})
}
