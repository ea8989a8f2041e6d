package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// How long things may take on a busy machine.
const (
	setupWait  = 60 * time.Second // until both ends of a session are connected
	noticeWait = 60 * time.Second // until the peer of a client that was killed says so
	quitWait   = 60 * time.Second // until clients that are told to quit have
)

// party is a client's process.
type party struct {
	slot, side int
	cmd        *exec.Cmd
	in         io.WriteCloser
	stderr     bytes.Buffer // to be read when it has ended
	meeting    *meeting
	free       bool
	killed     bool
	killedAt   time.Time
	quit       bool // it was told to
	widowed    bool // its last peer was killed
}

// meeting is a session between two.
type meeting struct {
	id, seed uint64
	p        [2]*party
	card     [2]*card
	ready    [2]bool
	going    bool
	says     [2]string
	since    time.Time
}

// event is something that a party said, or its end.
type event struct {
	p     *party
	word  word
	ended bool
	err   error
}

// broker starts clients, brings them together and kills some.
type broker struct {
	place   *place
	rng     *rand.Rand
	daemons [2]*daemon
	slots   [2][]*party
	nextID  uint64
	meets   map[uint64]*meeting
	events  chan event
	readers sync.WaitGroup
	stopped bool
	tally   *tally
	kills   int
	started int             // processes
	notices []time.Duration // from a kill to what its peer says
	again   int             // of those peers that were connected to others
}

// spawn starts a client in a place of a side.
func (b *broker) spawn(side, slot int) error {
	p := &party{slot: slot, side: side}
	p.cmd = exec.Command(filepath.Join(b.place.dir, "chaos"), clientFlag, b.place.socket(side))
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	b.started++
	b.slots[side][slot] = p
	b.readers.Go(func() {
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			var w word
			if err := json.Unmarshal(s.Bytes(), &w); err == nil { // the last line may be cut off
				b.events <- event{p: p, word: w}
			}
		}
		b.events <- event{p: p, ended: true, err: p.cmd.Wait()}
	})
	return nil
}

// tell gives a party a command. One that has ended does not hear it.
func (p *party) tell(c command) {
	if text, err := json.Marshal(c); err == nil {
		_, _ = p.in.Write(append(text, '\n'))
	}
}

// run has clients meet for a time, one of them killed every so often.
func (b *broker) run(ctx context.Context, last, every time.Duration) error {
	end := time.After(last)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	kill := time.NewTicker(every)
	defer kill.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case e := <-b.events:
			err = b.take(&e)
		case <-kill.C:
			b.kill()
		case <-look.C:
			err = b.look()
		}
		if err != nil {
			return err
		}
		b.match()
	}
}

// kill ends a client as nothing else does.
func (b *broker) kill() {
	var live []*party
	for _, s := range b.slots {
		for _, p := range s {
			if p != nil && !p.killed {
				live = append(live, p)
			}
		}
	}
	if len(live) == 0 {
		return
	}
	p := live[b.rng.IntN(len(live))]
	p.killed, p.killedAt, p.free = true, time.Now(), false
	_ = p.cmd.Process.Kill()
	b.kills++
}

// match brings free clients of both sides together.
func (b *broker) match() {
	for {
		var pair [2]*party
		for side := range b.slots {
			var free []*party
			for _, p := range b.slots[side] {
				if p != nil && p.free {
					free = append(free, p)
				}
			}
			if len(free) == 0 {
				return
			}
			pair[side] = free[b.rng.IntN(len(free))]
		}
		b.nextID++
		m := &meeting{id: b.nextID, seed: b.rng.Uint64(), p: pair, since: time.Now()}
		b.meets[m.id] = m
		family := 4 + 2*int(m.seed>>63)
		for side, p := range pair {
			p.free, p.meeting = false, m
			p.tell(command{Do: doMeet, Session: m.id, Seed: m.seed, Side: side, Peer: addr(1-side, family)})
		}
	}
}

// take takes an event.
func (b *broker) take(e *event) error {
	p, w := e.p, &e.word
	if w.Tally != nil {
		b.tally.add(w.Tally)
	}
	m := p.meeting
	if m != nil && w.Session != 0 && w.Session != m.id {
		return nil
	}
	switch {
	case e.ended:
		return b.gone(p, e.err)
	case w.Say == sayFree:
		p.meeting, p.free = nil, !p.killed && !b.stopped
	case w.Say == sayBad:
		return fmt.Errorf("session %d: %s", w.Session, w.Why)
	case m == nil:
	case w.Say == sayCard:
		m.card[p.side] = w.Card
		if m.card[0] != nil && m.card[1] != nil {
			for side, q := range m.p {
				q.tell(command{Do: doConnect, Card: m.card[1-side]})
			}
		}
	case w.Say == sayReady:
		m.ready[p.side] = true
		if m.ready[0] && m.ready[1] {
			m.going = true
			for _, q := range m.p {
				if q.widowed {
					q.widowed = false
					b.again++
				}
				q.tell(command{Do: doGo})
			}
		}
	case w.Say == sayLost, w.Say == sayDone:
		return b.over(m, p.side, w.Say)
	}
	return nil
}

