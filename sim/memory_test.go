package sim

import (
	"math/bits"
	"sync"
)

// memory is what regions, buffers and models of one run are made of. It is used
// again by later runs: memory that is new to the process costs more than all
// that a simulation does with it.
type memory struct {
	free [32][][]byte // by class
	zero [32][][]byte // those that hold zeros
	out  map[*byte][]byte
}

var (
	memoriesMu sync.Mutex
	memories   []*memory
)

func takeMemory() *memory {
	memoriesMu.Lock()
	defer memoriesMu.Unlock()
	if n := len(memories); n > 0 {
		m := memories[n-1]
		memories = memories[:n-1]
		return m
	}
	return &memory{out: map[*byte][]byte{}}
}

// giveBack ends the use of all of it.
func (m *memory) giveBack() {
	for _, b := range m.out {
		m.put(b)
	}
	memoriesMu.Lock()
	defer memoriesMu.Unlock()
	memories = append(memories, m)
}

// get returns n octets of any content.
func (m *memory) get(n int) []byte { return m.take(&m.free, n) }

// zeroed returns n octets that are 0.
func (m *memory) zeroed(n int) []byte {
	if len(m.zero[class(n)]) > 0 {
		return m.take(&m.zero, n)
	}
	b := m.get(n)
	clear(b[:cap(b)])
	return b
}

func (m *memory) clone(b []byte) []byte {
	c := m.get(len(b))
	copy(c, b)
	return c
}

func (m *memory) take(from *[32][][]byte, n int) []byte {
	f := &from[class(n)]
	var b []byte
	if k := len(*f); k > 0 {
		b, *f = (*f)[k-1], (*f)[:k-1]
	} else {
		b = make([]byte, 1<<class(n)+2*guard)
	}
	m.out[&b[0]] = b
	return b[:n]
}

// put takes back what get, zeroed or clone returned, and putZeroed what holds
// zeros from its first octet to the last that there is.
func (m *memory) put(b []byte)       { m.back(&m.free, b) }
func (m *memory) putZeroed(b []byte) { m.back(&m.zero, b) }

func (m *memory) back(to *[32][][]byte, b []byte) {
	first := &b[:1][0]
	if b = m.out[first]; b == nil {
		panic("memory that is not in use is given back")
	}
	delete(m.out, first)
	to[class(len(b))] = append(to[class(len(b))], b)
}

// class of memory is the power of two that it is long, guards aside.
func class(n int) int { return bits.Len(uint(max(n-2*guard, 64) - 1)) }
