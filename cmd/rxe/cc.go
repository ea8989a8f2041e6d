package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/internal/show"
)

func newCCCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cc",
		Short: "Show and change the congestion control of a running rxed's devices",
		Long: `Show and change the congestion control of a running rxed's devices: DCQCN with mlx5's
parameters, or another algorithm, while queue pairs are at work. docs/dcqcn.md tells
what the parameters do, docs/rxed.md how to have them at the next start.

A NIC that a command embeds has none that could be changed while it runs: choose
with --cc of that command, such as rxe perf write_bw --cc none.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("what shall be done? rxe cc show, rxe cc set NAME=VALUE, or rxe cc profiles")
		},
	}
	cmd.AddCommand(newCCShowCmd(), newCCSetCmd(), newCCProfilesCmd())
	return cmd
}

// ccHint goes with the error that no rxed is there.
func ccHint(err error) error {
	var none *admin.NoDaemonError
	if errors.As(err, &none) {
		return fmt.Errorf("%w; of a NIC that a command embeds, --cc of that command chooses the congestion control", err)
	}
	return err
}

func newCCShowCmd() *cobra.Command {
	var a adminFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the parameters, what each may be, and what came of them",
		Args:  cobra.NoArgs,
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, for each device")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd)
		defer stop()
		c := a.client()
		defer c.Close()
		devs, err := a.alive(ctx, c, cmd.ErrOrStderr())
		if err != nil {
			return ccHint(err)
		}
		for i := range devs {
			v, err := congestion(ctx, c, devs[i].Name)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), v)
			} else {
				err = v.WriteText(cmd.OutOrStdout())
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// congestion asks for what there is to show of a device.
func congestion(ctx context.Context, c *admin.Client, dev string) (*show.CC, error) {
	v, err := c.CC(ctx, dev)
	if err != nil {
		return nil, err
	}
	counters, err := c.Counters(ctx, dev, false)
	if err != nil {
		return nil, err
	}
	qps, err := c.QPs(ctx, dev)
	if err != nil {
		return nil, err
	}
	return show.NewCC(v, counters.Values, qps), nil
}

func newCCSetCmd() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:   "set [ALGORITHM] NAME=VALUE...",
		Short: "Change parameters, of all queue pairs and at once",
		Long: `Change parameters of congestion control, of all queue pairs of a device and at once:
all that are given, or none when one of them is wrong. profile=NAME sets all of
DCQCN's to a known set (rxe cc profiles), before the others. It holds until rxed
ends, or reads another configuration; [device.cc] of that is for what should stay.

	rxe cc set rp_ai_rate=10 rp_min_rate=5
	rxe cc set -d rxe0 profile=paper
	rxe cc set none`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("what shall be set? rxe cc set rp_ai_rate=10, or another that rxe cc show lists")
			}
			return nil
		},
	}
	a.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := admin.ParseCC(args)
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd)
		defer stop()
		c := a.client()
		defer c.Close()
		dev, err := a.device(ctx, c)
		if err != nil {
			return ccHint(err)
		}
		if dev.Error != "" {
			return fmt.Errorf("%s is no more: %s", dev.Name, dev.Error)
		}
		was, err := c.CC(ctx, dev.Name)
		if err != nil {
			return err
		}
		now, err := c.SetCC(ctx, dev.Name, change)
		if err != nil {
			return err
		}
		n := 0
		for _, p := range now.Parameters {
			if old := was.Get(p.Name); old != p.Value {
				n++
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(fmt.Sprintf("%s %s: %s -> %s %s", dev.Name, p.Name, old, p.Value, p.Unit)))
			}
		}
		if n == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing differs from what it was\n", dev.Name)
		}
		return nil
	}
	return cmd
}

func newCCProfilesCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Show the sets of DCQCN's parameters that are known by name",
		Long: `Show the sets of DCQCN's parameters that profile=NAME takes: mlx5, a ConnectX's
defaults and the default here; paper, those of the paper (SIGCOMM 2015); ns3, those
of the simulator of HPCC's authors; slow, for links of software, below some Gb/s.
Parameters that are the same in all are left out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var sets []admin.CC
			for _, name := range cc.Profiles {
				c := cc.Default()
				if err := c.SetProfile(name); err != nil {
					return err
				}
				sets = append(sets, inspect.DescribeCC(&c))
			}
			return show.WriteProfiles(cmd.OutOrStdout(), cc.Profiles, sets, all)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all parameters")
	return cmd
}
