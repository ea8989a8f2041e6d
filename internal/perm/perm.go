// Package perm is a keyed permutation of small integers: numbers and keys that
// peers see are slots of a table through it, unpredictable to them and still
// an O(1) lookup (ReDMArk, USENIX Security 2021).
package perm

import "sync/atomic"

// Perm permutes the integers of n bits. It is a balanced Feistel network; the
// secret need not resist cryptanalysis, only guessing.
type Perm struct {
	half uint
	mask uint32
	key  [4]uint32
	memo [memos]atomic.Uint64 // a number with bit 31 set, above what Unmap says of it
}

// memos is how many answers of Unmap are kept. A power of two.
const memos = 64

// New returns a permutation of bits-bit integers, bits even, 2 to 30.
func New(bits uint, seed uint64) *Perm {
	p := &Perm{half: bits / 2, mask: 1<<(bits/2) - 1}
	for i := range p.key {
		seed += 0x9e3779b97f4a7c15 // splitmix64
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		p.key[i] = uint32(z ^ z>>31)
	}
	return p
}

func (p *Perm) round(v, k uint32) uint32 {
	v = (v ^ k) * 0x85ebca6b
	v ^= v >> 13
	v *= 0xc2b2ae35
	return v >> 16 & p.mask
}

// Map returns the image of v.
func (p *Perm) Map(v uint32) uint32 {
	l, r := v>>p.half&p.mask, v&p.mask
	for _, k := range p.key {
		l, r = r, l^p.round(r, k)
	}
	return l<<p.half | r
}

// Unmap returns the integer whose image v is. Of the last few it is known.
func (p *Perm) Unmap(v uint32) uint32 {
	m := &p.memo[v%memos]
	if kept := m.Load(); uint32(kept>>32) == v|1<<31 {
		return uint32(kept)
	}
	u := p.unmap(v)
	m.Store(uint64(v|1<<31)<<32 | uint64(u))
	return u
}

func (p *Perm) unmap(v uint32) uint32 {
	l, r := v>>p.half&p.mask, v&p.mask
	for i := len(p.key) - 1; i >= 0; i-- {
		l, r = r^p.round(l, p.key[i]), l
	}
	return l<<p.half | r
}
