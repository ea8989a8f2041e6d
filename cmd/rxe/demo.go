package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/demo"
)

func newDemoCmd() *cobra.Command {
	cfg := demo.Default()
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Two NICs in one process: every RC operation, then the same with packets dropped",
		Long: `Run two software NICs in one process, on 127.0.0.1 and 127.0.0.2, over ordinary
UDP sockets: no privilege, no interface and no kernel module are needed. Every
RC operation runs and its data are checked, then all of it again while packets
are dropped on purpose; the table shows rates (the median time and the worst for
one at a time) and what the recovery did. At the end a capture is written that
Wireshark opens decoded, with a comment at each packet that was dropped.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			if err := errors.Join(checkAddr("--addr-a", cfg.AddrA), checkAddr("--addr-b", cfg.AddrB)); err != nil {
				return err
			}
			if cfg.AddrA == cfg.AddrB {
				return fmt.Errorf("--addr-a and --addr-b are both %s: each NIC needs an address of its own, such as 127.0.0.1 and 127.0.0.2", cfg.AddrA)
			}
			if err := checkFaults(cfg.Faults); err != nil {
				return err
			}
			cfg.Out = cmd.OutOrStdout()
			return demo.Run(ctx, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.AddrA, "addr-a", cfg.AddrA, "address of the first NIC")
	f.StringVar(&cfg.AddrB, "addr-b", cfg.AddrB, "address of the second NIC")
	f.StringVar(&cfg.Link, "link", cfg.Link, "link of both")
	f.StringVar(&cfg.Faults, "faults", cfg.Faults, "fault rules of the second round, at the first NIC")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the fault rules")
	f.StringVar(&cfg.Tap, "tap", cfg.Tap, "pcapng file to write; empty for none")
	f.DurationVar(&cfg.Time, "time", cfg.Time, "time for each operation of a round")
	return cmd
}
