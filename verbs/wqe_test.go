package verbs

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sendPair is both sides of a send ring.
type sendPair struct {
	mem []byte
	q   *SendQueue
	r   *SendRing
}

// newSendPair makes a ring of units whose indexes and counts begin at start,
// its units full of old data.
func newSendPair(t require.TestingT, units int, start uint32, c QPCap) *sendPair {
	p := &sendPair{mem: NewRingMem(units)}
	for i := range p.mem[192:] {
		p.mem[192+i] = 0xee
	}
	for _, octet := range []int{0, 64, 68} {
		setWord(p.mem, octet, start)
	}
	var err error
	p.q, err = NewSendQueue(p.mem, c)
	require.NoError(t, err)
	p.q.prod, p.q.posted = start, start
	var ok bool
	p.r, ok = NewSendRing(p.mem)
	require.True(t, ok)
	p.r.next, p.r.ret, p.r.wrs = start, start, start
	return p
}

func sges(n int) []SGE {
	s := make([]SGE, n)
	for i := range s {
		s[i] = SGE{Addr: 0x0101010101010101 * uint64(i+1), Length: 0x01010101 * uint32(i+2), LKey: 0x01010101 * uint32(i+3)}
	}
	return s
}

func octets(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// check fetches one request and compares it with what was put.
func (p *sendPair) check(t require.TestingT, w *SendWR) SendWQE {
	var e SendWQE
	sgl := make([]SGE, MaxSGE)
	at := p.r.next
	more, ok := p.r.Fetch(&e, sgl)
	require.True(t, more)
	require.True(t, ok)
	want := SendWQE{
		ID: w.ID, RemoteAddr: w.RemoteAddr, CompareAdd: w.CompareAdd, Swap: w.Swap, RKey: w.RKey, Imm: w.Imm,
		RemoteQPN: w.RemoteQPN, RemoteQKey: w.RemoteQKey, AH: w.AH, Opcode: w.Opcode, Flags: w.Flags, Index: at,
	}
	if w.Flags&SendInline != 0 {
		want.InlineLen, want.Units = uint32(len(w.Inline)), uint8(1+(len(w.Inline)+63)/64)
	} else {
		want.NumSGE, want.Units = uint8(len(w.SGL)), uint8(1+(len(w.SGL)*16+63)/64)
		require.Equal(t, append([]SGE{}, w.SGL...), sgl[:e.NumSGE])
	}
	require.Equal(t, want, e)
	if n := len(w.Inline); w.Flags&SendInline != 0 && n > 0 {
		for _, off := range []int{0, n / 3, n - 1} {
			b := make([]byte, n-off)
			p.r.Inline(b, &e, off)
			require.Equal(t, w.Inline[off:], b)
		}
	}
	return e
}

// TestSendLayout: every field of a send WQE stands at the octet that
// docs/rings.md gives, and nothing of what stood there before remains.
func TestSendLayout(t *testing.T) {
	w := SendWR{
		ID: 0x1011121314151617, Opcode: WRSendInv, Flags: SendFence | SendSignaled | SendSolicited, SGL: sges(5),
		RemoteAddr: 0x2021222324252627, RKey: 0x30313233, Imm: 0x40414243, CompareAdd: 0x5051525354555657,
		Swap: 0x6061626364656667, RemoteQPN: 0x70717273, RemoteQKey: 0x80818283, AH: 0x90919293,
	}
	layout := []field{
		{0, "u8", "opcode", 9},
		{1, "u8", "flags: 1 fence, 2 signaled, 4 solicited, 8 inline", 7},
		{2, "u8", "number of scatter/gather entries", 5},
		{3, "u8", "units of this WQE, header included", 3},
		{4, "u32", "octets of inline data", 0},
		{8, "u64", "wr_id", 0x1011121314151617},
		{16, "u64", "remote address", 0x2021222324252627},
		{24, "u32", "R_Key", 0x30313233},
		{28, "u32", "immediate data, or key to invalidate", 0x40414243},
		{32, "u64", "compare or add value", 0x5051525354555657},
		{40, "u64", "swap value", 0x6061626364656667},
		{48, "u32", "remote QPN", 0x70717273},
		{52, "u32", "remote Q_Key", 0x80818283},
		{56, "u32", "address handle", 0x90919293},
		{60, "u32", "cookie", 0xa0a1a2a3},
	}
	checkDoc(t, "Send ring", layout)
	p := newSendPair(t, 16, 1, QPCap{MaxSendWR: 8, MaxSendSGE: 5, MaxInline: 100})
	require.NoError(t, p.q.put(&w, 0xa0a1a2a3))
	require.EqualValues(t, 1, word(p.mem, 0), "visible before Publish")
	p.q.Publish()
	require.EqualValues(t, 4, word(p.mem, 0))
	unit := func(i int) []byte { return p.mem[192+64*i:][:64] }
	checkOctets(t, unit(1), layout)
	for i, s := range w.SGL { // address u64, length u32, L_Key u32, in the units that follow
		checkOctets(t, unit(2 + i/4)[i%4*16:], []field{{0, "u64", "address", s.Addr}, {8, "u32", "length", uint64(s.Length)}, {12, "u32", "L_Key", uint64(s.LKey)}})
	}
	var e SendWQE
	more, ok := p.r.Fetch(&e, make([]SGE, 5))
	require.True(t, more && ok)
	require.EqualValues(t, 0xa0a1a2a3, e.Cookie)
	layout[len(layout)-1].want = 0

	w.Opcode, w.Flags, w.Inline = WRWrite, SendInline, octets(100)
	require.NoError(t, p.q.Put(&w))
	p.q.Publish()
	for i, v := range []uint64{0, 8, 0, 3, 100} {
		layout[i].want = v
	}
	checkOctets(t, unit(4), layout)
	require.Equal(t, w.Inline, p.mem[192+64*5:][:100])
	p.check(t, &w)

	p.r.Retire(&e)
	require.EqualValues(t, 4, word(p.mem, 64), "consumer index")
	require.EqualValues(t, 2, word(p.mem, 68), "work requests retired")
}

// TestSendSizes: 0 to 32 entries and 0 to 512 octets of inline data, at every
// place of the ring, with indexes that pass 2^32.
func TestSendSizes(t *testing.T) {
	c := QPCap{MaxSendWR: 4, MaxSendSGE: MaxSGE, MaxInline: MaxInline}
	p := newSendPair(t, 16, math.MaxUint32-2000, c)
	at := map[uint32]int{}
	run := func(w *SendWR) {
		at[p.q.prod%16]++
		require.NoError(t, p.q.Put(w))
		require.False(t, p.r.Pending())
		p.q.Publish()
		require.True(t, p.r.Pending())
		e := p.check(t, w)
		p.r.Retire(&e)
		require.Equal(t, p.q.prod, p.r.ret)
		require.Equal(t, p.q.posted, p.r.wrs)
	}
	for range 20 {
		for n := range MaxSGE + 1 {
			run(&SendWR{ID: uint64(n), Opcode: WRRead, SGL: sges(n)})
		}
	}
	for n := range MaxInline + 1 { // B54: inline 0 to max
		run(&SendWR{ID: uint64(n), Opcode: WRSend, Flags: SendInline, Inline: octets(n)})
	}
	require.Len(t, at, 16)
	require.Less(t, p.q.prod, uint32(1<<20), "indexes did not pass 2^32")
	more, ok := p.r.Fetch(&SendWQE{}, nil)
	require.False(t, more)
	require.True(t, ok)
}

// TestSendLimits: one entry or octet too many is refused and says why, and
// leaves no trace. B54.
func TestSendLimits(t *testing.T) {
	for _, c := range []QPCap{
		{MaxSendWR: 4, MaxSendSGE: 0, MaxInline: 0}, {MaxSendWR: 4, MaxSendSGE: 3, MaxInline: 65}, {MaxSendWR: 4, MaxSendSGE: MaxSGE, MaxInline: MaxInline},
	} {
		p := newSendPair(t, 32, 0, c)
		err := p.q.Put(&SendWR{SGL: make([]SGE, c.MaxSendSGE+1)})
		require.ErrorIs(t, err, ErrInvalidWR)
		require.ErrorContains(t, err, fmt.Sprintf("%d scatter/gather entries, the queue pair was created for %d (QPCap.MaxSendSGE)", c.MaxSendSGE+1, c.MaxSendSGE))
		err = p.q.Put(&SendWR{Flags: SendInline, Inline: make([]byte, c.MaxInline+1)})
		require.ErrorIs(t, err, ErrInvalidWR)
		require.ErrorContains(t, err, fmt.Sprintf("%d octets of inline data, the queue pair was created for %d (QPCap.MaxInline)", c.MaxInline+1, c.MaxInline))
		for _, o := range []WROpcode{WRRead, WRCmpSwap, WRFetchAdd} {
			require.ErrorContains(t, p.q.Put(&SendWR{Opcode: o, Flags: SendInline}), o.String()+" returns data")
		}
		require.Zero(t, p.q.prod)
		require.Zero(t, p.q.posted)
		require.NoError(t, p.q.Put(&SendWR{SGL: sges(c.MaxSendSGE)}))
		require.NoError(t, p.q.Put(&SendWR{Flags: SendInline, Inline: octets(c.MaxInline), SGL: make([]SGE, MaxSGE+1)}), "SGL counts although inline")
	}
	mem := NewRingMem(8)
	for _, c := range []QPCap{
		{MaxSendWR: -1}, {MaxSendWR: MaxQPWR + 1}, {MaxSendSGE: -1}, {MaxSendSGE: MaxSGE + 1}, {MaxInline: -1}, {MaxInline: MaxInline + 1},
	} {
		_, err := NewSendQueue(mem, c)
		require.ErrorContains(t, err, "limits", c)
	}
	_, err := NewSendQueue(mem, QPCap{MaxSendWR: 1, MaxInline: 512})
	require.ErrorContains(t, err, "8 units, a request may take 9")
	_, err = NewSendQueue(mem, QPCap{MaxSendWR: 1, MaxSendSGE: 28})
	require.NoError(t, err)
}

// TestSendFull: small and large requests mixed. As many as max_send_wr fit
// when the ring is made for them, no more, and each retired one makes room for
// one.
func TestSendFull(t *testing.T) {
	for _, wr := range []int{1, 3, 4, 7, 100} { // also not powers of two
		c := QPCap{MaxSendWR: wr, MaxSendSGE: 6, MaxInline: 200}
		p := newSendPair(t, wr*SendUnits(6, 200), math.MaxUint32-uint32(2*wr), c)
		var held []SendWQE
		id := uint64(0)
		post := func() error {
			w := SendWR{ID: id, Opcode: WRSend, SGL: sges(int(id) % 7)}
			if id%3 == 0 {
				w.Flags, w.Inline = SendInline, octets(200)
			}
			if err := p.q.Put(&w); err != nil {
				return err
			}
			p.q.Publish()
			held = append(held, p.check(t, &w))
			id++
			return nil
		}
		for range wr {
			require.NoError(t, post())
		}
		for range 5 * wr {
			require.ErrorIs(t, post(), ErrQueueFull)
			p.r.Retire(&held[0])
			held = held[1:]
			require.NoError(t, post())
		}
		require.Less(t, p.q.posted, uint32(1<<16), "the count did not pass 2^32")
	}
	// A ring with fewer units than max_send_wr largest requests is full when
	// its units are, and the units that lie before its end are used.
	p := newSendPair(t, 4, 0, QPCap{MaxSendWR: 4, MaxSendSGE: 4})
	big, small := SendWR{SGL: sges(1)}, SendWR{}
	require.NoError(t, p.q.Put(&big))
	require.NoError(t, p.q.Put(&small))
	require.ErrorIs(t, p.q.Put(&big), ErrQueueFull)
	require.NoError(t, p.q.Put(&small))
	require.ErrorIs(t, p.q.Put(&small), ErrQueueFull)
}

// TestSendHostile: whatever a producer writes, Fetch takes only what is a WQE,
// and says so of the rest without moving.
func TestSendHostile(t *testing.T) {
	start := uint32(math.MaxUint32 - 3)
	head := func(p *sendPair) []byte { return p.mem[192+64*(start%16):] }
	refused := map[string]func(p *sendPair){
		"index jump":             func(p *sendPair) { setWord(p.mem, 0, start+17) },
		"index far ahead":        func(p *sendPair) { setWord(p.mem, 0, start+1<<31) },
		"index behind":           func(p *sendPair) { setWord(p.mem, 0, start-1) },
		"no units":               func(p *sendPair) { head(p)[3] = 0 },
		"a unit too few":         func(p *sendPair) { head(p)[3] = 2 },
		"a unit too many":        func(p *sendPair) { head(p)[3] = 4 },
		"255 units":              func(p *sendPair) { head(p)[3] = 255 },
		"255 entries":            func(p *sendPair) { head(p)[2], head(p)[3] = 255, 65 },
		"more entries than room": func(p *sendPair) { head(p)[2] = 9; head(p)[3] = 4 },
		"entry less":             func(p *sendPair) { head(p)[2] = 4 },
		"half published":         func(p *sendPair) { setWord(p.mem, 0, start+2) },
		"inline with entries":    func(p *sendPair) { head(p)[1] = 8; setWord(head(p), 4, 80) },
		"inline of 513":          func(p *sendPair) { inlineHead(head(p), 513, 10) },
		"inline of 2^32-1":       func(p *sendPair) { inlineHead(head(p), math.MaxUint32, 2) },
		"inline of 2^31":         func(p *sendPair) { inlineHead(head(p), 1<<31, 1) },
		"inline, a unit less":    func(p *sendPair) { inlineHead(head(p), 65, 2) },
		"inline, a unit more":    func(p *sendPair) { inlineHead(head(p), 64, 3) },
		"length without inline":  func(p *sendPair) { setWord(head(p), 4, 1) },
	}
	for name, spoil := range refused {
		p := newSendPair(t, 16, start, QPCap{MaxSendWR: 8, MaxSendSGE: 8, MaxInline: 512})
		require.NoError(t, p.q.Put(&SendWR{ID: 7, SGL: sges(5)}))
		p.q.Publish()
		for range 3 { // more requests, so that the units of the first are all there
			if name != "half published" {
				require.NoError(t, p.q.Put(&SendWR{ID: 8, SGL: sges(5)}))
				p.q.Publish()
			}
		}
		spoil(p)
		for range 2 {
			more, ok := p.r.Fetch(&SendWQE{}, make([]SGE, 8))
			require.True(t, more, name)
			require.False(t, ok, name)
			require.Equal(t, start, p.r.next, name)
		}
		p.q.Reset()
		p.r.Reset()
		require.Zero(t, word(p.mem, 0)|word(p.mem, 64)|word(p.mem, 68))
		more, ok := p.r.Fetch(&SendWQE{}, nil)
		require.False(t, more)
		require.True(t, ok)
		w := SendWR{ID: 9, SGL: sges(2)}
		require.NoError(t, p.q.Put(&w))
		p.q.Publish()
		e := p.check(t, &w)
		p.r.Retire(&e)
		require.EqualValues(t, 1, word(p.mem, 68), name)
	}
	// Units that were not retired are not the producer's.
	p := newSendPair(t, 16, start, QPCap{MaxSendWR: 8, MaxSendSGE: 8})
	w := SendWR{SGL: sges(5)}
	for range 2 {
		require.NoError(t, p.q.Put(&w))
	}
	p.q.Publish()
	p.check(t, &w)
	setWord(p.mem, 0, start+17)
	more, ok := p.r.Fetch(&SendWQE{}, make([]SGE, 8))
	require.True(t, more)
	require.False(t, ok)
	// 512 octets of inline data are taken whatever the queue pair was made for.
	p = newSendPair(t, 16, start, QPCap{MaxSendWR: 8})
	inlineHead(head(p), 512, 9)
	setWord(p.mem, 0, start+9)
	var e SendWQE
	more, ok = p.r.Fetch(&e, nil)
	require.True(t, more && ok)
	require.EqualValues(t, 512, e.InlineLen)
}

func inlineHead(h []byte, n uint32, units byte) {
	h[1], h[2], h[3] = 8, 0, units
	setWord(h, 4, n)
}

// TestSendCopied: what a producer changes after the fetch changes nothing, the
// units retired included.
func TestSendCopied(t *testing.T) {
	p := newSendPair(t, 16, 0, QPCap{MaxSendWR: 8, MaxSendSGE: 5, MaxInline: 64})
	w := SendWR{ID: 5, Opcode: WRWrite, SGL: sges(5), RKey: 6}
	require.NoError(t, p.q.Put(&w))
	p.q.Publish()
	var e SendWQE
	sgl := make([]SGE, 8)
	more, ok := p.r.Fetch(&e, sgl)
	require.True(t, more && ok)
	before := e
	for i := range p.mem[192:] {
		p.mem[192+i] = 0xff
	}
	setWord(p.mem, 64, 0x12345678) // not the producer's to write
	setWord(p.mem, 68, 0x12345678)
	require.Equal(t, before, e)
	require.Equal(t, w.SGL, sgl[:5])
	p.r.Retire(&e)
	require.EqualValues(t, 3, word(p.mem, 64))
	require.EqualValues(t, 1, word(p.mem, 68))
	// Inline data beyond the ring's end are the ring's own octets.
	e = SendWQE{Index: math.MaxUint32, InlineLen: MaxInline}
	p.r.Inline(make([]byte, MaxInline), &e, 0)
	p.r.Inline(make([]byte, MaxInline), &e, 1<<20)
}

// drawWR draws any send request that fits the limits.
func drawWR(t *rapid.T, c QPCap) SendWR {
	w := SendWR{
		ID: rapid.Uint64().Draw(t, "id"), Opcode: WROpcode(rapid.Byte().Draw(t, "opcode")), Flags: SendFlags(rapid.Byte().Draw(t, "flags")),
		RemoteAddr: rapid.Uint64().Draw(t, "raddr"), RKey: rapid.Uint32().Draw(t, "rkey"), Imm: rapid.Uint32().Draw(t, "imm"),
		CompareAdd: rapid.Uint64().Draw(t, "add"), Swap: rapid.Uint64().Draw(t, "swap"), RemoteQPN: rapid.Uint32().Draw(t, "qpn"),
		RemoteQKey: rapid.Uint32().Draw(t, "qkey"), AH: rapid.Uint32().Draw(t, "ah"),
	}
	w.Bind = Bind{Key: w.RKey, NewKey: w.Imm, LKey: uint32(w.Swap), Addr: w.RemoteAddr, Length: w.CompareAdd, Access: Access(w.Swap >> 32)}
	if w.Flags&SendInline != 0 {
		w.Inline = rapid.SliceOfN(rapid.Byte(), 0, c.MaxInline).Draw(t, "inline")
		if slices.Contains([]WROpcode{WRRead, WRCmpSwap, WRFetchAdd}, w.Opcode) {
			w.Opcode = WRSend
		}
		return w
	}
	w.SGL = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) SGE {
		return SGE{rapid.Uint64().Draw(t, "addr"), rapid.Uint32().Draw(t, "len"), rapid.Uint32().Draw(t, "lkey")}
	}), 0, c.MaxSendSGE).Draw(t, "sgl")
	return w
}

