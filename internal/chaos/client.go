package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// A client is a program that is attached to a daemon, and has sessions with those that
// are attached to the other, one after the other. It takes commands from its standard
// input and answers on its standard output, a line of JSON each.

// command is what a client is told.
type command struct {
	Do      string `json:"do"` // see below
	Session uint64 `json:"session,omitempty"`
	Seed    uint64 `json:"seed,omitempty"`
	Side    int    `json:"side,omitempty"`
	Peer    string `json:"peer,omitempty"` // address of its device
	Card    *card  `json:"card,omitempty"` // its
}

// Commands.
const (
	doMeet    = "meet"    // make an end of a session
	doConnect = "connect" // it to Card
	doGo      = "go"      // begin
	doBye     = "bye"     // the session is over, forget it
	doQuit    = "quit"
)

// word is what a client says.
type word struct {
	Say     string `json:"say"` // see below
	Session uint64 `json:"session,omitempty"`
	Card    *card  `json:"card,omitempty"`
	Why     string `json:"why,omitempty"`
	Tally   *tally `json:"tally,omitempty"`
}

// Words.
const (
	sayFree  = "free"  // for a session
	sayCard  = "card"  // which is Card
	sayReady = "ready" // connected
	sayTally = "tally" // since the last one
	sayDone  = "done"  // all of the session was right
	sayLost  = "lost"  // the peer is gone, as it should look
	sayBad   = "bad"   // Why
)

// memory is what sessions work in. It outlives them at times.
type memory struct {
	dev                           *verbs.Context
	pd                            *verbs.PD
	cq                            *verbs.CQ
	dst, fixed, grants, src, recv *verbs.MR
	shadowed                      bool
}

// newMemory makes it, for peers in memory of the device's, for itself in that or the
// program's own, and a completion queue on one of the device's shards.
func newMemory(dev *verbs.Context, choice uint64) (m *memory, err error) {
	m = &memory{dev: dev, shadowed: mix(choice)&1 == 0}
	attr, err := dev.Device()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.free())
		}
	}()
	if m.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if m.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: 1024, Vector: int(mix(choice) >> 32 % uint64(attr.Shards))}); err != nil {
		return nil, err
	}
	for _, r := range []struct {
		to   **verbs.MR
		n    int
		a    verbs.Access
		mine bool
	}{
		{&m.dst, depth * arenaLen, verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind, false},
		{&m.fixed, fixedLen, verbs.AccessRemoteRead, false},
		{&m.grants, depth * grantLen, verbs.AccessLocalWrite | verbs.AccessRemoteWrite, false},
		{&m.src, depth * arenaLen, verbs.AccessLocalWrite, true},
		{&m.recv, allRecvs * recvLen, verbs.AccessLocalWrite, true},
	} {
		if r.mine && m.shadowed {
			*r.to, err = m.pd.RegMR(make([]byte, r.n), r.a)
		} else {
			*r.to, err = m.pd.AllocMR(r.n, r.a)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// free destroys it, in order.
func (m *memory) free() error {
	var errs []error
	for _, r := range []*verbs.MR{m.dst, m.fixed, m.grants, m.src, m.recv} {
		if r != nil {
			errs = append(errs, r.Deregister())
		}
	}
	if m.cq != nil {
		errs = append(errs, m.cq.Destroy())
	}
	if m.pd != nil {
		errs = append(errs, m.pd.Destroy())
	}
	return errors.Join(errs...)
}

// client is the program.
type client struct {
	socket string
	dev    *verbs.Context
	mem    *memory
	tally  *tally

	mu       sync.Mutex
	out      *json.Encoder
	commands chan command
	stop     context.CancelFunc // of the session that runs
}

// runClient is the program, from its attachment to the command to quit. It returns its
// exit status.
func runClient(socket string, in io.Reader, out io.Writer) int {
	c := &client{socket: socket, tally: newTally(), out: json.NewEncoder(out), commands: make(chan command, 16), stop: func() {}}
	go c.listen(in)
	err := c.attend()
	if c.dev != nil {
		err = errors.Join(err, c.dev.Close())
	}
	c.say(word{Say: sayTally, Tally: c.tally.take()})
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: client:", err)
		return 1
	}
	return 0
}

func (c *client) say(w word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(w)
}

// listen reads commands; those that end a session end it at once. When there will be no
// more the program quits.
func (c *client) listen(in io.Reader) {
	defer close(c.commands)
	for s := bufio.NewScanner(in); s.Scan(); {
		var do command
		if err := json.Unmarshal(s.Bytes(), &do); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: client:", err)
			return
		}
		c.commands <- do
		if do.Do == doBye || do.Do == doQuit {
			c.mu.Lock()
			c.stop()
			c.mu.Unlock()
		}
	}
}

