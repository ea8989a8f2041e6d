// Command chaos proves that an rxed outlives its clients. It starts two of them in two
// network namespaces that a veth joins, each of which drops one packet of a hundred that
// it sends, and clients in processes of their own, without privilege, that send each
// other everything there is: SEND with and without immediate data or a key to
// invalidate, WRITE, READ and atomics over RC, SEND and WRITE over UC, datagrams, with
// shared receive queues, memory windows, memory of the daemon's and of the program's
// own. Every octet is compared. Every second one of them is killed, and another started
// in its place. Its peer has to find out by its retries alone, and goes on with others.
//
//	go run ./internal/chaos             a minute; root
//	go run ./internal/chaos -for 10m -seed 7
//
// At the end nothing may be left: no client, no queue pair, no descriptor, no mapping
// and no memory of clients in the daemons, which must not have ended or complained.
// The exit status is 0 then, and 77 where it cannot be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// clientFlag starts this program as a client of the daemon at a socket.
const clientFlag = "-client"

// skipped is the exit status of a run that could not be.
const skipped = 77

type config struct {
	last, kill   time.Duration
	clients      int
	shards       int
	seed         uint64
	link, faults string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == clientFlag {
		os.Exit(runClient(os.Args[2], os.Stdin, os.Stdout))
	}
	var c config
	flag.DurationVar(&c.last, "for", time.Minute, "how long")
	flag.DurationVar(&c.kill, "kill", time.Second, "how often a client is killed")
	flag.IntVar(&c.clients, "clients", 8, "clients of each daemon")
	flag.Uint64Var(&c.seed, "seed", 0, "of sessions, faults and kills (default: one of its own)")
	flag.IntVar(&c.shards, "shards", 1, "of the daemons' devices")
	flag.StringVar(&c.link, "link", "auto", "of the daemons: auto, udp, packet or xdp")
	flag.StringVar(&c.faults, "faults", "tx drop 1%", "rules of both daemons")
	flag.Parse()
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	if why := c.lacks(); why != "" {
		fmt.Fprintln(os.Stderr, "chaos: skipped:", why)
		os.Exit(skipped)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.run(ctx)
	stop()
	if err != nil {
		fmt.Printf("chaos: FAILED: %v\nreplay: go run ./internal/chaos %s\n", err, c.flags())
		os.Exit(1)
	}
}

// flags are those that make the same choices again. What happens when is the
// system's.
func (c *config) flags() string {
	return fmt.Sprintf("-seed %d -for %v -clients %d -kill %v -link %s -shards %d -faults '%s'", c.seed, c.last, c.clients, c.kill, c.link, c.shards, c.faults)
}

// lacks says why it cannot be tried here, or "".
func (c *config) lacks() string {
	if os.Getuid() != 0 {
		return "it needs root, for network namespaces and clients of another user"
	}
	for _, tool := range []string{"ip", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("%s is missing (Debian: iproute2, golang)", tool)
		}
	}
	return ""
}

// run is the whole.
func (c *config) run(ctx context.Context) (err error) {
	p, err := newPlace(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	b := &broker{
		place: p, rng: rand.New(rand.NewPCG(c.seed, 1)), meets: map[uint64]*meeting{}, events: make(chan event, 256), tally: newTally(),
		slots: [2][]*party{make([]*party, c.clients), make([]*party, c.clients)},
	}
	for side := range b.daemons {
		d, err := p.start(ctx, side, c)
		if err != nil {
			if b.daemons[0] != nil {
				b.daemons[0].kill()
			}
			return err
		}
		b.daemons[side] = d
	}
	defer func() {
		for _, d := range b.daemons { // which says what is wrong with it
			err = errors.Join(err, d.stop())
		}
		if err == nil {
			fmt.Printf("chaos: passed: %s\n", b.verdict())
		}
	}()
	fmt.Printf("chaos: %s: 2 rxed, %d clients each, one of all killed every %v\n", c.flags(), c.clients, c.kill)
	begin := time.Now()
	for side := range b.slots {
		for slot := range b.slots[side] {
			err = errors.Join(err, b.spawn(side, slot))
		}
	}
	if err == nil {
		err = b.run(ctx, c.last, c.kill)
	}
	if b.daemonEnded() {
		err = nil // it says why; clients' complaints follow from it
		_ = b.stop()
	} else {
		err = errors.Join(err, b.stop())
	}
	fmt.Println(b.tally)
	fmt.Printf("clients started: %d, killed: %d, %s\n", b.started, b.kills, b.noticed())
	for _, d := range b.daemons {
		dropped, sent := d.dropped(ctx)
		r, derr := d.clean(ctx)
		if !b.daemonEnded() {
			err = errors.Join(err, derr)
		}
		fmt.Printf("rxed %d: sent %d packets, %d of them dropped on purpose; began with %v; has %v\n", d.side, sent, dropped, d.began, r)
	}
	if err == nil {
		err = c.exercised(b)
	}
	fmt.Printf("%.0f seconds\n", time.Since(begin).Seconds())
	return err
}

// exercised returns an error when a run proves nothing, since something did not happen.
func (c *config) exercised(b *broker) error {
	for k := range kinds {
		if b.tally.Ops[k.String()] == 0 {
			return fmt.Errorf("no %v was checked", k)
		}
	}
	if b.kills > 20 && (len(b.notices) == 0 || b.again == 0) {
		return fmt.Errorf("%d clients were killed, %d peers noticed and %d went on", b.kills, len(b.notices), b.again)
	}
	return nil
}
