package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/devinfo"
)

// describe adds the flags that choose devices, and returns what describes
// them.
func describe(cmd *cobra.Command) func() ([]devinfo.Info, error) {
	var cfg gorxe.Config
	f := cmd.Flags()
	f.StringVarP(&cfg.Interface, "dev", "d", "", "network interface, or a device by its name here (default: all that could carry a device)")
	f.StringVar(&cfg.Addr, "addr", "", "local address, instead of an interface")
	f.StringVar(&cfg.Link, "link", gorxe.LinkAuto, linkHelp)
	return func() ([]devinfo.Info, error) {
		if err := checkAddr("--addr", cfg.Addr); err != nil {
			return nil, err
		}
		host, err := devinfo.ThisHost()
		if err != nil {
			return nil, err
		}
		return host.Describe(cfg)
	}
}

// byFlag tells who gives an interface as an argument how to.
func byFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	flag := "-d"
	if _, err := netip.ParseAddr(args[0]); err == nil {
		flag = "--addr"
	}
	return fmt.Errorf("%s takes no argument; a flag says which device: rxe %[1]s %s %s", cmd.Name(), flag, args[0])
}

func newDevinfoCmd() *cobra.Command {
	var verbose, asJSON bool
	cmd := &cobra.Command{
		Use:   "devinfo",
		Short: "Describe the devices that this host's interfaces carry, as ibv_devinfo does",
		Long: `Describe the device that an interface or an address carries; without --dev and
--addr one for each interface that could carry one. The layout is that of
ibv_devinfo. After it come the link, the strength of its ICRC check, who has UDP
port 4791, and what the device does without: why, what follows, what helps.

Nothing is opened: it works for any user, and while another program has the
port.`,
		Args: byFlag,
	}
	devices := describe(cmd)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "all attributes and GIDs")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, with all attributes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := devices()
		for i := range all {
			var werr error
			if asJSON {
				werr = all[i].WriteJSON(cmd.OutOrStdout())
			} else {
				werr = all[i].WriteText(cmd.OutOrStdout(), verbose)
			}
			if werr != nil {
				return werr
			}
		}
		return err
	}
	return cmd
}