// TestSendProperty: any requests, put, published, fetched and retired in any
// order, come out as they went in, and are refused only for want of room.
func TestSendProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := QPCap{
			MaxSendWR: rapid.IntRange(1, 9).Draw(t, "wr"), MaxSendSGE: rapid.IntRange(0, MaxSGE).Draw(t, "sge"),
			MaxInline: rapid.IntRange(0, MaxInline).Draw(t, "inline"),
		}
		units := SendUnits(c.MaxSendSGE, c.MaxInline) * rapid.IntRange(1, c.MaxSendWR).Draw(t, "rooms")
		p := newSendPair(t, units, -rapid.Uint32Range(0, 99).Draw(t, "start"), c)
		var put, posted []SendWR
		var fetched []SendWQE
		used := 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				w := drawWR(t, c)
				n := SendUnits(len(w.SGL), len(w.Inline))
				full := len(put)+len(posted)+len(fetched) == c.MaxSendWR || used+n > int(p.r.ring.Units())
				if err := p.q.Put(&w); full {
					require.ErrorIs(t, err, ErrQueueFull)
					return
				} else {
					require.NoError(t, err)
				}
				put, used = append(put, w), used+n
			},
			"publish": func(*rapid.T) {
				p.q.Publish()
				posted, put = append(posted, put...), nil
			},
			"fetch": func(t *rapid.T) {
				require.Equal(t, len(posted) > 0, p.r.Pending())
				if len(posted) == 0 {
					t.Skip("nothing posted")
				}
				fetched, posted = append(fetched, p.check(t, &posted[0])), posted[1:]
			},
			"retire": func(t *rapid.T) {
				if len(fetched) == 0 {
					t.Skip("nothing fetched")
				}
				p.r.Retire(&fetched[0])
				used, fetched = used-int(fetched[0].Units), fetched[1:]
			},
		})
	})
}