// over takes what an end says of its session.
func (b *broker) over(m *meeting, side int, says string) error {
	m.says[side] = says
	peer := m.p[1-side]
	if says == sayLost {
		if !peer.killed && !b.stopped {
			return fmt.Errorf("session %d (seed %d): side %d says that its peer is gone, which is not so", m.id, m.seed, side)
		}
		if peer.killed {
			b.notices = append(b.notices, time.Since(peer.killedAt))
			m.p[side].widowed = true
		}
	}
	b.settle(m)
	return nil
}

// settle ends a session that both ends have done with.
func (b *broker) settle(m *meeting) {
	for side, p := range m.p {
		if !p.killed && m.going && m.says[side] == "" {
			return // it has something to say yet
		}
	}
	for _, p := range m.p {
		if !p.killed && p.meeting == m {
			p.tell(command{Do: doBye, Session: m.id})
		}
	}
	delete(b.meets, m.id)
}

// gone takes note of a client's end, and starts another.
func (b *broker) gone(p *party, err error) error {
	if b.slots[p.side][p.slot] == p {
		b.slots[p.side][p.slot] = nil
	}
	if !p.killed && (!p.quit || err != nil) {
		return fmt.Errorf("client %d of side %d ended of itself (%v): %s", p.slot, p.side, err, p.stderr.String())
	}
	_ = p.in.Close()
	if p.meeting != nil && b.meets[p.meeting.id] != nil {
		b.settle(p.meeting)
	}
	if b.stopped {
		return nil
	}
	return b.spawn(p.side, p.slot)
}

// daemonEnded reports whether a daemon has.
func (b *broker) daemonEnded() bool {
	for _, d := range b.daemons {
		select {
		case <-d.ended:
			return true
		default:
		}
	}
	return false
}

// look finds what takes too long.
func (b *broker) look() error {
	for _, d := range b.daemons {
		if err := d.trouble(); err != nil {
			return err
		}
	}
	for _, m := range b.meets {
		for side, p := range m.p {
			peer := m.p[1-side]
			switch {
			case !m.going && time.Since(m.since) > setupWait:
				return fmt.Errorf("session %d (seed %d) is not connected after %v: cards %v, ready %v", m.id, m.seed, setupWait, [2]bool{m.card[0] != nil, m.card[1] != nil}, m.ready)
			case m.going && peer.killed && !p.killed && m.says[side] == "" && time.Since(peer.killedAt) > noticeWait:
				return fmt.Errorf("session %d (seed %d): side %d has not noticed in %v that its peer is gone", m.id, m.seed, side, noticeWait)
			}
		}
	}
	return nil
}

// stop has all clients quit, and waits until they have.
func (b *broker) stop() error {
	b.stopped = true
	left := 0
	for _, s := range b.slots {
		for _, p := range s {
			if p != nil {
				p.quit = true
				p.tell(command{Do: doQuit})
				left++
			}
		}
	}
	late := time.After(quitWait)
	var errs []error
	for left > 0 {
		select {
		case e := <-b.events:
			if e.ended {
				left--
			}
			if err := b.take(&e); err != nil {
				errs = append(errs, err)
			}
		case <-late:
			errs = append(errs, fmt.Errorf("%d clients did not quit in %v", left, quitWait))
			for _, s := range b.slots {
				for _, p := range s {
					if p != nil {
						p.killed, p.killedAt = true, time.Now()
						_ = p.cmd.Process.Kill()
					}
				}
			}
			late = nil
		}
	}
	b.readers.Wait()
	return errors.Join(errs...)
}

// verdict is the run in a line.
func (b *broker) verdict() string {
	return fmt.Sprintf("%d operations and %d octets checked, %d sessions, %d clients killed, %d peers noticed and %d went on, nothing wrong, nothing left",
		b.tally.checked(), b.tally.Octets, b.nextID, b.kills, len(b.notices), b.again)
}

// noticed says how long peers of killed clients took to find out.
func (b *broker) noticed() string {
	n := len(b.notices)
	if n == 0 {
		return "none in the middle of a session"
	}
	slices.Sort(b.notices)
	return fmt.Sprintf("%d in the middle of a session, which their peers saw as RETRY_EXC after %.1f s (median), %.1f s (at most); %d of those went on with others",
		n, b.notices[n/2].Seconds(), b.notices[n-1].Seconds(), b.again)
}
