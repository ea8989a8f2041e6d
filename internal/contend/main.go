// Command contend shows congestion control on the wire. It makes three network
// namespaces, a sender, a relay and a receiver in a row; rxe relay is the bottleneck in
// the middle, and queue pairs of one embedded NIC contend for it.
//
//	go run ./internal/contend                       2, 4 and 8 queue pairs, one that joins, one that leaves, and without; root
//	go run ./internal/contend -flows 4 -op read -for 10s
//
// For each run it prints Jain's fairness index and how much of the bottleneck was used,
// over the second half, what was lost in its buffer, how long its queue was, and when
// the shares had settled. Bad shares, an idle bottleneck or a loss make the exit status
// 1, but for runs without congestion control, which have to lose; it is 77 where
// nothing can be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	endFlag = "-end" // starts this program as one of the ends
	skipped = 77
)

// experiment is one run.
type experiment struct {
	Name    string
	Flows   int
	Op      string // write, send, read, or uc for WRITE over UC
	Control string // as rxe's --cc takes it
	For     time.Duration
	Join    time.Duration // when the last one begins, 0 with the others
	Leave   time.Duration // when the first one stops, 0 never
	Loses   bool          // it has to
}

type setting struct {
	rate, buffer     int
	kmin, kmax       int
	pmax             string
	delay            time.Duration
	mtu, size, depth int
	link, mark       string
	verbose          bool
	jain, usage      float64
	settle           time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == endFlag {
		if err := runEnd(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "contend: an end:", err)
			os.Exit(1)
		}
		return
	}
	s := setting{}
	var one experiment
	flag.IntVar(&s.rate, "rate", 500_000_000, "of the bottleneck, bits a second of IP packets")
	flag.IntVar(&s.buffer, "buffer", 512<<10, "of the bottleneck, octets")
	flag.IntVar(&s.kmin, "kmin", 40<<10, "octets in the queue up to which nothing is marked")
	flag.IntVar(&s.kmax, "kmax", 200<<10, "octets beyond which everything is")
	flag.StringVar(&s.pmax, "pmax", "10%", "share that is marked at kmax")
	flag.StringVar(&s.mark, "mark", "dequeue", "dequeue or enqueue")
	flag.DurationVar(&s.delay, "delay", 0, "of every packet, each way")
	flag.IntVar(&s.mtu, "mtu", 4200, "of the interfaces")
	flag.IntVar(&s.size, "size", 64<<10, "octets of a message")
	flag.IntVar(&s.depth, "depth", 16, "messages that each queue pair has under way")
	flag.StringVar(&s.link, "link", "auto", "of the ends: auto, udp, packet or xdp")
	flag.BoolVar(&s.verbose, "v", false, "show each half second")
	flag.Float64Var(&s.jain, "jain", 0.95, "Jain's index that is wanted")
	flag.Float64Var(&s.usage, "usage", 0.9, "share of the bottleneck that is wanted")
	flag.DurationVar(&s.settle, "settle", time.Second, "time in which shares have to settle")
	flag.IntVar(&one.Flows, "flows", 0, "queue pairs of a single run (default: all runs)")
	flag.StringVar(&one.Op, "op", "write", "write, send, read, or uc: WRITE over UC")
	flag.StringVar(&one.Control, "cc", "dcqcn", "congestion control, as rxe's --cc takes it")
	flag.DurationVar(&one.For, "for", 10*time.Second, "of each run")
	flag.DurationVar(&one.Join, "join", 0, "when the last queue pair begins")
	flag.DurationVar(&one.Leave, "leave", 0, "when the first one stops")
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "contend: skipped: it makes network namespaces: run it as root")
		os.Exit(skipped)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		fmt.Fprintln(os.Stderr, "contend: skipped: ip(8) is missing (apt-get install iproute2)")
		os.Exit(skipped)
	}
	runs := experiments(one)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx, runs)
	stop()
	if err != nil {
		fmt.Println("contend: FAILED:", err)
		os.Exit(1)
	}
}

// experiments are the single one that was asked for, or all.
func experiments(one experiment) []experiment {
	if one.Flows > 0 {
		one.Name = fmt.Sprintf("%d %s", one.Flows, one.Op)
		return []experiment{one}
	}
	var all []experiment
	for _, n := range []int{2, 4, 8} {
		e := one
		e.Name, e.Flows = fmt.Sprintf("%d queue pairs", n), n
		all = append(all, e)
	}
	joins, leaves := one, one
	joins.Name, joins.Flows, joins.Join = "a fourth joins", 4, one.For/2
	leaves.Name, leaves.Flows, leaves.Leave = "one of four leaves", 4, one.For/2
	all = append(all, joins, leaves)
	for _, n := range []int{2, 4, 8} {
		e := one
		e.Name, e.Flows, e.Control, e.Loses = fmt.Sprintf("%d, without", n), n, "none", true
		all = append(all, e)
	}
	return all
}

func (s *setting) run(ctx context.Context, runs []experiment) error {
	p, err := newPlace(ctx, s.mtu)
	if err != nil {
		return err
	}
	defer p.close()
	fmt.Printf("bottleneck of %.0f Mb/s, buffer of %d KiB, marks from %d to %d KiB up to %s on %s; interfaces of MTU %d; messages of %d octets, %d under way\n",
		float64(s.rate)/1e6, s.buffer>>10, s.kmin>>10, s.kmax>>10, s.pmax, s.mark, s.mtu, s.size, s.depth)
	fmt.Println(header)
	var bad []error
	for i := range runs {
		r, err := s.once(ctx, p, &runs[i])
		if err != nil {
			return fmt.Errorf("%s: %w", runs[i].Name, err)
		}
		fmt.Println(r.row())
		if err := r.judge(s); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", runs[i].Name, err))
		}
	}
	return errors.Join(bad...)
}