// TestUnits: the lengths of WQEs in units.
func TestUnits(t *testing.T) {
	for sge, want := range map[int]int{0: 1, 1: 2, 4: 2, 5: 3, 8: 3, 9: 4, 32: 9} {
		require.Equal(t, want, SendUnits(sge, 0), sge)
		require.Equal(t, want, SendUnits(0, sge*16), sge)
	}
	require.Equal(t, 9, MaxSendUnits)
	require.Equal(t, 3, SendUnits(1, 65))
	for sge, want := range map[int]int{0: 1, 1: 1, 3: 1, 4: 2, 7: 2, 8: 3, 31: 8, 32: 9} { // ceil((16 + 16 * sge) / 64)
		require.Equal(t, want, RecvUnits(sge), sge)
		require.Equal(t, (16+16*sge+63)/64, RecvUnits(sge))
	}
}

// recvPair is both sides of a receive ring.
type recvPair struct {
	mem []byte
	q   *RecvQueue
	r   *RecvRing
}

func newRecvPair(t require.TestingT, wr, sge int, start uint32) *recvPair {
	p := &recvPair{mem: NewRingMem(wr * RecvUnits(sge))}
	for i := range p.mem[192:] {
		p.mem[192+i] = 0xee
	}
	setWord(p.mem, 0, start)
	setWord(p.mem, 64, start)
	var err error
	p.q, err = NewRecvQueue(p.mem, wr, sge)
	require.NoError(t, err)
	p.q.prod = start
	var ok bool
	p.r, ok = NewRecvRing(p.mem, sge)
	require.True(t, ok)
	p.r.next = start
	return p
}

