package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/script"
	"github.com/gorxe/gorxe/script/device"
)

func newScriptCmd() *cobra.Command {
	var (
		opts    script.Options
		packets bool
		nic     bool
	)
	cmd := &cobra.Command{
		Use:   "script FILE...",
		Short: "Run packet scripts against this module's queue pairs",
		Long: `Run packet scripts: rules of the protocol as texts that say which packets one
queue pair receives and which it must send, and when. A FILE that is a directory
stands for all *.pkt in it. Scripts run on an engine alone, or with --nic on a
whole device: a few are about one of the two and run on that. The documentation
of package script describes the language; docs/rules.md lists the scripts that
come with gorxe.

Each file gives a line: ok, or FAIL with the step that went wrong, what came
instead, and the last packets. The exit status is 1 if any failed.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("script needs a FILE: a packet script (*.pkt), or a directory of them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := scriptFiles(args)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			if packets {
				opts.Log = func(line string) { fmt.Fprintf(out, "\t%s\n", line) }
			}
			failed := 0
			for _, f := range files {
				if err := runScript(f, opts, nic); err != nil {
					failed++
					fmt.Fprintf(out, "FAIL %v\n", err) // which names the file
				} else {
					fmt.Fprintf(out, "ok   %s\n", f)
				}
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d scripts failed", failed, len(files))
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&packets, "packets", "p", false, "print every packet, as a script would have it")
	cmd.Flags().BoolVar(&nic, "nic", false, "run on a whole device: rings, keys, ICRC, timers and all")
	cmd.Flags().Uint32Var(&opts.Shift, "shift", 0, "add this to every PSN, so that it wraps elsewhere")
	return cmd
}

// scriptFiles puts the scripts of a directory in its place.
func scriptFiles(args []string) (files []string, err error) {
	for _, a := range args {
		info, err := os.Stat(a)
		switch {
		case err != nil:
			return nil, err
		case !info.IsDir():
			files = append(files, a)
			continue
		}
		in, err := filepath.Glob(filepath.Join(a, "*.pkt"))
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("%s: no *.pkt in this directory", a)
		}
		files = append(files, in...)
	}
	return files, nil
}

// runScript runs a script on an engine or on a device, and on the other if it is
// about that alone.
func runScript(file string, o script.Options, nic bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s, err := script.Parse(file, string(text))
	if err != nil {
		return err
	}
	on := []func(*script.Script, script.Options) error{(*script.Script).Run, device.Run}
	if nic {
		slices.Reverse(on)
	}
	if err = on[0](s, o); errors.Is(err, script.ErrOther) {
		err = on[1](s, o)
	}
	return err
}
