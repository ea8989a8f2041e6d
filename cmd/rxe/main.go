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
		newCaptureCmd(),
		newCCCmd(),
		newDecodeCmd(),
		newDemoCmd(),
		newDevinfoCmd(),
		newGIDsCmd(),
		newPerfCmd(),
		newPingpongCmd(),
		newQPCmd(),
		newRelayCmd(),
		newReplayCmd(),
		newScriptCmd(),
		newSimCmd(),
		newStatCmd(),
		newVersionCmd(),
	)
	return root
}

// flagError says in words what a flag's value should be.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w; %s --help lists the flags that there are", err, cmd.CommandPath())
	case errors.As(err, &bare):
		f := bare.GetFlag()
		return fmt.Errorf("%s needs a value: %s", flagName(f), f.Usage)
	case !errors.As(err, &bad):
		return err
	}
	f, name := bad.GetFlag(), flagName(bad.GetFlag())
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

func flagName(f *pflag.Flag) string {
	if f.Shorthand == "" {
		return "--" + f.Name
	}
	return "-" + f.Shorthand + ", --" + f.Name
}
