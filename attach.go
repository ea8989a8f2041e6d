package gorxe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/verbs"
)

// DaemonNever in Config.Daemon has Open embed a NIC whoever else serves one.
const DaemonNever = "never"

// attachWait is how long a daemon may take to answer.
const attachWait = 2 * time.Second

// attach attaches to the daemon that serves the wanted device. It returns nil and
// why not when there is none and a NIC may be embedded instead.
func attach(cfg *Config) (c *control.Client, why, err error) {
	only := cfg.Daemon != "" // a socket was named
	switch {
	case cfg.Daemon == DaemonNever || cfg.Serve:
		return nil, nil, nil
	case own(cfg) != "" && only:
		return nil, nil, fmt.Errorf("gorxe: %s is for a NIC of this program's own, not for one of the daemon at %s, which has its own configuration%s", own(cfg), cfg.Daemon, live(cfg))
	case own(cfg) != "":
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), attachWait)
	defer cancel()
	for _, w := range wanted(cfg, only || os.Getenv(control.SocketEnv) != "") {
		if c, why = control.Dial(ctx, control.Socket(cfg.Daemon), w); !errors.Is(why, control.ErrNoDevice) {
			break
		}
	}
	switch {
	case why == nil:
		return c, nil, nil
	case only:
		return nil, nil, fmt.Errorf("gorxe: %w", why)
	}
	return nil, why, nil
}

// own names what a configuration asks for that only an embedded NIC can do.
func own(cfg *Config) string {
	switch {
	case cfg.Faults != "":
		return "Config.Faults"
	case cfg.Tap != "":
		return "Config.Tap"
	case cfg.CC != "":
		return "Config.CC"
	case cfg.Link != "" && cfg.Link != LinkAuto:
		return "Config.Link"
	case cfg.Shards > 1:
		return "Config.Shards"
	case cfg.Namespace != "":
		return "Config.Namespace"
	case len(cfg.Addrs) > 0:
		return "Config.Addrs"
	}
	return ""
}

// live says how to change what a daemon's device has of its own, where that can be
// done while it is served.
func live(cfg *Config) string {
	if cfg.CC == "" {
		return ""
	}
	return "; rxe cc set changes the congestion control of its devices"
}

// wanted is how the device is asked for. The daemon of a socket that was named, by
// the caller or in the environment, may be in another network namespace, where the
// interfaces have other names; that of the usual one has what is here, or not what
// is meant.
func wanted(cfg *Config, named bool) (w []control.Want) {
	if named && cfg.Name != "" {
		w = append(w, control.Want{Name: cfg.Name})
	}
	switch {
	case cfg.Interface != "":
		w = append(w, control.Want{Interface: cfg.Interface, SameNetns: !named})
		if named {
			w = append(w, control.Want{Name: cfg.Interface})
		}
	case cfg.Addr != "":
		if a, err := netip.ParseAddr(cfg.Addr); err == nil {
			w = append(w, control.Want{Addr: a, SameNetns: !named})
		}
	case named && w == nil:
		w = append(w, control.Want{})
	}
	return w
}

// opened is what Open and Probe have in common: the daemon's device, or what embed
// makes.
func opened(cfg *Config, embed func() (*verbs.Context, error)) (*verbs.Context, error) {
	if _, err := cfg.control(); err != nil {
		return nil, err
	}
	c, why, err := attach(cfg)
	switch {
	case err != nil:
		return nil, err
	case c != nil:
		return verbs.NewContext(c), nil
	}
	ctx, err := embed()
	if err != nil && why != nil && !errors.Is(why, control.ErrNoDaemon) {
		err = fmt.Errorf("%w; and attaching to a daemon's: %w", err, why)
	}
	if cfg.CC != "" && errors.Is(err, syscall.EADDRINUSE) { // without it that might have been attached to
		err = fmt.Errorf("%w; if that is rxed, leave Config.CC away to use its device%s", err, live(cfg))
	}
	return ctx, err
}
