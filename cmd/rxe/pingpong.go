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
)

func newPingpongCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pingpong",
		Short: "Exchange messages with ibv_*_pingpong of rdma-core, or with itself",
		Args:  cobra.NoArgs, // so that a misspelt subcommand is an error
		RunE: func(*cobra.Command, []string) error {
			return errors.New("which pingpong? There are rc, uc, ud and srq: rxe pingpong rc [PEER], or rxe pingpong --help")
		},
	}
	for i := range pingpongs {
		cmd.AddCommand(pingpongs[i].command())
	}
	cmd.AddCommand(&cobra.Command{
		Use: "xsrq", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("pingpong xsrq: not yet (it takes XRC queue pairs); there are rc, uc, ud and srq: rxe pingpong srq [PEER]")
		},
	})
	return cmd
}

// pingpongs are the programs of rdma-core that there are.
var pingpongs = []pingpongProgram{
	{
		service: pingpong.RC,
		short:   "ibv_rc_pingpong: a reliable connection",
		about:   "Pass a message back and forth over a reliable connection.",
		lacks:   []lack{noODP, noImplicitODP, noPrefetch, noDM, noNewSend},
	},
	{
		service: pingpong.UC,
		short:   "ibv_uc_pingpong: an unreliable connection",
		about: `Pass a message back and forth over an unreliable connection. A packet that is
lost ends it in an error, where the original waits for ever.`,
		lacks: []lack{noODP, noTS},
	},
	{
		service: pingpong.UD,
		short:   "ibv_ud_pingpong: datagrams",
		about: `Pass a message back and forth by datagrams, each one packet. One that is lost
ends it in an error, where the original waits for ever.`,
		lacks: []lack{noMTU, noODP, noTS},
	},
	{
		service: pingpong.SRQ,
		short:   "ibv_srq_pingpong: reliable connections with a shared receive queue",
		about: `Pass messages back and forth over several reliable connections, which take
their receives from one shared queue. -n counts the messages of all of them.`,
		lacks: []lack{noODP, noTS},
	},
}

// pingpongProgram is what tells the programs' commands apart.
type pingpongProgram struct {
	service      pingpong.Service
	short, about string
	lacks        []lack
}

// lack is an option that one of the originals has and this program, or this
// service, has not. It may have an argument.
type lack struct {
	name, letter string
	arg          bool
	why          string
}

var (
	noODP         = lack{"odp", "o", false, "on-demand paging spares a NIC's driver pinning the pages of a region; this NIC is software and pins none. Leave it out"}
	noImplicitODP = lack{"iodp", "O", false, "implicit on-demand paging opens a program's whole address space to its NIC; here a region has the memory it was made of. Leave it out"}
	noPrefetch    = lack{"prefetch", "P", false, "prefetching is for on-demand paging, and this NIC is software that reads memory as the program does. Leave it out"}
	noDM          = lack{"dm", "j", false, "device memory is on a NIC's board, and this NIC is software. Leave it out; the peer may use it"}
	noNewSend     = lack{"new_send", "N", false, "it chooses between two ways to post in C's API, of which Go's has one. Leave it out; the packets are the same"}
	noMTU         = lack{"mtu", "m", true, "a datagram is one packet of -s octets, up to the MTU of the interface. Leave it out"}
	noTS          = lack{"ts", "t", false, "only rc prints intervals, as in the originals: rxe pingpong rc -t"}
)

// addLacks has the flags parsed, so that they can be told of.
func (p *pingpongProgram) addLacks(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, l := range p.lacks {
		if l.arg {
			f.StringP(l.name, l.letter, "", "")
		} else {
			f.BoolP(l.name, l.letter, false, "")
		}
		f.Lookup(l.name).Hidden = true
	}
}

func (p *pingpongProgram) checkLacks(cmd *cobra.Command) error {
	for _, l := range p.lacks {
		if cmd.Flags().Changed(l.name) {
			return fmt.Errorf("-%s, --%s is not supported here, because %s", l.letter, l.name, l.why)
		}
	}
	return nil
}

// onePeer checks the argument of pingpong; without one it is the server.
func onePeer(cmd *cobra.Command, args []string) error {
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
		return fmt.Errorf("PEER is a host without a port; -p gives the TCP port: rxe pingpong %s -p %s %s", cmd.Name(), port, host)
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

func (p *pingpongProgram) command() *cobra.Command {
	var dev deviceFlags
	cfg := pingpong.Default(p.service)
	cmd := &cobra.Command{
		Use:   string(p.service) + " [PEER]",
		Short: p.short,
		Long: fmt.Sprintf(`%s
Without PEER this is the server, with PEER its client. The far end is
ibv_%s_pingpong of rdma-core, on any machine with any RDMA NIC or Soft-RoCE, or
this program. Options have the meaning they have there; without -g the GID that
reaches the peer is chosen.

The far end of  rxe pingpong %[2]s -s 1000 HOST  is  ibv_%[2]s_pingpong -g N -s 1000
where N is the index of its GID, as show_gids lists them. Two on one machine take
an address each:  rxe pingpong %[2]s --addr 127.0.0.2  and  rxe pingpong %[2]s 127.0.0.2`, p.about, p.service),
		Args: onePeer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.checkLacks(cmd); err != nil {
				return err
			}
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
	p.addLacks(cmd)
	f := cmd.Flags()
	f.IntVarP(&cfg.Port, "port", "p", cfg.Port, "TCP port of the exchange")
	f.IntVarP(&cfg.IBPort, "ib-port", "i", cfg.IBPort, "port of the device: 1")
	f.VarP(octets{&cfg.Size}, "size", "s", "length of a message; k and m stand for 1024 and 1048576")
	f.IntVarP(&cfg.RxDepth, "rx-depth", "r", cfg.RxDepth, "receive requests posted at a time")
	f.IntVarP(&cfg.Iters, "iters", "n", cfg.Iters, "number of exchanges")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "how long the peer may be silent")
	f.IntVarP(&cfg.SL, "sl", "l", cfg.SL, "service level, 0 to 7 (on a VLAN interface its priority)")
	f.BoolVarP(&cfg.Events, "events", "e", false, "sleep for completions instead of polling")
	f.IntVarP(&cfg.GIDIndex, "gid-idx", "g", cfg.GIDIndex, "index of the local GID (-1: chosen for the peer)")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "print the device's counters at the end, those that are not 0")
	f.BoolVarP(&cfg.Check, "chk", "c", false, "check the data of each message; the client has to be started with it too")
	if p.service != pingpong.UD {
		f.IntVarP(&cfg.MTU, "mtu", "m", cfg.MTU, "path MTU: 256, 512, 1024, 2048 or 4096; the same on both sides")
	}
	if p.service == pingpong.SRQ {
		f.IntVarP(&cfg.NumQP, "num-qp", "q", cfg.NumQP, "number of queue pairs, 1 to 256; the same on both sides")
	}
	if p.service == pingpong.RC {
		f.BoolVarP(&cfg.Stamps, "ts", "t", false, "print the intervals between receive completions, by a clock of 1 GHz")
	}
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
	return interrupted(pingpong.Run(ctx, cfg))
}
