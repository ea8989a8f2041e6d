package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/relay"
	"github.com/gorxe/gorxe/link/fault"
)

// relayCmd is rxe relay and its flags.
type relayCmd struct {
	cfg              relay.Config
	line             relay.Line
	mark, direction  string
	pmax             string
	faults           string
	capture          string
	json             bool
	limit            time.Duration
	changed          func(flag string) bool
	stdout, messages io.Writer
}

func newRelayCmd() *cobra.Command {
	r := relayCmd{line: relay.Line{Buffer: 512 << 10}}
	cmd := &cobra.Command{
		Use:   "relay A B",
		Short: "Forward between two interfaces, as a bottleneck and with faults for RoCEv2",
		Long: `Forward every frame between two interfaces, unchanged, as a bridge does, and treat
RoCEv2 (UDP port 4791) as a network would: a bottleneck with a rate, a buffer and
RED-ECN marks, a delay, and fault rules. Everything else goes past that. Who
talks through it need not be ours: nothing is assumed of the ends.

The interfaces must be up and need no addresses. CAP_NET_RAW is needed.

	rxe relay eth1 eth2 --rate 500M --buffer 512K --kmin 40K --kmax 160K --pmax 10%
	rxe relay eth1 eth2 --faults "tx drop 1%; rx ce 5%" --report 1s

Rates are bits a second of IP packets, header to ICRC, in powers of 1000; sizes are
octets, in powers of 1024. In fault rules (package link/fault has the grammar) tx is
from A to B, and rx from B to A; they come before the bottleneck.
It ends by ^C, or after --for, with a table of what passed.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%d interfaces: it takes the names of two, such as: rxe relay eth1 eth2", len(args))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Var(bitRate{&r.line.Rate}, "rate", "bottleneck: bits a second of IP packets, such as 500M (0: none)")
	f.Var(octets{&r.line.Buffer}, "buffer", "octets that wait for the bottleneck; what finds no room is lost")
	f.Var(octets{&r.line.RED.Kmin}, "kmin", "queue, in octets, up to which nothing is marked")
	f.Var(octets{&r.line.RED.Kmax}, "kmax", "queue, in octets, beyond which every packet with ECT is marked (needed for marks)")
	f.StringVar(&r.pmax, "pmax", "100%", "share of packets marked at kmax, as 10% or 0.1; less below, in proportion")
	f.StringVar(&r.mark, "mark", "dequeue", "mark packets that leave the queue (dequeue), by what they leave behind, or that join it (enqueue)")
	f.DurationVar(&r.line.Delay, "delay", 0, "delay of every packet")
	f.StringVar(&r.direction, "direction", "both", "which direction the bottleneck and the delay are in: both, each by itself, ab, or ba")
	f.StringVar(&r.faults, "faults", "", "fault rules; tx is from A to B, rx from B to A")
	f.Uint64Var(&r.cfg.Seed, "seed", 1, "seed of fault rules and marks")
	f.DurationVar(&r.cfg.Every, "report", 0, "show what passed, at this interval (0: only at the end)")
	f.BoolVar(&r.cfg.Realtime, "realtime", false, "run before other programs (SCHED_FIFO): packets leave on time on a busy machine; it needs CAP_SYS_NICE")
	f.DurationVar(&r.limit, "for", 0, "end after this time (0: never)")
	f.BoolVar(&r.json, "json", false, "reports as JSON, one object a line")
	f.StringVar(&r.capture, "pcap", "", "file to write what goes out to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.cfg.A, r.cfg.B = args[0], args[1]
		r.stdout, r.messages, r.changed = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Flags().Changed
		if err := r.check(); err != nil {
			return err
		}
		return r.run(cmd)
	}
	return cmd
}

// check makes a configuration of the flags.
func (r *relayCmd) check() (err error) {
	if r.cfg.Rules, err = fault.Parse(r.faults); err != nil {
		return fmt.Errorf("--faults: %w", err)
	}
	if r.line.RED.Pmax, err = parseShare(r.pmax); err != nil {
		return fmt.Errorf("--pmax %s: %w", r.pmax, err)
	}
	if r.line.Rate == 0 {
		for _, name := range []string{"buffer", "kmin", "kmax", "pmax", "mark"} {
			if r.changed(name) {
				return fmt.Errorf("--%s is of a bottleneck: it needs --rate, such as --rate 500M", name)
			}
		}
	}
	r.line.Marks = r.changed("kmax")
	if !r.line.Marks && (r.changed("kmin") || r.changed("pmax") || r.changed("mark")) {
		return errors.New("--kmax is missing: marks need the queue beyond which every packet is marked, in octets, such as --kmax 160K")
	}
	switch r.mark {
	case "dequeue":
	case "enqueue":
		r.line.AtEnqueue = true
	default:
		return fmt.Errorf("--mark %s: it takes dequeue or enqueue", r.mark)
	}
	switch r.direction {
	case "both":
		r.cfg.AB, r.cfg.BA = r.line, r.line
	case "ab":
		r.cfg.AB = r.line
	case "ba":
		r.cfg.BA = r.line
	default:
		return fmt.Errorf("--direction %s: it takes both, ab (from %s to %s) or ba", r.direction, r.cfg.A, r.cfg.B)
	}
	if r.limit < 0 {
		return fmt.Errorf("--for %v: it takes a time, such as 10s", r.limit)
	}
	return r.line.Check()
}

func (r *relayCmd) run(cmd *cobra.Command) (err error) {
	ctx, stop := interruptible(cmd)
	defer stop()
	r.cfg.Log = func(line string) { fmt.Fprintln(r.messages, "rxe:", line) }
	r.cfg.Report = func(n *relay.Report) {
		if r.json {
			err = errors.Join(err, writeJSON(r.stdout, n))
			return
		}
		n.WriteText(r.stdout, r.cfg.A, r.cfg.B)
	}
	if r.capture != "" {
		f, ferr := os.Create(r.capture)
		if ferr != nil {
			return fmt.Errorf("cannot write the capture: %w; choose a file elsewhere", ferr)
		}
		w := relay.NewCaptureFile(f)
		r.cfg.Capture = w
		defer func() { err = errors.Join(err, w.Close()) }()
	}
	l, err := relay.Open(r.cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	for _, line := range relay.Describe(&r.cfg) {
		fmt.Fprintln(r.messages, "rxe:", line)
	}
	// Its time begins now that the interfaces are open.
	if r.limit > 0 {
		timer := time.AfterFunc(r.limit, stop)
		defer timer.Stop()
	}
	return errors.Join(l.Run(ctx), err)
}

// bitRate is a flag of bits a second.
type bitRate struct{ n *int64 }

func (b bitRate) String() string {
	if b.n == nil {
		return ""
	}
	return strconv.FormatInt(*b.n, 10)
}

func (bitRate) Type() string { return "bit/s" }

func (b bitRate) Set(s string) error {
	digits, unit := s, 1.0
	if n := len(s) - 1; n > 0 {
		switch s[n] {
		case 'k', 'K':
			digits, unit = s[:n], 1e3
		case 'm', 'M':
			digits, unit = s[:n], 1e6
		case 'g', 'G':
			digits, unit = s[:n], 1e9
		}
	}
	v, err := strconv.ParseFloat(digits, 64)
	if v *= unit; err != nil || !(v >= 0 && v <= relay.MaxRate) {
		return errors.New("bits a second as a number, or with k, M or G (powers of 1000) after it, such as 500M; at most 1000G")
	}
	*b.n = int64(math.Ceil(v)) // 0 alone is none
	return nil
}

// parseShare reads a part of 1, or per cent.
func parseShare(s string) (float64, error) {
	digits, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, errors.New("it takes a share from 0 to 1, or from 0% to 100%, such as 10%")
	}
	return v, nil
}
