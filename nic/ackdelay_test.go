package nic

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// TestAckDelay: a responder answers within the time that its device promises
// (local_ca_ack_delay), and sooner, whatever its program does: one that never
// polls, one that stops right after a poll and has kept the background away
// until then, and one that comes by now and then.
//
// = test IBA 11.2.1.2
func TestAckDelay(t *testing.T) {
	const (
		lease = DefaultSpin
		most  = lease + 2*maxNap // what it takes here; far below the promise
	)
	for name, program := range map[string]func(b *node, step func()){
		"never polls": func(*node, func()) {},
		"stops polling": func(b *node, _ func()) {
			for range 2000 {
				b.cq.Poll(make([]verbs.WC, 4))
				time.Sleep(lease / 5)
			}
			b.cq.Poll(make([]verbs.WC, 4))
		},
		"polls rarely": func(b *node, step func()) {
			for range 40 {
				b.cq.Poll(make([]verbs.WC, 4))
				step()
				time.Sleep(3 * lease)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
				require.NoError(t, err)
				a := open(t, as, there, nil)
				b := open(t, bs, here, func(c *Config) { c.Lease = lease })
				defer a.close()
				defer b.close()
				qa, qb := a.newQP(a.cq), b.newQP(b.cq)
				connect(t, a, b, qa, qb)
				attr, err := b.ctx.Device()
				require.NoError(t, err)
				promised := 4096 * time.Nanosecond << attr.LocalAckDelay
				require.Less(t, most, promised)

				at := verbs.SendWR{SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
				step := func() {
					for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd} {
						recv(t, qb, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}}) // steps the shard: a lease
						wr, start := at, time.Now()
						wr.Opcode = op
						post(t, qa, wr)
						good(t, a.cq, 1)
						require.LessOrEqual(t, time.Since(start), most, "%v", op)
					}
				}
				program(b, step)
				step()
				require.Zero(t, counter(t, a, "local_ack_timeout_err"))
			})
		})
	}
}
