// Command rxe is the tool of gorxe: it decodes captures, and drives and
// inspects software RDMA NICs. Its subcommands parse flags and call packages;
// each is a constructor in a file of its own, added in newRootCmd.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	if err := newRootCmd().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rxe:", err)
		os.Exit(1)
	}
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "rxe",
		Short:         "A software RDMA NIC for RoCEv2: tools",
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newDecodeCmd(),
		newDemoCmd(),
		newDevinfoCmd(),
		newGIDsCmd(),
		newPerfCmd(),
		newPingpongCmd(),
		newReplayCmd(),
		newScriptCmd(),
		newVersionCmd(),
	)
	return root
}

// flagError says in words what a flag's value should be.
func flagError(_ *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	want := ""
	switch f.Value.Type() {
	case "int", "uint32", "uint64":
		want = "a number"
	case "duration":
		want = "a time with its unit, such as 5s or 300ms"
		if _, err := strconv.ParseFloat(bad.GetValue(), 64); err == nil {
			want += fmt.Sprintf(": --%s %ss", f.Name, bad.GetValue())
		}
	case "bool":
		want = "no value, or true or false"
	default:
		return fmt.Errorf("%s %s: %w", name, bad.GetValue(), bad.Unwrap())
	}
	return fmt.Errorf("%s %s: it takes %s", name, bad.GetValue(), want)
}
