package verbs

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// field is one row of a table of docs/rings.md, and the value it has to have.
type field struct {
	octet int
	typ   string
	what  string // the row's text contains it
	want  uint64
}

// docRows returns octet, type and text of the rows of a section's table; the
// type of a row of the common part stands in its text.
func docRows(t *testing.T, section string) []field {
	t.Helper()
	text, err := os.ReadFile("../docs/rings.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, ok, "docs/rings.md has no section %s", section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	var rows []field
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]*)\| ([^|]*) \|$`).FindAllStringSubmatch(rest, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		rows = append(rows, field{octet: n, typ: strings.TrimSpace(m[2]), what: m[3]})
	}
	return rows
}

// checkDoc compares a test's table with the document's.
func checkDoc(t *testing.T, section string, fs []field) {
	t.Helper()
	rows := docRows(t, section)
	require.Len(t, rows, len(fs), section)
	for i, f := range fs {
		require.Equal(t, f.octet, rows[i].octet, f.what)
		require.Equal(t, f.typ, rows[i].typ, f.what)
		require.Contains(t, rows[i].what, f.what)
	}
}

// checkOctets compares what stands at literal offsets.
func checkOctets(t *testing.T, b []byte, fs []field) {
	t.Helper()
	for _, f := range fs {
		var got uint64
		switch f.typ {
		case "u8":
			got = uint64(b[f.octet])
		case "u32":
			got = uint64(binary.LittleEndian.Uint32(b[f.octet:]))
		case "u64":
			got = binary.LittleEndian.Uint64(b[f.octet:])
		default:
			t.Fatalf("%s: type %q", f.what, f.typ)
		}
		require.Equal(t, f.want, got, "octet %d, %s", f.octet, f.what)
	}
}

func word(mem []byte, octet int) uint32 { return binary.LittleEndian.Uint32(mem[octet:]) }

func setWord(mem []byte, octet int, v uint32) { binary.LittleEndian.PutUint32(mem[octet:], v) }

// TestCommonLayout: control words and first unit are where docs/rings.md says.
func TestCommonLayout(t *testing.T) {
	rows := docRows(t, "Common part")
	for i, want := range []field{
		{octet: 0, typ: "producer index, u32", what: "producer"},
		{octet: 64, typ: "consumer index, u32", what: "consumer"},
		{octet: 68, typ: "work requests retired, u32 (SQ only)", what: "NIC"},
		{octet: 128, typ: "flags, u32", what: "both, atomically"},
		{octet: 132, typ: "notifications, u32 (CQ between processes only)", what: "NIC; who waits loads it"},
		{octet: 192, typ: "units of 64 octets, a power of two of them", what: "producer"},
	} {
		require.Equal(t, want, rows[i])
	}
	require.Len(t, rows, 6)

	mem := NewRingMem(4)
	require.Len(t, mem, 192+4*64)
	r, ok := MakeRing(mem)
	require.True(t, ok)
	r.prod.Store(0x01020304)
	r.cons.Store(0x11121314)
	r.ret.Store(0x21222324)
	r.flag.Store(0x31323334)
	r.note.Store(0x41424344)
	for i := range uint32(4) {
		for k := range r.unit(i) {
			r.unit(i)[k] = byte(0x40 + i)
		}
	}
	want := make([]byte, 192, len(mem))
	for octet, v := range map[int]uint32{0: 0x01020304, 64: 0x11121314, 68: 0x21222324, 128: 0x31323334, 132: 0x41424344} {
		setWord(want, octet, v)
	}
	for i := range byte(4) {
		want = append(want, bytes.Repeat([]byte{0x40 + i}, 64)...)
	}
	require.Equal(t, want, mem)
}

// TestMakeRing: memory that is too short, not aligned or not a power of two of
// units is no ring; a last part of a unit does not count.
func TestMakeRing(t *testing.T) {
	for n, want := range map[int]uint32{
		0: 0, 1: 0, 63: 0, 64: 0, 191: 0, 192: 0, 193: 0, 255: 0,
		256: 1, 257: 1, 319: 1, 320: 2, 383: 2, 384: 0, 447: 0, 448: 4,
	} {
		r, ok := MakeRing(NewRingMem(8)[:n])
		require.Equal(t, want != 0, ok, n)
		if ok {
			require.Equal(t, want, r.Units(), n)
			require.Len(t, r.mem, int(want)*64)
		}
	}
	_, ok := MakeRing(nil)
	require.False(t, ok)
	mem := NewRingMem(9)
	for off := 1; off < 8; off++ {
		_, ok := MakeRing(mem[off : off+192+256])
		require.False(t, ok, "alignment to %d", off)
	}
	short := NewRingMem(4)[:300]
	_, err := NewSendQueue(short[:200], QPCap{})
	require.ErrorContains(t, err, "wrong size")
	_, err = NewRecvQueue(short[:200], 1, 0)
	require.ErrorContains(t, err, "wrong size")
	_, err = NewCompQueue(short[:200])
	require.ErrorContains(t, err, "wrong size")
	_, ok = NewSendRing(short[:200])
	require.False(t, ok)
	_, ok = NewRecvRing(short[:200], 1)
	require.False(t, ok)
	_, ok = NewCompRing(short[:200])
	require.False(t, ok)
}

// TestRingBytes: units are rounded up to a power of two, and a length that no
// memory has is not waited for.
func TestRingBytes(t *testing.T) {
	for units, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 1000: 1024, MaxCQE: MaxCQE, MaxQPWR * 9: 1 << 19} {
		require.Equal(t, 192+64*want, RingBytes(units), units)
	}
	_, ok := MakeRing(NewRingMem(math.MaxInt))
	require.False(t, ok)
}

// TestRingWrap: indexes run freely over 2^32, and copies go around the end.
func TestRingWrap(t *testing.T) {
	for _, units := range []int{1, 2, 8, 16} {
		r, _ := MakeRing(NewRingMem(units))
		for i := uint32(math.MaxUint32 - 20); i != 20; i++ {
			r.unit(i)[5] = byte(i)
			require.Equal(t, byte(i), r.mem[int(i%uint32(units))*64+5])
			b := make([]byte, units*64)
			for k := range b {
				b[k] = byte(uint32(k) + i)
			}
			r.copyIn(i, b)
			for _, off := range []int{0, 1, 63, 64, 100, units*64 - 1} {
				off %= units * 64
				got := make([]byte, units*64-off)
				r.copyOut(got, i, off)
				require.Equal(t, b[off:], got, "units %d, index %d, offset %d", units, i, off)
			}
		}
	}
}