// attend has sessions until it is told to quit.
func (c *client) attend() error {
	if err := c.attach(); err != nil {
		return err
	}
	c.say(word{Say: sayFree})
	for do := range c.commands {
		switch do.Do {
		case doQuit:
			return nil
		case doMeet:
			quit, err := c.meet(&do)
			if err != nil || quit {
				return err
			}
			if err := c.tidy(do.Seed + uint64(do.Side)); err != nil {
				return fmt.Errorf("after session %d: %w", do.Session, err)
			}
			c.say(word{Say: sayFree})
		}
	}
	return nil
}

func (c *client) attach() (err error) {
	if c.dev, err = gorxe.Open(gorxe.Config{Daemon: c.socket}); err == nil {
		c.tally.Attached++
	}
	return err
}

// tidy forgets nothing, memory, or the whole device, as the seed says.
func (c *client) tidy(seed uint64) error {
	switch mix(seed^0x74696479) % 4 {
	case 0:
		err := c.dev.Close()
		c.mem = nil
		return errors.Join(err, c.attach())
	case 1:
		err := c.mem.free()
		c.mem = nil
		return err
	}
	return nil
}

// meet is one session. It returns when the client is told that it is over.
func (c *client) meet(m *command) (quit bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.mu.Lock()
	c.stop = cancel
	c.mu.Unlock()
	if c.mem == nil {
		if c.mem, err = newMemory(c.dev, m.Seed+uint64(m.Side)); err != nil {
			return false, err
		}
	}
	peer, err := netip.ParseAddr(m.Peer)
	if err != nil {
		return false, err
	}
	s, err := newSession(c.mem, m.Seed, m.Side, peer, c.tally)
	if err != nil {
		return false, err
	}
	c.say(word{Say: sayCard, Session: m.Session, Card: &s.mine})
	for do := range c.commands {
		switch do.Do {
		case doConnect:
			if err := s.connect(*do.Card); err != nil {
				return false, errors.Join(fmt.Errorf("session %d: %w", m.Session, err), s.close())
			}
			c.say(word{Say: sayReady, Session: m.Session})
		case doGo:
			c.run(ctx, s, m)
		case doBye, doQuit:
			return do.Do == doQuit, s.close()
		}
	}
	return true, s.close()
}

// run runs a session and says how it ended.
func (c *client) run(ctx context.Context, s *session, m *command) {
	s.every = tallyEvery
	s.report = func() { c.say(word{Say: sayTally, Tally: c.tally.take()}) }
	err := s.run(ctx)
	w := word{Say: sayDone, Session: m.Session}
	switch {
	case errors.Is(err, errLost):
		w.Say = sayLost
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		w.Say = "" // told to stop
	case err != nil:
		w.Say, w.Why = sayBad, fmt.Sprintf("seed %d, side %d: %v", m.Seed, m.Side, err)
	}
	if w.Say != "" {
		c.tally.Sessions[w.Say]++
	}
	if s.srq != nil {
		c.tally.Shared++
	}
	if s.mem.shadowed {
		c.tally.Shadowed++
	}
	w.Tally = c.tally.take()
	if w.Say == "" {
		w.Say = sayTally
	}
	c.say(w)
}

// tallyEvery is how often a session says what it did, so that little is lost with a
// client that is killed.
const tallyEvery = time.Second
