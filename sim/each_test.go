package sim

import (
	"testing"

	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
)

// Where every packet has its turn, so many requests are posted each way, of so
// many octets at most.
const (
	eachOps = 3
	eachLen = 700
)

// eachFault is what happens to a packet that has its turn. What is held is
// overtaken by two packets, if they come soon.
var eachFault = []fault.Decision{
	{Effects: 1 << fault.Drop, Lost: true},
	{Effects: 1 << fault.Dup, Copies: 1},
	{Effects: 1 << fault.Corrupt, Bit: 12*8 + 3},
	{Effects: 1 << fault.Reorder, Release: 20000, Behind: 2},
}

// TestEachPacket: in short conversations every packet is lost, repeated, broken
// or overtaken in its turn; then, in what comes of that, every later packet too,
// those among them that are sent a second time. Chance hits few of these: there
// are some thousands for each conversation, by exact keys, as Lumina (SIGCOMM
// 2023) has them. All that holds on any network holds, and
//
//   - one lost request packet takes one restart,
//   - one lost answer takes one at most, if no later answer stands for it,
//   - a repeated packet takes none.
func TestEachPacket(t *testing.T) {
	start := func(w *world) { connected(w, w.hosts[0], w.hosts[1], eachOps) }
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"bursts", Config{}},
		{"slow", Config{Rate: 1e9, Single: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if *replayFlag != "" {
				replay(t, c.cfg, start)
				return
			}
			t.Parallel()
			first, n := uint64(1), (*runsFlag+7)/8
			if *seedFlag != 0 {
				first, n = *seedFlag, 1
			}
			runs := 0
			for seed := first; seed < first+uint64(n); seed++ {
				e := &each{t: t, cfg: c.cfg, start: start, c: scenario{name: t.Name(), seed: seed, size: eachLen, exact: true}}
				for i := range 2 * eachOps {
					e.c.picks = append(e.c.picks, pick{i % 2, i / 2, eachLen})
				}
				e.all()
				runs += e.runs
			}
			t.Logf("%d conversations, %d times with faults", n, runs)
		})
	}
}

// each is one conversation, again and again.
type each struct {
	t     *testing.T
	cfg   Config
	start func(*world)
	c     scenario
	runs  int
}

func (e *each) all() {
	second := eachFault
	if *runsFlag < 8 {
		second = second[:1] // go test is to be quick
	}
	sent, _ := e.run()
	for _, k := range sent {
		for _, do := range eachFault {
			one := hit{k, do}
			_, later := e.run(one)
			for _, k := range later {
				for _, do := range second {
					e.run(one, hit{k, do})
				}
			}
		}
	}
}

// run holds the conversation with some faults and returns what was sent, and
// what of it after the last fault.
func (e *each) run(hits ...hit) (sent, later []key) {
	c := e.c
	c.hits = hits
	at := 0
	w, v := play(e.cfg, c, e.start, &trial{}, func(w *world) {
		w.passes = func(k key) {
			if k.dir != trace.Tx {
				return
			}
			sent = append(sent, k)
			if n := len(hits); n > 0 && k == hits[n-1].key {
				at = len(sent)
			}
		}
	})
	if v == nil {
		v = try(func() { e.restarts(w, hits) })
	}
	covered.add(w, v != nil)
	if v != nil {
		explain(e.t, e.cfg, c, v, e.start)
	}
	e.runs++
	return sent, sent[at:]
}

// restarts checks what one fault costs.
func (e *each) restarts(w *world, hits []hit) {
	if len(hits) != 1 {
		return // what holds for any is checked by account
	}
	h, rnr := hits[0], w.seen[seenRNR] > 0
	lost := h.do.Lost || h.do.Effects.Has(fault.Corrupt)
	if lost && !h.answer && w.again != 1 && !rnr {
		w.t.Fatalf("one lost request packet, %v, took %d restarts", h, w.again)
	}
}
