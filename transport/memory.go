package transport

import (
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Memory is a queue pair's way to the regions of its protection domain.
type Memory struct {
	mrs   *mr.Table
	pd    mr.PD
	owner mr.Owner // of windows of type 2
	parts [][]byte // scratch of Resolve
}

// Init makes room for lists of as many entries as c allows.
func (m *Memory) Init(c *Config) {
	m.mrs, m.pd, m.owner = c.MRs, c.PD, c.MRs.NewOwner()
	m.parts = make([][]byte, 0, max(c.Cap.MaxSendSGE, c.Cap.MaxRecvSGE))
}

// Remote returns the n octets at va that a peer's request names, by the key of a
// region or window, or why it may not have them.
func (m *Memory) Remote(rkey uint32, va uint64, n int, need verbs.Access) ([]byte, trace.Reason) {
	return m.mrs.Remote(m.pd, m.owner, rkey, va, n, need)
}

// Invalidate ends the use of a window of this queue pair; it reports false for a
// key that may not be invalidated, and changes nothing then.
func (m *Memory) Invalidate(key uint32) bool { return m.mrs.Invalidate(m.pd, m.owner, key) }

// Resolve returns the stretches of registered memory behind n octets at offset
// off of a scatter/gather list. It returns false when the list is too short, or
// at a key, range or permission that fails. What it returns is valid until the
// next call; the caller clears it, so that no slice of a user's memory outlives
// the step.
func (m *Memory) Resolve(sgl []verbs.SGE, off, n int, need verbs.Access) (parts [][]byte, ok bool) {
	parts = m.parts[:0]
	for i := range sgl {
		if n == 0 {
			break
		}
		s := &sgl[i]
		if off >= int(s.Length) {
			off -= int(s.Length)
			continue
		}
		k := min(n, int(s.Length)-off)
		b, why := m.mrs.Resolve(m.pd, s.LKey, s.Addr+uint64(off), k, need)
		if why != trace.None {
			break
		}
		parts = append(parts, b)
		n -= k
		off = 0
	}
	if n != 0 {
		clear(parts)
		return nil, false
	}
	return parts, true
}

// Permits reports whether Resolve would succeed.
func (m *Memory) Permits(sgl []verbs.SGE, off, n int, need verbs.Access) bool {
	parts, ok := m.Resolve(sgl, off, n, need)
	clear(parts)
	return ok
}

// Scatter copies src to offset off of a scatter/gather list, front to back. It
// returns false, and has copied nothing, when Resolve fails.
func (m *Memory) Scatter(sgl []verbs.SGE, off int, src []byte) bool {
	parts, ok := m.Resolve(sgl, off, len(src), verbs.AccessLocalWrite)
	if ok {
		for _, dst := range parts {
			src = src[copy(dst, src):]
		}
	}
	clear(parts)
	return ok
}
