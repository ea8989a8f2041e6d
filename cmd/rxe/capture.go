package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/control/admin"
)

func newCaptureCmd() *cobra.Command {
	var a adminFlags
	var o admin.CaptureOptions
	var file string
	cmd := &cobra.Command{
		Use:   "capture -w FILE",
		Short: "Capture what passes a running rxed's device, as pcapng",
		Long: `Capture every packet that passes a device of a running rxed to a pcapng file, which
Wireshark opens decoded, until ^C. Packets are single also where they travelled
merged, with their direction, what the device made of them, and why.

A device that nobody captures from pays nothing for it, and one that somebody does
never waits for the reader: what that is too slow for is left out, counted, and
told at the end.

	rxe capture -w - | tshark -r -`,
		Args: cobra.NoArgs,
	}
	a.add(cmd)
	f := cmd.Flags()
	f.Lookup("dev").Usage = "device of the daemon, by its name or its interface's; needed where it has several"
	f.StringVarP(&file, "write", "w", "", "file to write; - is standard output")
	f.Uint64VarP(&o.Count, "count", "c", 0, "end after this many packets (0: never)")
	f.IntVarP(&o.SnapLen, "snap", "s", 0, "octets to keep of each packet (0: all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if file == "" {
			return errors.New("-w is missing: it takes a file to write, or - for standard output")
		}
		if o.SnapLen < 0 {
			return fmt.Errorf("-s, --snap %d: it takes a number of octets", o.SnapLen)
		}
		ctx, stop := interruptible(cmd)
		defer stop()
		c := a.client()
		defer c.Close()
		d, err := a.device(ctx, c)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if file != "-" {
			f, err := os.Create(file)
			if err != nil {
				return fmt.Errorf("cannot write the capture: %w; choose a file elsewhere", err)
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		} else if isTerminal(out) {
			return errors.New("-w -: a capture is not for a terminal; pipe it: rxe capture -w - | tshark -r -")
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "rxe: capturing from %s (%s)\n", d.Name, d.NetDev)
		sum, err := c.Capture(ctx, d.Name, out, o)
		fmt.Fprintf(cmd.ErrOrStderr(), "rxe: %d packets captured, %d dropped because they came faster than they were read\n", sum.Captured, sum.Dropped)
		return interrupted(err)
	}
	return cmd
}

// isTerminal reports whether what is written is for a person to read.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	i, err := f.Stat()
	if err != nil || i.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(i, null)
}