// TestRecvLayout: every field of a receive WQE stands at the octet that
// docs/rings.md gives.
func TestRecvLayout(t *testing.T) {
	layout := []field{
		{0, "u32", "number of scatter/gather entries", 5},
		{4, "u32", "cookie", 0x20212223},
		{8, "u64", "wr_id", 0x1011121314151617},
		{16, "", "scatter/gather entries", 0},
	}
	checkDoc(t, "Receive ring", layout)
	p := newRecvPair(t, 4, 5, 2)
	w := RecvWR{ID: 0x1011121314151617, SGL: sges(5)}
	require.NoError(t, p.q.put(&w, 0x20212223))
	require.EqualValues(t, 2, word(p.mem, 0), "visible before Publish")
	p.q.Publish()
	require.EqualValues(t, 4, word(p.mem, 0))
	h := p.mem[192+2*64:]
	checkOctets(t, h, layout[:3])
	for i, s := range w.SGL {
		checkOctets(t, h[16+16*i:], []field{{0, "u64", "address", s.Addr}, {8, "u32", "length", uint64(s.Length)}, {12, "u32", "L_Key", uint64(s.LKey)}})
	}
	require.EqualValues(t, 2, word(p.mem, 64))
	id, _, ok := p.r.Fetch(make([]SGE, 5))
	require.True(t, ok)
	require.Equal(t, RecvID{0x1011121314151617, 0x20212223}, id)
	require.EqualValues(t, 4, word(p.mem, 64))
	require.NoError(t, p.q.Put(&w))
	p.q.Publish()
	id, _, _ = p.r.Fetch(make([]SGE, 5))
	require.Equal(t, RecvID{ID: 0x1011121314151617}, id, "of the public Put")

	p.r.SetFlushing(true)
	require.EqualValues(t, 1, word(p.mem, 128))
	require.True(t, p.q.flushing())
	setWord(p.mem, 128, 0x11)
	p.r.SetFlushing(false)
	require.EqualValues(t, 0x10, word(p.mem, 128), "flags of nobody")
	require.False(t, p.q.flushing())
}

