package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/verbs"
)

// deviceFlags are the flags of every subcommand that opens a device.
type deviceFlags struct {
	dev, addr, link, faults, tap string
	seed                         uint64
	shards                       int
}

func (d *deviceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&d.dev, "dev", "d", "", "network interface to embed a NIC on (default: the one that reaches the peer)")
	f.StringVar(&d.addr, "addr", "", "local address to embed a NIC on, instead of an interface")
	f.StringVar(&d.link, "link", "auto", "auto, udp (no privilege) or packet (exact ICRC, needs CAP_NET_RAW)")
	f.StringVar(&d.faults, "faults", "", `fault rules, such as "tx drop 2%; rx dup 1%"`)
	f.Uint64Var(&d.seed, "seed", 0, "seed of the fault rules (0: 1)")
	f.StringVar(&d.tap, "tap", "", "write every packet to this pcapng file")
	f.IntVar(&d.shards, "shards", 1, "shards of the device, 1 to 16")
}

// config completes the flags for a device that reaches peers from local, an
// address of this host; local may be invalid when the flags name the device.
func (d *deviceFlags) config(local netip.Addr) (gorxe.Config, error) {
	c := gorxe.Config{Interface: d.dev, Addr: d.addr, Link: d.link, Faults: d.faults, Seed: d.seed, Tap: d.tap, Shards: d.shards}
	if d.dev != "" && d.addr != "" {
		return c, fmt.Errorf("give --dev or --addr, not both")
	}
	if d.dev != "" || d.addr != "" {
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
func (d *deviceFlags) open(local, _ netip.Addr) (*verbs.Context, error) {
	c, err := d.config(local)
	if err != nil {
		return nil, err
	}
	return gorxe.Open(c)
}
