package nic

import (
	"context"
	"math/rand/v2"
	"sync"
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

// TestAckDelayCrowd: the same with programs that come and go as they like: threads
// that poll, wait, look at queue pairs and answer, on one completion queue or two,
// of one shard or two, with a shared receive queue or without.
func TestAckDelayCrowd(t *testing.T) {
	const lease = DefaultSpin
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			shards := 1 + int(seed%2)
			as, bs, err := mem.Pair(mem.Config{Shards: shards}, mem.Config{Shards: shards})
			require.NoError(t, err)
			a := open(t, as, there, nil)
			b := open(t, bs, here, func(c *Config) { c.Lease = lease })
			defer a.close()
			defer b.close()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()

			const messages = 100
			used := 0
			room := func() verbs.RecvWR { // of memory that nobody else has
				used += 64
				return verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(used, 64)}}
			}
			srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: messages, MaxSGE: 1})
			require.NoError(t, err)
			for range messages {
				_, err := srq.PostRecv([]verbs.RecvWR{room()})
				require.NoError(t, err)
			}
			cqs := []*verbs.CQ{b.cq, b.newCQ(verbs.CQConfig{Vector: shards - 1})}
			var far []*verbs.CQ
			var qas, qbs []*verbs.QP
			for i := range 4 {
				c := verbs.QPConfig{SendCQ: cqs[i%2], RecvCQ: cqs[i/2], Cap: verbs.QPCap{MaxRecvWR: messages}}
				if i >= 2 && seed%4 > 1 {
					c.SRQ = srq
				}
				qb, err := b.pd.CreateQP(c)
				require.NoError(t, err)
				far = append(far, a.newCQ(verbs.CQConfig{Vector: i % shards}))
				qas, qbs = append(qas, a.newQP(far[i])), append(qbs, qb)
				connect(t, a, b, qas[i], qb)
				for range messages {
					if c.SRQ == nil {
						recv(t, qb, room())
					}
				}
			}
			for range rng.IntN(4) {
				what, answers := rng.IntN(3), rng.IntN(2) == 0
				i := rng.IntN(4)
				cq, q := cqs[rng.IntN(2)], qbs[i]
				pause, life := time.Duration(rng.IntN(300))*time.Microsecond, rng.IntN(400)
				wg.Go(func() {
					var wc [4]verbs.WC
					for range life {
						n := 0
						switch what {
						case 0:
							n = cq.Poll(wc[:])
						case 1:
							if n, _ = cq.Wait(ctx, wc[:]); n == 0 {
								return
							}
						default:
							_, _ = q.Query()
						}
						if n > 0 && answers {
							_, _ = q.PostSend([]verbs.SendWR{{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8)}, RemoteAddr: a.mr.Addr() + uint64(64+64*i), RKey: a.mr.RKey()}})
						}
						time.Sleep(pause)
					}
				})
			}
			for i := range messages {
				k, start := rng.IntN(4), time.Now()
				post(t, qas[k], verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, Flags: verbs.SendSignaled})
				good(t, far[k], 1)
				require.LessOrEqual(t, time.Since(start), lease+2*maxNap, "seed %d, message %d", seed, i)
				time.Sleep(time.Duration(rng.IntN(1 << (4 + rng.IntN(18)))))
			}
		})
	}
}