// TestRecvSizes: 0 to 32 entries in queues of any size and depth, indexes that
// pass 2^32, full and empty.
func TestRecvSizes(t *testing.T) {
	for sge := range MaxSGE + 1 {
		for _, wr := range []int{1, 3, 5, 8} {
			p := newRecvPair(t, wr, sge, uint32(-RecvUnits(sge)*(wr+1)))
			sgl := make([]SGE, sge)
			n := 0
			put := func() error {
				err := p.q.Put(&RecvWR{ID: uint64(n), SGL: sges(n % (sge + 1))})
				p.q.Publish()
				if err == nil {
					n++
				}
				return err
			}
			for range wr {
				require.NoError(t, put())
			}
			for i := range 4 * wr {
				require.Equal(t, wr, p.r.Len())
				require.ErrorIs(t, put(), ErrQueueFull)
				id, k, ok := p.r.Fetch(sgl)
				require.True(t, ok)
				require.EqualValues(t, i, id.ID)
				require.Equal(t, sges(i%(sge+1)), append([]SGE{}, sgl[:k]...))
				require.Equal(t, wr-1, p.r.Len())
				require.NoError(t, put())
			}
			for range wr {
				_, _, ok := p.r.Fetch(sgl)
				require.True(t, ok)
			}
			_, _, ok := p.r.Fetch(sgl)
			require.False(t, ok)
			require.Zero(t, p.r.Len())
			err := p.q.Put(&RecvWR{SGL: make([]SGE, sge+1)})
			require.ErrorIs(t, err, ErrInvalidWR)
			require.ErrorContains(t, err, fmt.Sprintf("%d scatter/gather entries, the queue was created for %d (MaxRecvSGE)", sge+1, sge))
			require.Less(t, p.q.prod, uint32(1<<20), "indexes did not pass 2^32")
		}
	}
}

