package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorxe/gorxe/internal/perf"
	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// perfTools are perftest's programs, without its ib_.
var perfTools = []struct {
	kind  oob.Kind
	short string
}{
	{oob.SendBW, "Bandwidth of SEND"},
	{oob.SendLat, "Latency of SEND"},
	{oob.WriteBW, "Bandwidth of RDMA WRITE"},
	{oob.WriteLat, "Latency of RDMA WRITE"},
	{oob.ReadBW, "Bandwidth of RDMA READ"},
	{oob.ReadLat, "Latency of RDMA READ"},
	{oob.AtomicBW, "Rate of atomics"},
	{oob.AtomicLat, "Latency of atomics"},
}

func newPerfCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure bandwidth and latency with perftest (ib_write_bw and the rest), or with itself",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("perf has no test %s; %s", args[0], perfNames())
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("which test? %s: rxe perf write_bw [PEER], or rxe perf --help", perfNames())
		},
	}
	for _, t := range perfTools {
		cmd.AddCommand(newPerfToolCmd(t.kind, t.short))
	}
	return cmd
}

func perfNames() string {
	var names []string
	for _, t := range perfTools {
		names = append(names, t.kind.String())
	}
	return "there are " + strings.Join(names, ", ")
}

// perfFlags are the options of one tool that are not fields of its Config as
// they stand.
type perfFlags struct {
	dev       deviceFlags
	cfg       perf.Config
	atomic    string
	json      bool
	jsonFile  string
	rdmaCM    bool
	commCM    bool
	tos       int
	rate      rateFlags
	freq      bool
	transport transportFlag
}

