// Command rxe is the tool of gorxe: it decodes captures, and drives and
// inspects software RDMA NICs. Its subcommands parse flags and call packages;
// each is a constructor in a file of its own, added in newRootCmd.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
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
	}
	root.AddCommand(
		newDecodeCmd(),
		newDemoCmd(),
		newDevinfoCmd(),
		newGIDsCmd(),
		newPingpongCmd(),
	)
	return root
}
