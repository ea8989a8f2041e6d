package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// ends are both ends of a session, in this process.
type ends struct {
	t   *testing.T
	dev [2]*verbs.Context
	s   [2]*session
}

func newEnds(t *testing.T, seed uint64, faults string) *ends {
	t.Helper()
	e := &ends{t: t}
	e.dev[0], e.dev[1] = gorxe.NewPair(gorxe.PairConfig{Seed: seed + 1, Faults: faults})
	addrs := []string{"192.0.2.1", "192.0.2.2"}
	for i, d := range e.dev {
		m, err := newMemory(d, seed)
		if err != nil {
			t.Fatal(err)
		}
		if e.s[i], err = newSession(m, seed, i, netip.MustParseAddr(addrs[1-i]), newTally()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
	}
	for i, s := range e.s {
		if err := s.connect(e.s[1-i].mine); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// run runs both ends, and returns what each says. An end that fails stops the other.
func (e *ends) run() (errs [2]error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	type end struct {
		i   int
		err error
	}
	over := make(chan end)
	for i, s := range e.s {
		go func() { over <- end{i, s.run(ctx)} }()
	}
	for range e.s { // both
		o := <-over
		if errs[o.i] = o.err; o.err != nil {
			cancel()
		}
	}
	return errs
}

// Sessions over a lossy network are right, and have every kind of operation.
func TestSession(t *testing.T) {
	all := newTally()
	for seed := range uint64(4) {
		e := newEnds(t, seed, "tx drop 1%")
		if errs := e.run(); errs[0] != nil || errs[1] != nil {
			t.Fatalf("seed %d: %v", seed, errs)
		}
		for _, s := range e.s {
			all.add(s.tally)
			if err := errors.Join(s.close(), s.mem.free()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for k := range kinds {
		if all.Ops[k.String()] == 0 {
			t.Errorf("no %v", k)
		}
	}
	if all.Lost["UC_SEND"]+all.Lost["UC_WRITE"]+all.Lost["UD_SEND"] == 0 {
		t.Error("nothing unreliable was lost")
	}
	t.Log(all)
}

// A single wrong octet anywhere is found.
func TestWrongOctetIsFound(t *testing.T) {
	spoil := map[string]struct {
		says string
		do   func(s *session)
	}{
		"what READs find":         {"READ of", func(s *session) { s.mem.fixed.Bytes()[fixedLen/2] ^= 1 }},
		"a word of atomics":       {"word 1", func(s *session) { s.mem.dst.Bytes()[arenaLen+8] ^= 1 }},
		"between what is written": {"at 64: octet 32 of", func(s *session) { s.mem.dst.Bytes()[arenaLen+wordsLen+guard/2] ^= 1 }},
		"behind a message":        {"behind a message", func(s *session) { clear(s.mem.recv.Bytes()[:recvLen]) }},
		"another script":          {"round 0", func(s *session) { s.out.seed++ }},
	}
	for name, c := range spoil {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, 3, "")
			c.do(e.s[1])
			errs := e.run()
			if err := errors.Join(errs[0], errs[1]); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, not %q", err, c.says)
			}
		})
	}
}

// An end whose peer is gone says so, whoever had what to send.
func TestLostPeer(t *testing.T) {
	e := newEnds(t, 5, "")
	// The other end has sent something, and then is no more.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	far := make(chan error, 1)
	stop, end := context.WithCancel(ctx)
	e.s[1].report = end
	go func() {
		far <- e.s[1].run(stop)
		e.dev[1].Close()
	}()
	if err := e.s[0].run(ctx); !errors.Is(err, errLost) {
		t.Errorf("it says %v", err)
	}
	if err := <-far; !errors.Is(err, context.Canceled) {
		t.Errorf("the other says %v", err)
	}
	if e.s[0].tally.Errors[verbs.WCRetryExcErr.String()] == 0 {
		t.Errorf("errors: %v", e.s[0].tally.Errors)
	}
}