func newPerfToolCmd(k oob.Kind, short string) *cobra.Command {
	p := &perfFlags{cfg: perf.Default(k)}
	cmd := &cobra.Command{
		Use:     k.String() + " [PEER]",
		Aliases: []string{"ib_" + k.String()},
		Short:   short + ": without PEER the server, with PEER its client",
		Long: fmt.Sprintf(`%s, as ib_%s of perftest measures it.
The far end is that program, of version 5.70 or newer, on any machine with any
RDMA NIC or Soft-RoCE, or this one. Options have the names and meanings they have
there; give both ends the same. Without -x the GID that reaches the peer is chosen.

The far end of  rxe perf %[2]s HOST  is  ib_%[2]s -d DEVICE -x N
where N is the index of its GID, as show_gids lists them. Two on one machine take
an address each:  rxe perf %[2]s --addr 127.0.0.2  and  rxe perf %[2]s 127.0.0.2%[3]s`, short, k, percentiles(k)),
		Args: func(_ *cobra.Command, args []string) error { return perfPeer(k, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				p.cfg.Peer = args[0]
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return p.run(ctx, cmd)
		},
	}
	p.dev.add(cmd)
	p.add(cmd.Flags(), k)
	return cmd
}

// percentiles explains the columns that perftest has not.
func percentiles(k oob.Kind) string {
	if !k.Latency() {
		return ""
	}
	return `

Behind perftest's columns stand p50 to max, of all samples, where perftest leaves
the largest out. Of SEND and WRITE a sample is half a round trip.`
}

func (p *perfFlags) add(f *pflag.FlagSet, k oob.Kind) {
	c := &p.cfg
	p.transport = transportFlag{&c.Transport}
	f.IntVarP(&c.Port, "port", "p", c.Port, "TCP port of the exchange")
	f.IntVarP(&c.IBPort, "ib-port", "i", c.IBPort, "port of the device: 1")
	f.IntVarP(&c.GIDIndex, "gid-index", "x", c.GIDIndex, "index of the local GID (-1: the one that reaches the peer)")
	f.VarP(p.transport, "connection", "c", "connection type: RC, UC (SEND and WRITE), UD (SEND)")
	f.VarP(octets{&c.Size}, "size", "s", "length of a message; k and m stand for 1024 and 1048576")
	f.BoolVarP(&c.All, "all", "a", false, "all sizes from 2 to 2^23, or to the path MTU with UD")
	f.IntVarP(&c.Iters, "iters", "n", c.Iters, "messages on each queue pair, at least 5")
	f.VarP(seconds{&c.Duration}, "duration", "D", "run for so many seconds instead")
	f.VarP(seconds{&c.Margin}, "margin", "f", "seconds at the beginning and end of -D that do not count (a quarter of it)")
	f.IntVarP(&c.QPs, "qp", "q", c.QPs, "queue pairs")
	f.VarP(txDepth{&c.TxDepth}, "tx-depth", "t", "sends under way on a queue pair (a time to run for is -D)")
	f.IntVarP(&c.RxDepth, "rx-depth", "r", c.RxDepth, "receives posted on a queue pair, or on the SRQ")
	f.IntVarP(&c.PostList, "post_list", "l", c.PostList, "sends posted at a time")
	f.IntVarP(&c.CQMod, "cq-mod", "Q", 0, "sends for each completion (100; 1 for messages above 8192 octets)")
	f.IntVarP(&c.MTU, "mtu", "m", 0, "path MTU: 256, 512, 1024, 2048 or 4096 (the port's)")
	f.IntVarP(&c.Inline, "inline_size", "I", 0, "largest message that is copied when it is posted, at most 512")
	f.IntVarP(&c.OutReads, "outs", "o", 0, "READs or atomics outstanding (as many as the device can)")
	f.BoolVarP(&c.Both, "bidirectional", "b", false, "measure both ways at once")
	f.BoolVarP(&c.NoPeak, "noPeak", "N", false, "do not look for the peak (nobody does above 20000 messages)")
	f.BoolVarP(&c.Events, "events", "e", false, "sleep for completions instead of polling")
	f.BoolVarP(&p.freq, "CPU-freq", "F", false, "accepted and without effect, as there is no warning about CPU frequencies")
	f.BoolVarP(&c.Histogram, "report-histogram", "H", false, "print all latencies, sorted")
	f.BoolVarP(&c.Unsorted, "report-unsorted", "U", false, "print all latencies in the order of time")
	f.VarP(qpTimeout{&c.QPTimeout}, "qp-timeout", "u", "timeout of a queue pair, a code: 4.096 us * 2^code (UD is -c UD)")
	f.IntVarP(&c.SL, "sl", "S", 0, "service level (it has no meaning on an untagged interface)")
	f.IntVar(&c.TClass, "tclass", 0, "traffic class of the packets, DSCP and ECN")
	f.Float64Var(&p.rate.limit, "rate_limit", 0, "bound the rate of each queue pair, in IP packets with their headers; --rate_units is the unit. Of READ the server's bounds the data")
	f.StringVar(&p.rate.units, "rate_units", "g", "unit of --rate_limit: M (MiB/s) or g (Gb/s)")
	f.StringVar(&p.rate.kind, "rate_limit_type", "HW", "who keeps it: HW or PP, the device, to any rate")
	f.IntVar(&c.RetryCount, "retry_count", c.RetryCount, "how often a queue pair sends again without an answer")
	f.BoolVar(&c.SRQ, "use-srq", false, "one shared receive queue for all queue pairs")
	f.BoolVar(&c.WriteImm, "write_with_imm", false, "WRITE with immediate data (perftest 6.17 or newer)")
	f.BoolVar(&c.Gbits, "report_gbits", false, "Gbit/sec instead of MiB/sec")
	f.BoolVar(&c.ReportBoth, "report-both", false, "with -b, both ends' results as well")
	f.BoolVar(&c.Infinite, "run_infinitely", false, "run until interrupted, with a row every -D seconds")
	f.BoolVar(&p.json, "out_json", false, "write the result to perftest_out.json")
	f.StringVar(&p.jsonFile, "out_json_file", "", "write the result to this file")
	f.BoolVar(&c.Check, "check", false, "compare every octet of every message; both ends have to be rxe perf --check")
	f.DurationVar(&c.Timeout, "timeout", c.Timeout, "how long the peer may be silent")
	f.StringVarP(&p.atomic, "atomic_type", "A", "FETCH_AND_ADD", "FETCH_AND_ADD or CMP_AND_SWAP")
	f.BoolVarP(&p.rdmaCM, "rdma_cm", "R", false, "")
	f.BoolVarP(&p.commCM, "comm_rdma_cm", "z", false, "")
	f.IntVarP(&p.tos, "tos", "T", 0, "")
	for _, name := range hiddenFlags(k) {
		f.Lookup(name).Hidden = true
	}
}

// hiddenFlags are the options that a tool refuses, with a word of why, or that
// do nothing.
func hiddenFlags(k oob.Kind) []string {
	hidden := []string{"rdma_cm", "comm_rdma_cm", "tos", "CPU-freq"}
	if k.Latency() {
		hidden = append(hidden, "qp", "post_list", "tx-depth", "cq-mod", "bidirectional", "noPeak", "report_gbits", "report-both", "run_infinitely", "rate_limit", "rate_units", "rate_limit_type")
	} else {
		hidden = append(hidden, "report-histogram", "report-unsorted")
	}
	if k != oob.AtomicBW && k != oob.AtomicLat {
		hidden = append(hidden, "atomic_type")
		if k != oob.ReadBW && k != oob.ReadLat {
			hidden = append(hidden, "outs")
		}
	}
	if !k.Send() {
		hidden = append(hidden, "use-srq")
	}
	if k != oob.WriteBW && k != oob.WriteLat {
		hidden = append(hidden, "write_with_imm")
	}
	return hidden
}

// settle turns options into the configuration, and refuses those of perftest
// that this tool does not have.
func (p *perfFlags) settle(cmd *cobra.Command) error {
	switch {
	case p.rdmaCM:
		return errors.New("-R: connecting by rdma_cm is not there; start both ends without -R, so that they exchange addresses over TCP")
	case p.commCM:
		return errors.New("-z: exchanging addresses by rdma_cm is not there; start both ends without -z")
	case cmd.Flags().Changed("tos"):
		return fmt.Errorf("-T %d: it is for connections by rdma_cm (-R); the traffic class of these is --tclass %[1]d", p.tos)
	case p.cfg.Kind.Latency() && (p.cfg.Infinite || p.cfg.ReportBoth || p.cfg.NoPeak || p.cfg.Gbits):
		return fmt.Errorf("-N, --report_gbits, --report-both and --run_infinitely are options of the bandwidth tools, this is %v", p.cfg.Kind)
	case !p.cfg.Kind.Latency() && (p.cfg.Histogram || p.cfg.Unsorted):
		return fmt.Errorf("-H and -U are options of the latency tools, this is %v", p.cfg.Kind)
	}
	switch p.atomic {
	case "FETCH_AND_ADD":
	case "CMP_AND_SWAP":
		p.cfg.CmpSwap = true
	default:
		return fmt.Errorf("-A %s: there are FETCH_AND_ADD and CMP_AND_SWAP", p.atomic)
	}
	var err error
	if p.cfg.RateLimit, err = p.rate.kbps(cmd.Flags().Changed("rate_limit"), cmd.Flags().Changed("rate_limit_type")); err != nil {
		return err
	}
	p.cfg.Fit = !cmd.Flags().Changed("size")
	p.cfg.JSON = p.jsonFile
	if p.json && p.jsonFile == "" {
		p.cfg.JSON = "perftest_out.json" // perftest's
	}
	return nil
}

// rateFlags are perftest's rate limiter.
type rateFlags struct {
	limit       float64
	units, kind string
}

// kbps is the limit of each queue pair, 0 without one. A kind without a limit is
// perftest's for none.
func (r *rateFlags) kbps(limited, typed bool) (uint32, error) {
	switch r.kind {
	case "HW", "PP":
	case "SW":
		return 0, errors.New("--rate_limit_type SW: perftest holds its own sends back, in bursts; this device spaces packets itself: leave it out, or give HW")
	default:
		return 0, fmt.Errorf("--rate_limit_type %s: there are HW and PP, which are the same here", r.kind)
	}
	switch {
	case !limited && typed:
		return 0, errors.New("--rate_limit_type: give the rate too: --rate_limit 0.5, in Gb/s, or with --rate_units M in MiB/s")
	case !limited:
		return 0, nil
	}
	return perf.RateKbps(r.limit, r.units)
}

// run opens the device first when the flags name it, so that a mistake does not
// wait for a peer to be told.
func (p *perfFlags) run(ctx context.Context, cmd *cobra.Command) (err error) {
	if err := errors.Join(p.settle(cmd), p.dev.check()); err != nil {
		return err
	}
	cfg := p.cfg
	cfg.Faults = p.dev.faults
	cfg.Open, cfg.Out = p.open, cmd.OutOrStdout()
	if s, err := os.Stderr.Stat(); err == nil && s.Mode()&os.ModeCharDevice != 0 {
		cfg.Progress = os.Stderr // a terminal
	}
	if p.dev.named() {
		if cfg.Device, err = p.open(netip.Addr{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cfg.Device.Close()) }()
	}
	return interrupted(perf.Run(ctx, cfg))
}

// kernelDevice are names that the kernel's drivers give RDMA devices.
var kernelDevice = regexp.MustCompile(`^(mlx[45]|bnxt_re|irdma|iw|cxgb|hns|qedr|roce|rocep|ibp|siw|efa|erdma|mana|ocrdma|hfi)[_a-z0-9]*$`)

func (p *perfFlags) open(local netip.Addr) (*verbs.Context, error) {
	dev, err := p.dev.open(local)
	if err != nil && kernelDevice.MatchString(p.dev.dev) {
		return nil, fmt.Errorf("-d %s: that is a device of the kernel's; this NIC is embedded on a network interface, such as the one which that device is on: -d eth0 (rxe devinfo lists them): %w", p.dev.dev, err)
	}
	return dev, err
}

// perfPeer checks the argument; without one it is the server.
func perfPeer(k oob.Kind, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > 1:
		return fmt.Errorf("perf %v takes one PEER, not %s", k, strings.Join(args, " and "))
	case args[0] == "":
		return errors.New("PEER is empty; leave it out to be the server")
	case args[0] == "UD" || args[0] == "UC" || args[0] == "RC":
		return fmt.Errorf("PEER is %s; the connection type is -c %[1]s", args[0])
	}
	if _, err := netip.ParseAddr(args[0]); err == nil {
		return nil // an IPv6 address has colons
	}
	if host, port, err := net.SplitHostPort(args[0]); err == nil {
		return fmt.Errorf("PEER is a host without a port; -p gives the TCP port: rxe perf %v -p %s %s", k, port, host)
	}
	return nil
}

