package nic

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// TestShardsShareNothing: threads that each use the queue pairs of one shard never
// meet at a lock and hand each other no packet, however many there are: what
// tells whether shards help on more processors than this machine has.
func TestShardsShareNothing(t *testing.T) {
	for _, shards := range []int{1, 2, 4, MaxShards} {
		t.Run(strconv.Itoa(shards), func(t *testing.T) {
			as, bs, err := mem.Pair(mem.Config{Shards: shards}, mem.Config{Shards: shards})
			require.NoError(t, err)
			alone := func(c *Config) { c.Lease = time.Hour } // no background
			a, b := open(t, as, there, alone), open(t, bs, here, alone)
			defer a.close()
			defer b.close()
			const rounds, size = 50, 3000
			for i := range a.mr.Bytes() {
				a.mr.Bytes()[i] = byte(i * 7)
			}
			var busy sync.WaitGroup
			for i := range shards {
				ca, cb := a.newCQ(verbs.CQConfig{Vector: i}), b.newCQ(verbs.CQConfig{Vector: i})
				qa, qb := a.newQP(ca), b.newQP(cb)
				connect(t, a, b, qa, qb)
				done := make(chan struct{})
				busy.Go(func() { // the other end's thread
					for open := true; open; {
						cb.Poll(make([]verbs.WC, 4))
						select {
						case <-done:
							open = false
						default:
						}
					}
				})
				busy.Go(func() {
					defer close(done)
					wr := verbs.SendWR{
						Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(i*size, size)},
						RemoteAddr: b.mr.Addr() + uint64(i*size), RKey: b.mr.RKey(),
					}
					for range rounds {
						if _, err := qa.PostSend([]verbs.SendWR{wr}); err != nil {
							t.Error(err)
							return
						}
						var wc [1]verbs.WC
						for ca.Poll(wc[:]) == 0 {
						}
						if err := wc[0].Err(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			busy.Wait()
			require.Equal(t, a.mr.Bytes()[:shards*size], b.mr.Bytes()[:shards*size])
			for _, x := range []*node{a, b} {
				require.Zero(t, counter(t, x, "shard_busy"))
				require.Zero(t, counter(t, x, trace.DropStray.String()))
			}
		})
	}
}
