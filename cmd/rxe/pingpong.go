package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/pingpong"
	"github.com/gorxe/gorxe/link/tap"
)

func newPingpongCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pingpong",
		Short: "Exchange messages with ibv_*_pingpong of rdma-core, or with itself",
		Args:  cobra.NoArgs, // so that a misspelt subcommand is an error
		RunE: func(*cobra.Command, []string) error {
			return errors.New("which pingpong? There is rc: rxe pingpong rc [PEER], or rxe pingpong --help")
		},
	}
	cmd.AddCommand(newPingpongRCCmd())
	for _, other := range []string{"uc", "ud", "srq", "xsrq"} { // rdma-core's
		cmd.AddCommand(&cobra.Command{
			Use: other, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("pingpong %s: not yet; there is rc: rxe pingpong rc [PEER]", other)
			},
		})
	}
	return cmd
}

// onePeer checks the argument of pingpong; without one it is the server.
func onePeer(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > 1:
		return fmt.Errorf("pingpong takes one PEER, not %s", strings.Join(args, " and "))
	case args[0] == "":
		return errors.New("PEER is empty; leave it out to be the server")
	}
	if _, err := netip.ParseAddr(args[0]); err == nil {
		return nil // an IPv6 address has colons
	}
	if host, port, err := net.SplitHostPort(args[0]); err == nil {
		return fmt.Errorf("PEER is a host without a port; -p gives the TCP port: rxe pingpong rc -p %s %s", port, host)
	}
	return nil
}

// octets is a flag for a number of octets, such as 65536 or 64k.
type octets struct{ n *int }

func (o octets) String() string {
	if o.n == nil {
		return ""
	}
	return strconv.Itoa(*o.n)
}

func (octets) Type() string { return "octets" }

func (o octets) Set(s string) error {
	digits, unit := s, 1
	if n := len(s) - 1; n > 0 {
		switch s[n] {
		case 'k', 'K':
			digits, unit = s[:n], 1<<10
		case 'm', 'M':
			digits, unit = s[:n], 1<<20
		}
	}
	n, err := strconv.ParseInt(digits, 0, 32)
	if err != nil {
		return errors.New("octets as a number, or with k (1024) or m (1048576) after it, such as 64k")
	}
	*o.n = int(n) * unit
	return nil
}

func newPingpongRCCmd() *cobra.Command {
	var dev deviceFlags
	cfg := pingpong.Default()
	cmd := &cobra.Command{
		Use:   "rc [PEER]",
		Short: "ibv_rc_pingpong: without PEER the server, with PEER its client",
		Long: `Pass a message back and forth over a reliable connection. The far end is
ibv_rc_pingpong of rdma-core, on any machine with any RDMA NIC or Soft-RoCE, or
this program. Options have the meaning they have there; without -g the GID that
reaches the peer is chosen.

The far end of  rxe pingpong rc -s 65536 HOST  is  ibv_rc_pingpong -g N -s 65536
where N is the index of its GID, as show_gids lists them.`,
		Args: onePeer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				cfg.Peer = args[0]
			}
			cfg.Faults = dev.faults
			cfg.Open, cfg.Out = dev.open, cmd.OutOrStdout()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runPingpong(ctx, &dev, cfg)
		},
	}
	dev.add(cmd)
	f := cmd.Flags()
	f.IntVarP(&cfg.Port, "port", "p", cfg.Port, "TCP port of the exchange")
	f.IntVarP(&cfg.IBPort, "ib-port", "i", cfg.IBPort, "port of the device: 1")
	f.VarP(octets{&cfg.Size}, "size", "s", "length of a message; k and m stand for 1024 and 1048576")
	f.IntVarP(&cfg.MTU, "mtu", "m", cfg.MTU, "path MTU: 256, 512, 1024, 2048 or 4096; the same on both sides")
	f.IntVarP(&cfg.RxDepth, "rx-depth", "r", cfg.RxDepth, "receive requests posted at a time")
	f.IntVarP(&cfg.Iters, "iters", "n", cfg.Iters, "number of exchanges")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "how long the peer may be silent")
	f.IntVarP(&cfg.SL, "sl", "l", cfg.SL, "service level (it has no meaning on an untagged interface)")
	f.BoolVarP(&cfg.Events, "events", "e", false, "sleep for completions instead of polling")
	f.IntVarP(&cfg.GIDIndex, "gid-idx", "g", cfg.GIDIndex, "index of the local GID (-1: chosen for the peer)")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "print the device's counters at the end, those that are not 0")
	f.BoolVarP(&cfg.Stamps, "ts", "t", false, "print the intervals between receive completions, by a clock of 1 GHz")
	f.BoolVarP(&cfg.Check, "chk", "c", false, "check the data of each message; the client has to be started with it too")
	return cmd
}

// runPingpong opens the device first when the flags name it, so that a mistake
// does not wait for a peer to be told.
func runPingpong(ctx context.Context, dev *deviceFlags, cfg pingpong.Config) (err error) {
	if err := dev.check(); err != nil {
		return err
	}
	if dev.named() {
		if cfg.Device, err = dev.open(netip.Addr{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cfg.Device.Close()) }()
	}
	err = pingpong.Run(ctx, cfg)
	switch {
	case errors.Is(err, context.Canceled) && errors.Is(err, tap.ErrIncomplete):
		return fmt.Errorf("interrupted: %w", err)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	}
	return err
}
