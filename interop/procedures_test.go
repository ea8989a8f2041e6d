package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// pairWorld is a world of two devices of ours, connected in memory.
func pairWorld(t *testing.T, faults string) *world {
	t.Helper()
	a, b := gorxe.NewPair(gorxe.PairConfig{Faults: faults, Seed: 1})
	ends := make([]*end, 2)
	for i, dev := range []*verbs.Context{a, b} {
		t.Cleanup(func() { _ = dev.Close() })
		s, err := onDevice(dev)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = &end{name: []string{"requester", "responder"}[i], side: s, addr: netip.MustParseAddr([]string{"192.0.2.1", "192.0.2.2"}[i])}
	}
	return &world{
		ctx: context.Background(), req: ends[0], rsp: ends[1], typ: verbs.RC, mtu: 1024, timeout: 14, rng: rand.New(rand.NewPCG(1, 1)),
		silence: 40 * time.Millisecond, group: verbs.GIDOf(netip.MustParseAddr("239.1.2.3")),
		lost: func() (uint64, uint64, error) { return 1, 1, nil },
		restart: func(e *end) error { // a device of a pair cannot be opened again
			s, err := onDevice(e.side.(*ours).dev)
			e.side = s
			return errors.Join(err, e.qp.Destroy())
		},
	}
}

// rawWorld is a world of a device of ours and packets made by hand.
func rawWorld(t *testing.T) *world {
	t.Helper()
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	d, err := nic.Open(nic.Config{Links: bs, NetDev: "mem", Seed: 1, GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(dst), Type: "RoCE v2"}}})
	if err != nil {
		t.Fatal(err)
	}
	dev := verbs.NewContext(d)
	t.Cleanup(func() { _, _ = dev.Close(), as[0].Close() })
	s, err := onDevice(dev)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRaw(as[0], src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		ctx: context.Background(), rsp: &end{name: "target", side: s, addr: dst}, raw: r, mtu: 1024,
		rng: rand.New(rand.NewPCG(1, 1)), silence: 40 * time.Millisecond,
	}
}

// Every procedure passes between two devices of ours, or one and packets made by
// hand.
func TestProcedures(t *testing.T) {
	for name, run := range procedures {
		faults := ""
		switch name {
		case "mckey", "two-of-ours":
			continue // they are of three
		case "forged-cnps":
			continue // the guest makes them
		case "uc-loss", "ud-loss":
			faults = "tx drop 3%; tx dup 2%"
		case "answers", "replies", "strays":
			t.Run(name, func(t *testing.T) {
				if err := run(rawWorld(t)); err != nil {
					t.Error(err)
				}
			})
			continue
		}
		t.Run(name, func(t *testing.T) {
			if err := run(pairWorld(t, faults)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLossyOverLoss(t *testing.T) {
	w := pairWorld(t, "tx drop 1%")
	if err := w.lossy(); err != nil {
		t.Error(err)
	}
}

// Transfers that lose nothing prove nothing about loss.
func TestLossyWantsLosses(t *testing.T) {
	w := pairWorld(t, "")
	w.lost = func() (uint64, uint64, error) { return 5, 0, nil }
	if w.lossy() == nil {
		t.Error("a network that is whole one way passes for lossy")
	}
}

// liar is a side whose memory reads back with one octet changed.
type liar struct {
	side
	where int
}

type lyingMR struct {
	memory
	where int
}

func (l liar) regMR(size int, a verbs.Access) (memory, error) {
	m, err := l.side.regMR(size, a)
	return lyingMR{m, l.where}, err
}

func (l liar) regForeign(size int, a verbs.Access) (memory, error) {
	m, err := l.side.regForeign(size, a)
	return lyingMR{m, l.where}, err
}

func (l liar) createQP(t verbs.QPType, s shared) (queue, error) {
	if s != nil {
		s = s.(honestSRQ).shared
	}
	q, err := l.side.createQP(t, s)
	return honestQP{q}, err
}

func (l liar) createSRQ() (shared, error) {
	s, err := l.side.createSRQ()
	return honestSRQ{s}, err
}

type honestSRQ struct{ shared }

func (s honestSRQ) recv(w *work) error { return s.shared.recv(w.honest()) }

// honestQP hands the true region to the queue pair under a liar.
type honestQP struct{ queue }

func (q honestQP) send(ws ...*work) error {
	var l []*work
	for _, w := range ws {
		l = append(l, w.honest())
	}
	return q.queue.send(l...)
}

func (q honestQP) recv(w *work) error { return q.queue.recv(w.honest()) }

func (q honestQP) reply(w *work, to verbs.WC, off int) error {
	return q.queue.reply(w.honest(), to, off)
}

func (w *work) honest() *work {
	h := *w
	h.mem = w.mem.(lyingMR).memory
	return &h
}

func (m lyingMR) Read(off, n int) ([]byte, error) {
	b, err := m.memory.Read(off, n)
	if i := m.where - off; i >= 0 && i < n {
		b[i] ^= 1
	}
	return b, err
}

// One wrong octet anywhere in a region fails whatever writes to that region.
func TestProceduresNotice(t *testing.T) {
	for _, c := range []struct {
		name  string
		where int
		read  bool // the lie is at the requester
	}{
		{"write-200", 1500000, false},
		{"read-200", 1500000, true},
		{"send-200", 0, false},
		{"mixed-20", regionSize - 1, true},
		{"immediate", 1<<14 - 1, false}, // beside the first message, which is empty
		{"zero-length", 4095, false},
		{"atomics", 7, false},
		{"atomics", 64, true},
		{"psn-wrap", 3000, false},
		{"psn-wrap", 1000, true},
		{"wrong-rkey", 0, false},
		{"sizes", 5, false},
		{"sizes", 5, true},
		{"lists", regionSize - 1, false},
		{"lists", regionSize - 1, true},
		{"unsignaled", 5000, false},
		{"both-ways", 0, false},
		{"both-ways", 0, true},
		{"sum", 3, false},
		{"sum", 3, true},
		{"depths", 1 << 20, false},
		{"depths", 1 << 20, true},
		{"not-ready", 20000, false},
		{"vanishes", 1 << 15, false},
		{"refused", 0, false},
		{"our-faults", 1 << 20, false},
		{"uc-write-30", 1500000, false},
		{"uc-send-30", 0, false},
		{"uc-immediate", 1<<14 - 1, false},
		{"uc-sizes", 5, false},
		{"uc-lists", regionSize - 1, false},
		{"uc-psn-wrap", 3000, false},
		{"uc-dropped", 0, false},
		{"ud-sizes", received, false}, // before a datagram
		{"ud-sizes", regionSize - 1, false},
		{"ud-sizes", 0, true},
		{"ud-many", received - 1, false},
		{"ud-reply", received + 30, false},
		{"ud-qkey", received + 500, false},
		{"ud-no-room", received + 41, false},
		{"srq-rc", regionSize - 1, false},
		{"srq-ud", 41, false},
		{"group", received + 5*slot + 500, false},
	} {
		w := pairWorld(t, "")
		if c.read {
			w.req.side = liar{w.req.side, c.where}
		} else {
			w.rsp.side = liar{w.rsp.side, c.where}
		}
		if err := procedures[c.name](w); err == nil {
			t.Errorf("%s: a wrong octet at %d is not noticed", c.name, c.where)
		}
	}
}