// TestRecvLimits: rings too small for what they are to hold, and sizes beyond
// the limits, are refused.
func TestRecvLimits(t *testing.T) {
	mem := NewRingMem(16)
	for _, c := range [][2]int{{-1, 1}, {MaxQPWR + 1, 1}, {1, -1}, {1, MaxSGE + 1}, {math.MaxInt, 1}} {
		_, err := NewRecvQueue(mem, c[0], c[1])
		require.ErrorContains(t, err, "limits", c)
	}
	_, err := NewRecvQueue(mem, 8, 7)
	require.NoError(t, err)
	_, err = NewRecvQueue(mem, 9, 7)
	require.ErrorContains(t, err, "16 units, its requests may take 18")
}

// TestRecvHostile: whatever a producer writes, Fetch ends, takes only what is a
// WQE, and gives back each request once.
func TestRecvHostile(t *testing.T) {
	start := uint32(math.MaxUint32 - 1) // of a ring of 8 requests of 2 units
	head := func(p *recvPair) []byte { return p.mem[192+64*(start%16):] }
	fill := func() *recvPair {
		p := newRecvPair(t, 8, 5, start)
		for i := range 3 {
			require.NoError(t, p.q.Put(&RecvWR{ID: uint64(i), SGL: sges(5)}))
		}
		p.q.Publish()
		return p
	}
	for _, c := range []struct {
		n    uint32
		room int
	}{{6, 5}, {8, 300}, {255, 300}, {1 << 31, 300}, {math.MaxUint32, 300}} { // more than the NIC has room for, or than the WQE
		p := fill()
		setWord(head(p), 0, c.n)
		id, k, ok := p.r.Fetch(make([]SGE, c.room))
		require.True(t, ok, c.n)
		require.Equal(t, -1, k, c.n)
		require.Zero(t, id)
		id, k, ok = p.r.Fetch(make([]SGE, 5)) // the next is a WQE again
		require.True(t, ok)
		require.Equal(t, 5, k)
		require.EqualValues(t, 1, id.ID)
	}
	p := fill() // more entries than the NIC has room for
	_, k, ok := p.r.Fetch(make([]SGE, 4))
	require.True(t, ok)
	require.Equal(t, -1, k)

	// An index that jumps ends the queue at once: a NIC that flushes it does
	// not go through 2^32 requests.
	for _, jump := range []uint32{17, 1000, 1 << 31, math.MaxUint32} {
		p := fill()
		setWord(p.mem, 0, start+jump)
		require.LessOrEqual(t, p.r.Len(), 8)
		_, k, ok := p.r.Fetch(make([]SGE, 5))
		require.True(t, ok)
		require.Equal(t, -1, k)
		_, _, ok = p.r.Fetch(make([]SGE, 5))
		require.False(t, ok)
		require.Zero(t, p.r.Len())
		p.q.Reset()
		p.r.Reset()
		require.NoError(t, p.q.Put(&RecvWR{ID: 9}))
		p.q.Publish()
		id, k, ok := p.r.Fetch(nil)
		require.True(t, ok)
		require.Zero(t, k)
		require.EqualValues(t, 9, id.ID)
	}
	// Part of a request is none.
	p = newRecvPair(t, 8, 5, start)
	setWord(p.mem, 0, math.MaxUint32)
	_, _, ok = p.r.Fetch(make([]SGE, 5))
	require.False(t, ok)
	require.Zero(t, p.r.Len())
}

