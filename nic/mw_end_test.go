package nic

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// TestNothingWrittenAfter: while a peer writes through a window of type 1, in
// another shard than the one that bound it, its memory is the program's again, and
// stays as it is, once what gives access to it was taken away. The race detector
// looks on.
func TestNothingWrittenAfter(t *testing.T) {
	const size, writes = 1 << 16, 40
	for name, end := range map[string]func(w *verbs.MW, m *verbs.MR, q *verbs.QP) error{
		"Dealloc": func(w *verbs.MW, _ *verbs.MR, _ *verbs.QP) error { return w.Dealloc() },
		"Deregister": func(w *verbs.MW, m *verbs.MR, _ *verbs.QP) error {
			if err := w.Dealloc(); err != nil {
				return err
			}
			return m.Deregister()
		},
		"Destroy": func(_ *verbs.MW, _ *verbs.MR, q *verbs.QP) error { return q.Destroy() },
		"Modify": func(_ *verbs.MW, _ *verbs.MR, q *verbs.QP) error {
			return q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pairWith(t, mem.Config{Shards: 2}, nil)
			pattern(a.mr.Bytes(), 1)
			far := b.newCQ(verbs.CQConfig{Vector: 1})
			qa, binder := a.newQP(a.cq), b.newQP(b.cq)
			connect(t, a, b, qa, binder)
			dirty := 0
			for i := range 60 {
				qa, qb := a.newQP(a.cq), b.newQP(far)
				connect(t, a, b, qa, qb)
				m, w := b.bindable(size), b.window(verbs.MWType1)
				require.NoError(t, binder.BindMW(w, verbs.MWBind{Flags: verbs.SendSignaled, MR: m, Addr: m.Addr(), Length: size, Access: windowRights}))
				good(t, b.cq, 1)
				for range writes {
					post(t, qa, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, size)}, RemoteAddr: m.Addr(), RKey: w.RKey()})
				}
				time.Sleep(time.Duration(i%20) * 10 * time.Microsecond)
				require.NoError(t, end(w, m, qb))
				if !bytes.Equal(m.Bytes(), make([]byte, size)) {
					dirty++
				}
				clear(m.Bytes())
				time.Sleep(100 * time.Microsecond)
				require.Equal(t, make([]byte, size), m.Bytes())
				require.NoError(t, qa.Destroy())
			}
			require.Positive(t, dirty, "the peer never wrote")
		})
	}
}