// transportFlag is -c.
type transportFlag struct{ t *verbs.QPType }

func (f transportFlag) String() string {
	if f.t == nil {
		return ""
	}
	return f.t.String()
}

func (transportFlag) Type() string { return "RC|UC|UD" }

func (f transportFlag) Set(s string) (err error) {
	*f.t, err = perf.ParseTransport(s)
	return err
}

// seconds is -D or -f: a number of seconds, or a duration with its unit.
type seconds struct{ d *time.Duration }

func (f seconds) String() string {
	if f.d == nil || *f.d <= 0 {
		return ""
	}
	return f.d.String()
}

func (seconds) Type() string { return "seconds" }

func (f seconds) Set(s string) error {
	d, err := time.ParseDuration(s)
	if n, nerr := strconv.Atoi(s); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > 365*24*time.Hour {
		return errors.New("it takes a number of seconds, such as 10")
	}
	*f.d = d
	return nil
}

// qpTimeout is -u, which is taken for UD.
type qpTimeout struct{ n *int }

func (f qpTimeout) String() string { return number(f.n) }
func (qpTimeout) Type() string     { return "code" }

func (f qpTimeout) Set(s string) (err error) {
	if *f.n, err = strconv.Atoi(s); err != nil {
		return errors.New("it is the timeout of a queue pair, a code of 0 to 31; unreliable datagrams are -c UD")
	}
	return nil
}

// txDepth is -t, which is taken for a time.
type txDepth struct{ n *int }

func (f txDepth) String() string { return number(f.n) }
func (txDepth) Type() string     { return "depth" }

func (f txDepth) Set(s string) (err error) {
	if *f.n, err = strconv.Atoi(s); err != nil {
		return errors.New("it is the number of sends under way at a time; a time to run for is -D, in seconds")
	}
	return nil
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