// TestRecvProperty: any receive requests come out as they went in.
func TestRecvProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wr, sge := rapid.IntRange(1, 9).Draw(t, "wr"), rapid.IntRange(0, MaxSGE).Draw(t, "sge")
		p := newRecvPair(t, wr, sge, uint32(-RecvUnits(sge)*rapid.IntRange(0, 20).Draw(t, "start")))
		var posted []RecvWR
		sgl := make([]SGE, sge)
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) {
				w := RecvWR{ID: rapid.Uint64().Draw(t, "id"), SGL: drawWR(t, QPCap{MaxSendSGE: sge}).SGL}
				if err := p.q.Put(&w); len(posted) == wr {
					require.ErrorIs(t, err, ErrQueueFull)
					return
				} else {
					require.NoError(t, err)
				}
				p.q.Publish()
				posted = append(posted, w)
			},
			"fetch": func(t *rapid.T) {
				require.Equal(t, len(posted), p.r.Len())
				id, n, ok := p.r.Fetch(sgl)
				require.Equal(t, len(posted) > 0, ok)
				if !ok {
					return
				}
				require.Equal(t, posted[0].ID, id.ID)
				require.Equal(t, append([]SGE{}, posted[0].SGL...), append([]SGE{}, sgl[:n]...))
				posted = posted[1:]
			},
		})
	})
}

// TestUnequalSGEs: the lengths of several entries are their own, at any place;
// their sum is more than 32 bits hold. B55.
func TestUnequalSGEs(t *testing.T) {
	lengths := []uint32{1, 4096, 0, math.MaxUint32, 7, math.MaxUint32, 65536, 3}
	var want, sum uint64
	w := SendWR{Opcode: WRSend}
	for i, n := range lengths {
		w.SGL = append(w.SGL, SGE{Addr: uint64(i), Length: n, LKey: uint32(i)})
		want += uint64(n)
	}
	p := newSendPair(t, 16, 13, QPCap{MaxSendWR: 2, MaxSendSGE: 8})
	require.NoError(t, p.q.Put(&w))
	p.q.Publish()
	e := p.check(t, &w)
	for i := range int(e.NumSGE) {
		at := p.mem[192+64*((14+i/4)%16)+i%4*16:]
		sum += uint64(binary.LittleEndian.Uint32(at[8:]))
	}
	require.Equal(t, want, sum)
	require.Greater(t, sum, uint64(math.MaxUint32))
}
