package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/devinfo"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/link/xdp"
	"github.com/gorxe/gorxe/verbs"
)

// deviceFlags are the flags of every subcommand that opens a device.
type deviceFlags struct {
	dev, addr, link, faults, tap string
	daemon, cc                   string
	seed                         uint64
	shards                       int
	changed                      func(flag string) bool // it was given
}

const linkHelp = "auto (given by name it says what it chose, and what is missing), udp (no privilege), packet (exact ICRC, needs CAP_NET_RAW) or xdp (AF_XDP, for physical NICs, needs CAP_BPF too)"

func (d *deviceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	d.changed = f.Changed
	f.StringVarP(&d.dev, "dev", "d", "", "network interface to embed a NIC on, or a device as devinfo lists it (default: the one that reaches the peer)")
	f.StringVar(&d.addr, "addr", "", "local address to embed a NIC on, instead of an interface")
	f.StringVar(&d.link, "link", "auto", linkHelp)
	f.StringVar(&d.faults, "faults", "", `fault rules, such as "tx drop 2%; rx dup 1%"`)
	f.Uint64Var(&d.seed, "seed", 0, "seed of the fault rules (0: 1)")
	f.StringVar(&d.cc, "cc", "", `congestion control: an algorithm (dcqcn, none, window, swift), parameters as "rxe cc profiles" and docs/rxed.md have them, or both: "dcqcn,profile=paper,rp_ai_rate=10"`)
	f.StringVar(&d.tap, "tap", "", "write every packet to this pcapng file")
	f.StringVar(&d.daemon, "daemon", "", "socket of the rxed whose device to use, or \"never\" (default: "+control.Socket("")+" if the device is served there, otherwise a NIC is embedded)")
	f.IntVar(&d.shards, "shards", 1, "shards of the device, 1 to 16")
}

// named reports whether the flags say where the NIC is; otherwise the peer's
// address does, once it is known.
func (d *deviceFlags) named() bool { return d.dev != "" || d.addr != "" || d.attached() }

// attached reports whether the flags name a daemon.
func (d *deviceFlags) attached() bool { return d.daemon != "" && d.daemon != gorxe.DaemonNever }

// check finds, before anything is waited for, what Open would only find when a
// peer has come.
func (d *deviceFlags) check() error {
	if d.dev != "" && d.addr != "" {
		return errors.New("give --dev or --addr, not both")
	}
	if err := checkAddr("--addr", d.addr); err != nil {
		return err
	}
	switch d.link {
	case gorxe.LinkAuto, gorxe.LinkUDP:
	case gorxe.LinkPacket:
		if c, err := hostnet.Capabilities(); err == nil && !c.NetRaw {
			return fmt.Errorf("--link packet: %w: run as root, or use --link udp, which needs no privilege", packet.ErrPrivilege)
		}
	case gorxe.LinkXDP:
		if err := xdp.Privileged(); err != nil {
			return fmt.Errorf("--link xdp: %w", err)
		}
	default:
		return fmt.Errorf("--link %s: there are auto, udp, packet and xdp", d.link)
	}
	if d.shards < 1 || d.shards > 16 {
		return fmt.Errorf("--shards %d: 1 to 16 are possible", d.shards)
	}
	if err := checkCC(d.cc); err != nil {
		return err
	}
	if err := checkTap(d.tap); err != nil {
		return err
	}
	return checkFaults(d.faults)
}

// checkAddr says what is wrong with an address that a flag gives; "" is none.
func checkAddr(flag, text string) error {
	if text == "" {
		return nil
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return fmt.Errorf("%s %s: an address goes without the length of its network: %[1]s %[3]v", flag, text, p.Addr())
	}
	if p, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Errorf("%s %s: an address goes without a port: %[1]s %[3]v", flag, text, p.Addr())
	}
	if _, err := hostnet.Interface(text); err == nil {
		return fmt.Errorf("%s %s: it takes an IP address; %[2]s is a network interface, which -d takes: -d %[2]s", flag, text)
	}
	return fmt.Errorf("%s %s: it takes an IP address of this host, such as 127.0.0.1", flag, text)
}

// checkTap checks that a capture can be written; the file is there then.
func checkTap(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("--tap: cannot write the capture: %w; choose a file elsewhere", err)
	}
	return f.Close()
}

// checkCC says what is wrong with the congestion control that a flag asks for; "" is
// the default.
func checkCC(list string) error {
	if list == "" {
		return nil
	}
	c := cc.Default()
	if err := c.Parse(list); err != nil {
		return fmt.Errorf("--cc %s: %w", list, err)
	}
	return nil
}

// checkFaults says what is wrong with fault rules on one line.
func checkFaults(rules string) error {
	_, err := fault.Parse(rules)
	var p *fault.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("--faults: rule %q: %s: %q; an example is \"tx drop 2%%; rx dup 1%%\"", p.Rule, p.Msg, p.Word)
	}
	return err
}

// config completes the flags for a device that reaches peers from local, an
// address of this host; local may be invalid when the flags name the device.
func (d *deviceFlags) config(local netip.Addr) (gorxe.Config, error) {
	c := gorxe.Config{Interface: d.dev, Addr: d.addr, Link: d.link, Faults: d.faults, CC: d.cc, Seed: d.seed, Tap: d.tap, Shards: d.shards, Daemon: d.daemon}
	if d.dev != "" && !d.attached() {
		all, err := hostnet.Interfaces()
		if err != nil {
			return c, err
		}
		c.Interface, c.Name = devinfo.Find(all, d.dev)
	}
	if d.named() {
		return c, nil
	}
	i, err := hostnet.InterfaceWith(local)
	switch {
	case err != nil:
		return c, fmt.Errorf("which interface? %w; choose with --dev", err)
	case i.Loopback: // several devices may share lo, each with an address of its own
		c.Addr = local.String()
	default:
		c.Interface = i.Name
	}
	return c, nil
}

// open opens the device for a peer reached from local.
func (d *deviceFlags) open(local netip.Addr) (*verbs.Context, error) {
	c, err := d.config(local)
	if err != nil {
		return nil, err
	}
	dev, err := gorxe.Open(c)
	if err == nil {
		tell(os.Stderr, dev)
	}
	if err == nil && d.link == gorxe.LinkAuto && d.changed("link") {
		explain(os.Stderr, dev)
	}
	return dev, err
}

// tell says whose device it is, when it is not this program's own.
func tell(w io.Writer, dev *verbs.Context) {
	if a, err := dev.Device(); err == nil && a.Daemon != "" {
		fmt.Fprintf(w, "rxe: attached to %s of %s\n", a.Name, a.Daemon)
	}
}

// explain is for who asks for auto by name: which link that is, and why, and what
// the device goes without: what, what follows, what helps, in a line each. When
// nothing lacks it is silent.
func explain(w io.Writer, dev *verbs.Context) {
	a, err := dev.Device()
	if err != nil || len(a.Missing) == 0 {
		return
	}
	fmt.Fprintf(w, "rxe: --link auto is %s: %s\n", a.Link, devinfo.WhyAuto(a.Link))
	for _, m := range a.Missing {
		fmt.Fprintf(w, "rxe: %s\n", m)
	}
}

// interrupted puts what a run ended with in words for whoever interrupted it.
func interrupted(err error) error {
	switch {
	case errors.Is(err, context.Canceled) && errors.Is(err, tap.ErrIncomplete):
		return fmt.Errorf("interrupted: %w", err)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	}
	return err
}
