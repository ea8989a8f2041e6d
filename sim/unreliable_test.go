package sim

import (
	"testing"
	"time"
)

// lossy are networks for what nobody repeats. The line has a rate, so that a
// packet that is delayed is overtaken by a bounded number of others.
var lossy = []struct {
	name string
	cfg  Config
}{
	{"clean", Config{}},
	{"slow", Config{Rate: 1e9, Latency: 100 * time.Microsecond}},
	{"queue", Config{Rate: 1e9, Queue: 5000}},
	{"hidden", Config{Single: true, HideIDs: true}},
	{"drop", Config{Faults: "drop 1%"}},
	{"dup", Config{Faults: "tx dup 3%"}},
	{"reorder", Config{Faults: "tx reorder 2% by=3 within=200us"}},
	{"delay", Config{Faults: "rx delay 1us..100us 3%"}},
	{"corrupt", Config{Faults: "tx corrupt 1%"}},
	{"everything", Config{Faults: "drop 0.2%; tx dup 1%; tx reorder 0.5% by=5 within=200us; rx corrupt 0.2%; rx delay 1us..100us 0.5%; cut 2ms..4ms"}},
	{"everything-hidden", Config{HideIDs: true, Faults: "tx drop 0.2%; rx dup 1%; rx reorder 0.5% by=5 within=200us; tx corrupt 0.2%; rx delay 1us..100us 0.5%; cut 2ms..4ms"}},
}

// TestUnreliable: over any network a message of an unreliable connection
// arrives intact, in order and at most once, or not at all, and what is missing
// is counted, packet by packet.
func TestUnreliable(t *testing.T) {
	t.Parallel()
	for _, c := range lossy {
		if c.cfg.Rate == 0 {
			c.cfg.Rate = 10e9
		}
		seeds(t, c.name, c.cfg, func(w *world) {
			for i := range w.hosts {
				unreliable(w, w.hosts[i], w.hosts[(i+1)%len(w.hosts)], 30)
			}
		})
	}
}

// TestDatagrams: over any network a datagram arrives intact, as often as the
// network delivers it, or is counted by its receiver.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	for _, c := range lossy {
		if c.cfg.Rate == 0 {
			c.cfg.Rate = 10e9
		}
		seeds(t, c.name, c.cfg, func(w *world) { datagrams(w, 1+w.rng.IntN(3), 60) })
	}
}

// TestMixed: every service at once on the same nodes, with shared receive
// queues that reliable connections and datagrams both take from.
func TestMixed(t *testing.T) {
	t.Parallel()
	for _, c := range lossy {
		switch c.name {
		case "queue", "everything", "everything-hidden":
		default:
			continue
		}
		c.cfg.Rate, c.cfg.MTU = max(c.cfg.Rate, 1e9), 1500
		seeds(t, c.name, c.cfg, func(w *world) {
			for i := range w.hosts {
				a, b := w.hosts[i], w.hosts[(i+1)%len(w.hosts)]
				connected(w, a, b, 10)
				unreliable(w, a, b, 10)
			}
			datagrams(w, 2, 40)
		})
	}
}
