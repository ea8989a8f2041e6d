package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/show"
)

func newQPCmd() *cobra.Command {
	var a adminFlags
	var asJSON, trace bool
	var last int
	cmd := &cobra.Command{
		Use:   "qp [QPN]",
		Short: "List the queue pairs of a running rxed, or describe one",
		Long: `List the queue pairs of a running rxed's devices: their state, their peer, whose
they are, and what is under way. With a number, which may be decimal or 0x...,
describe that one: its PSNs, window, credits, retries and timers, and what went
wrong last, in words.

--trace shows what the device's recorder holds of it: losses, retransmissions,
errors and changes of state, the last few thousand of the device. Without a number
it shows those of all.`,
		Args: cobra.MaximumNArgs(1),
	}
	a.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "JSON, one queue pair or event a line")
	f.BoolVar(&trace, "trace", false, "the last events")
	f.IntVarP(&last, "lines", "n", 20, "how many events at most (0: all)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd)
		defer stop()
		c := a.client()
		defer c.Close()
		devs, err := a.alive(ctx, c, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		events := func(dev string, qpn uint32) error {
			list, err := c.Trace(ctx, dev, qpn, max(0, last))
			if err != nil {
				return err
			}
			if asJSON {
				return eachJSON(w, list)
			}
			return show.WriteTrace(w, list, time.Now())
		}
		if len(args) == 1 {
			dev, q, err := findQP(ctx, c, devs, args[0])
			switch {
			case err != nil:
				return err
			case asJSON && !trace:
				return writeJSON(w, q)
			case !asJSON:
				if err := show.WriteQP(w, dev, &q, time.Now()); err != nil {
					return err
				}
			}
			if trace {
				return events(dev, q.QPN)
			}
			return nil
		}
		if trace {
			for i := range devs {
				if err := events(devs[i].Name, 0); err != nil {
					return err
				}
			}
			return nil
		}
		var names []string
		var lists [][]admin.QP
		for i := range devs {
			l, err := c.QPs(ctx, devs[i].Name)
			if err != nil {
				return err
			}
			names, lists = append(names, devs[i].Name), append(lists, l)
			if asJSON {
				if err := eachJSON(w, l); err != nil {
					return err
				}
			}
		}
		if asJSON {
			return nil
		}
		return show.WriteQPs(w, names, lists)
	}
	return cmd
}
