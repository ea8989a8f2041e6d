package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/verbs"
)

// Config is a run of the demo.
type Config struct {
	AddrA, AddrB string // local addresses, 127.0.0.1 and 127.0.0.2
	Link         string // "udp"
	Faults       string // rules of the second round
	Seed         uint64
	Tap          string        // pcapng file of the third round; empty for none
	Time         time.Duration // for each operation of a round
	Out          io.Writer
}

// Default returns what rxe demo runs.
func Default() Config {
	return Config{AddrA: "127.0.0.1", AddrB: "127.0.0.2", Link: "udp", Faults: "tx drop 1%; rx drop 1%", Seed: 1, Tap: "gorxe-demo.pcapng", Time: 300 * time.Millisecond}
}

// Run runs the demo and prints its table. It returns an error when an
// operation fails or data differ. A capture that cannot be written is not one.
func Run(ctx context.Context, cfg Config) error {
	if _, err := fault.Parse(cfg.Faults); err != nil {
		return err
	}
	fmt.Fprintf(cfg.Out, "Two software RDMA NICs in one process: %s and %s, link %q, user id %d, no kernel module.\n", cfg.AddrA, cfg.AddrB, cfg.Link, os.Getuid())
	clean, err := cfg.round(ctx, "", "", cfg.Time)
	if err != nil {
		return fmt.Errorf("on a clean wire: %w", err)
	}
	lossy, err := cfg.round(ctx, cfg.Faults, "", cfg.Time)
	if err != nil {
		return fmt.Errorf("with %q: %w", cfg.Faults, err)
	}
	table(cfg.Out, cfg.Faults, clean, lossy)
	if cfg.Tap == "" {
		return nil
	}
	return cfg.capture(ctx)
}

// capture writes a file of a few of each operation, losses included.
func (cfg *Config) capture(ctx context.Context) error {
	f, err := os.OpenFile(cfg.Tap, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		fmt.Fprintf(cfg.Out, "\nNo capture was written: %v (--tap FILE puts it elsewhere).\n", err)
		return nil
	}
	_ = f.Close()
	_, err = cfg.round(ctx, cfg.Faults, cfg.Tap, 0)
	switch {
	case errors.Is(err, tap.ErrIncomplete):
		fmt.Fprintf(cfg.Out, "\nNo capture was written, or only the beginning of one: %v (--tap FILE puts it elsewhere).\n", err)
		return nil
	case err != nil:
		return fmt.Errorf("while capturing to %s: %w", cfg.Tap, err)
	}
	fmt.Fprintf(cfg.Out, "\nA capture of a few of each, losses included: %s\n  (wireshark %s, or: rxe decode %s)\n", cfg.Tap, cfg.Tap, cfg.Tap)
	return nil
}

// round opens two NICs, runs every operation for a while, and returns what
// happened. A time of 0 runs each a few times, with messages and packets that
// keep a capture of it small.
func (cfg *Config) round(ctx context.Context, faults, capture string, d time.Duration) (*result, error) {
	a, err := gorxe.Open(gorxe.Config{Addr: cfg.AddrA, Link: cfg.Link, Faults: faults, Seed: cfg.Seed, Tap: capture})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := gorxe.Open(gorxe.Config{Addr: cfg.AddrB, Link: cfg.Link})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	opts := verbs.DefaultConnectOptions()
	if d == 0 {
		opts.PathMTU = captureMTU
	}
	p, err := connect(a, b, [2]netip.Addr{netip.MustParseAddr(cfg.AddrA), netip.MustParseAddr(cfg.AddrB)}, opts)
	if err != nil {
		return nil, err
	}
	res := &result{}
	for _, op := range operations {
		if d == 0 {
			op.size = min(op.size, captureSize)
		}
		before, err := a.Counters()
		if err != nil {
			return nil, err
		}
		row, err := p.run(ctx, op, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		if after, err := a.Counters(); err == nil {
			row.packets, row.bursts = after["sent_pkts"]-before["sent_pkts"], after["tx_bursts"]-before["tx_bursts"]
		}
		res.rows = append(res.rows, row)
	}
	ca, err := a.Counters()
	if err != nil {
		return nil, err
	}
	cb, err := b.Counters()
	if err != nil {
		return nil, err
	}
	res.count(ca, cb)
	return res, errors.Join(a.Close(), b.Close())
}

// pair is a connected pair of queue pairs with memory behind each.
type pair struct {
	a, b end
}

type end struct {
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
}

const (
	memory = 4 << 20
	depth  = 64
)

func open(dev *verbs.Context, peer netip.Addr) (e end, ep verbs.Endpoint, err error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return e, ep, err
	}
	if e.mr, err = pd.AllocMR(memory, verbs.AccessAll); err != nil {
		return e, ep, err
	}
	if e.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: 4 * depth}); err != nil {
		return e, ep, err
	}
	e.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: 2 * depth}})
	if err != nil {
		return e, ep, err
	}
	ep, err = e.qp.Endpoint(peer)
	return e, ep, err
}

// connect connects the devices, which have addrs.
func connect(a, b *verbs.Context, addrs [2]netip.Addr, opts verbs.ConnectOptions) (*pair, error) {
	ea, pa, err := open(a, addrs[1])
	if err != nil {
		return nil, err
	}
	eb, pb, err := open(b, addrs[0])
	if err != nil {
		return nil, err
	}
	if err := ea.qp.Connect(pa, pb, opts); err != nil {
		return nil, err
	}
	if err := eb.qp.Connect(pb, pa, opts); err != nil {
		return nil, err
	}
	return &pair{ea, eb}, nil
}
