package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/show"
)

// statCmd is rxe stat and its flags.
type statCmd struct {
	adminFlags
	watch        time.Duration
	count        int
	json         bool
	all, explain bool
	qpn          string
}

func newStatCmd() *cobra.Command {
	var s statCmd
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Show the counters of a running rxed's devices and queue pairs",
		Long: `Show the counters of a running rxed's devices, by the names of sysfs, mlx5 and rxe,
and the traffic of each queue pair. Counters that are 0 are left out, but those of
the port. docs/counters.md says what compares with what.

port_xmit_data and port_rcv_data are in words of 4 octets, as in sysfs; what ends
in _wait is in nanoseconds.`,
		Args: cobra.NoArgs,
	}
	s.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&s.watch, "watch", 0, "show them again and again, with rates, at this interval")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.IntVarP(&s.count, "count", "c", 0, "end after this many times (with --watch; 0: never)")
	f.BoolVar(&s.json, "json", false, "one JSON object a line, for each device")
	f.BoolVarP(&s.all, "all", "a", false, "counters that are 0, and all queue pairs, too")
	f.BoolVarP(&s.explain, "explain", "e", false, "say what each counts")
	f.StringVar(&s.qpn, "qp", "", "all counters of this queue pair instead")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd)
		defer stop()
		c := s.client()
		defer c.Close()
		if s.watch < 0 || cmd.Flags().Changed("watch") && s.watch < 10*time.Millisecond {
			return fmt.Errorf("--watch=%v: it takes an interval of 10ms or more", s.watch)
		}
		before := map[string]*admin.Counters{}
		for n := 1; ; n++ {
			if err := s.once(ctx, c, cmd, before); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the user has seen enough
				}
				return err
			}
			if s.watch == 0 || n == s.count {
				return nil
			}
			select {
			case <-time.After(s.watch):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return cmd
}

// once shows the counters; before are those of the last time, by device.
func (s *statCmd) once(ctx context.Context, c *admin.Client, cmd *cobra.Command, before map[string]*admin.Counters) error {
	w := cmd.OutOrStdout()
	if s.qpn != "" {
		devs, err := s.alive(ctx, c, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return s.queuePair(ctx, c, w, devs)
	}
	devs, err := s.devices(ctx, c)
	if err != nil {
		return err
	}
	for i := range devs {
		d := &devs[i]
		st := show.Stat{Info: *d, Before: before[d.Name], All: s.all, Explain: s.explain}
		if d.Error == "" {
			if st.Counters, err = c.Counters(ctx, d.Name, !s.json || s.explain); err != nil {
				return err
			}
			if st.QPs, err = c.QPs(ctx, d.Name); err != nil {
				return err
			}
			before[d.Name] = &st.Counters
		}
		if s.json {
			err = writeJSON(w, struct {
				admin.Counters
				QPs []admin.QP `json:"qps"`
			}{st.Counters, st.QPs})
		} else {
			err = st.WriteText(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *statCmd) queuePair(ctx context.Context, c *admin.Client, w io.Writer, devs []admin.DeviceInfo) error {
	d, q, err := findQP(ctx, c, devs, s.qpn)
	if err != nil {
		return err
	}
	if s.json {
		return writeJSON(w, q)
	}
	all, err := c.Counters(ctx, d, true)
	if err != nil {
		return err
	}
	return show.WriteQPCounters(w, d, &q, func(name string) admin.CounterInfo { return all.About[name] }, s.all, s.explain)
}

// findQP finds a queue pair by its number, which on several devices more than one
// may have.
func findQP(ctx context.Context, c *admin.Client, devs []admin.DeviceInfo, text string) (dev string, q admin.QPDetail, err error) {
	n, err := strconv.ParseUint(text, 0, 24)
	if err != nil {
		return "", q, fmt.Errorf("queue pair %s: it takes a number as rxe qp lists them, such as 0x01a2b3", text)
	}
	for i := range devs {
		x, xerr := c.QP(ctx, devs[i].Name, uint32(n))
		switch {
		case xerr != nil:
			err = xerr
		case dev != "":
			return "", q, fmt.Errorf("queue pair %#06x is on %s and on %s; choose with -d", n, dev, devs[i].Name)
		default:
			dev, q = devs[i].Name, x
		}
	}
	switch {
	case dev != "":
		return dev, q, nil
	case errors.Is(err, admin.ErrNotFound):
		var names []string
		for i := range devs {
			names = append(names, devs[i].Name)
		}
		err = fmt.Errorf("no queue pair has number %#06x on %s: it was destroyed, or never was; rxe qp lists those there are", n, strings.Join(names, ", "))
	}
	return "", q, err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func eachJSON[T any](w io.Writer, l []T) error {
	for i := range l {
		if err := writeJSON(w, l[i]); err != nil {
			return err
		}
	}
	return nil
}
