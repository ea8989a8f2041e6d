package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// memory returns a Memory of domain 1 for lists of four entries, a region of it
// that may be written and one that may not.
func memory(t *testing.T) (m *Memory, rw, ro *mr.Region) {
	t.Helper()
	c := Config{MRs: mr.NewTable(1), PD: 1, Cap: verbs.QPCap{MaxSendSGE: 4, MaxRecvSGE: 2}}
	var err error
	rw, err = c.MRs.Register(mr.Region{PD: 1, IOVA: 0x1000, Mem: make([]byte, 64), Access: verbs.AccessLocalWrite})
	require.NoError(t, err)
	ro, err = c.MRs.Register(mr.Region{PD: 1, IOVA: 0x2000, Mem: make([]byte, 64)})
	require.NoError(t, err)
	for i := range rw.Mem {
		rw.Mem[i], ro.Mem[i] = byte(i), byte(100+i)
	}
	m = new(Memory)
	m.Init(&c)
	return m, rw, ro
}

func entry(r *mr.Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.IOVA + uint64(off), Length: uint32(n), LKey: r.Key}
}

// held reports whether the scratch of a Memory still refers to somebody's
// memory.
func (m *Memory) held() bool {
	for _, p := range m.parts[:cap(m.parts)] {
		if p != nil {
			return true
		}
	}
	return false
}

func TestResolve(t *testing.T) {
	m, rw, ro := memory(t)
	list := []verbs.SGE{entry(rw, 0, 3), entry(rw, 9, 0), entry(ro, 5, 4), entry(rw, 60, 4)}
	for _, c := range []struct {
		off, n int
		want   [][]byte // nil where it fails
	}{
		{0, 0, [][]byte{}},
		{0, 1, [][]byte{{0}}},
		{0, 3, [][]byte{{0, 1, 2}}},
		{1, 2, [][]byte{{1, 2}}},
		{2, 2, [][]byte{{2}, {105}}},
		{3, 4, [][]byte{{105, 106, 107, 108}}},
		{4, 4, [][]byte{{106, 107, 108}, {60}}},
		{0, 11, [][]byte{{0, 1, 2}, {105, 106, 107, 108}, {60, 61, 62, 63}}},
		{10, 1, [][]byte{{63}}},
		{0, 12, nil},
		{10, 2, nil},
		{11, 1, nil},
	} {
		parts, ok := m.Resolve(list, c.off, c.n, 0)
		assert.Equal(t, c.want != nil, ok, "%d octets at %d", c.n, c.off)
		if c.want != nil {
			assert.Equal(t, c.want, append([][]byte{}, parts...), "%d octets at %d", c.n, c.off)
		} else {
			assert.Nil(t, parts)
			assert.False(t, m.held(), "what was found before the failure is let go")
		}
		clear(parts)
		assert.Equal(t, c.want != nil, m.Permits(list, c.off, c.n, 0))
		assert.False(t, m.held())
	}
	// The one entry that may not be written fails where it is touched, and not
	// elsewhere.
	assert.True(t, m.Permits(list, 0, 3, verbs.AccessLocalWrite))
	assert.False(t, m.Permits(list, 0, 4, verbs.AccessLocalWrite))
	assert.True(t, m.Permits(list, 7, 4, verbs.AccessLocalWrite))
	assert.False(t, m.held())
}

func TestScatter(t *testing.T) {
	m, rw, ro := memory(t)
	list := []verbs.SGE{entry(rw, 0, 3), entry(rw, 10, 2), entry(ro, 0, 1)}
	assert.True(t, m.Scatter(list, 1, []byte{201, 202, 203, 204}))
	assert.Equal(t, []byte{0, 201, 202, 3}, rw.Mem[:4])
	assert.Equal(t, []byte{9, 203, 204, 12}, rw.Mem[9:13])
	assert.False(t, m.held())

	assert.False(t, m.Scatter(list, 4, []byte{1, 2}), "into what may not be written")
	assert.False(t, m.Scatter(list, 0, make([]byte, 7)), "past the end")
	assert.Equal(t, []byte{0, 201, 202, 3}, rw.Mem[:4])
	assert.Equal(t, byte(204), rw.Mem[11], "a failure copies nothing")
	assert.Equal(t, byte(100), ro.Mem[0])
	assert.False(t, m.held())
}

// A list as long as the longest of either queue needs no allocation.
func TestResolveDoesNotAllocate(t *testing.T) {
	for _, c := range []verbs.QPCap{{MaxSendSGE: 4, MaxRecvSGE: 1}, {MaxSendSGE: 1, MaxRecvSGE: 4}} {
		m, rw, _ := memory(t)
		m.Init(&Config{MRs: m.mrs, PD: 1, Cap: c})
		list := []verbs.SGE{entry(rw, 0, 1), entry(rw, 1, 1), entry(rw, 2, 1), entry(rw, 3, 1)}
		src := []byte{9, 8, 7, 6}
		assert.Zero(t, testing.AllocsPerRun(10, func() { m.Scatter(list, 0, src) }))
	}
}

func TestRemote(t *testing.T) {
	m, rw, _ := memory(t)
	b, why := m.Remote(rw.Key, rw.IOVA+2, 3, verbs.AccessLocalWrite)
	assert.Equal(t, trace.None, why)
	assert.Equal(t, []byte{2, 3, 4}, b)
	m.pd = 2
	_, why = m.Remote(rw.Key, rw.IOVA+2, 3, 0)
	assert.Equal(t, trace.FailAccess, why)
}
