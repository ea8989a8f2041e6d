package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Up to SnapshotMax octets are what they were when they were put; of more the
// program's memory is sent.
func TestSnapshot(t *testing.T) {
	table := mr.NewTable(1)
	var m Memory
	m.Init(&Config{PD: 1, MRs: table, Cap: verbs.QPCap{MaxSendSGE: 1, MaxRecvSGE: 1}})
	for n, want := range map[int]byte{1: 0, 511: 0, 512: 0, 513: 9, 1024: 9} {
		g, err := table.Register(mr.Region{PD: 1, IOVA: 0x10000, Mem: make([]byte, n)})
		require.NoError(t, err)
		w := SendEntry{SGL: []verbs.SGE{{Addr: g.IOVA, Length: uint32(n), LKey: g.Key}}, Length: n}
		d, ok := w.Payload(&m, 0, n)
		require.True(t, ok)
		b := wire.NewBurst()
		b.Reset(nil, 0, 0)
		b.Begin(bth.MakePSN(1), bth.RCSendOnly, bth.BTHLen, n)
		d.Put(b, nil)
		g.Mem[n-1] = 9
		assert.Equal(t, want, b.AppendSegment(nil, 0)[bth.BTHLen+n-1], "%d octets", n)
	}
}
