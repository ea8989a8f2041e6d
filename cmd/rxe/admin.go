package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/control/admin"
)

// adminFlags are the flags of every subcommand that looks into a running rxed.
type adminFlags struct{ socket, dev string }

func (a *adminFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&a.dev, "dev", "d", "", "device of the daemon, by its name or its interface's (default: all)")
	f.StringVar(&a.socket, "admin", "", "admin socket of the daemon (default: "+admin.EnvSocket+", or "+admin.DefaultSocket+")")
}

// client returns a client of the daemon.
func (a *adminFlags) client() *admin.Client { return admin.NewClient(a.socket) }

// devices describes the device that was asked for, or all.
func (a *adminFlags) devices(ctx context.Context, c *admin.Client) ([]admin.DeviceInfo, error) {
	all, err := c.Devices(ctx)
	if err != nil {
		return nil, err
	}
	if a.dev == "" {
		return all, nil
	}
	var names []string
	for _, d := range all {
		if d.Name == a.dev {
			return []admin.DeviceInfo{d}, nil
		}
		names = append(names, d.Name)
	}
	var found []admin.DeviceInfo
	for _, d := range all {
		if d.NetDev == a.dev {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("-d %s: the daemon at %s has no such device; it has %s", a.dev, admin.Socket(a.socket), strings.Join(names, ", "))
	}
	return found, nil
}

// alive describes the devices that were asked for and work. It says which do not,
// and fails when none does.
func (a *adminFlags) alive(ctx context.Context, c *admin.Client, errs io.Writer) ([]admin.DeviceInfo, error) {
	all, err := a.devices(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []admin.DeviceInfo
	for _, d := range all {
		switch {
		case d.Error == "":
			out = append(out, d)
		case len(all) == 1:
			return nil, fmt.Errorf("%s is no more: %s", d.Name, d.Error)
		default:
			fmt.Fprintf(errs, "rxe: %s is no more: %s\n", d.Name, d.Error)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no device works; the daemon's log says why")
	}
	return out, nil
}

// device describes the one device that was asked for, or that there is.
func (a *adminFlags) device(ctx context.Context, c *admin.Client) (admin.DeviceInfo, error) {
	all, err := a.devices(ctx, c)
	if err != nil {
		return admin.DeviceInfo{}, err
	}
	if len(all) != 1 {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		return admin.DeviceInfo{}, fmt.Errorf("which device? choose one with -d: %s", strings.Join(names, ", "))
	}
	return all[0], nil
}

// interruptible returns a context that the user ends with ^C, or the system.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}
