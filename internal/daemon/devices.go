package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// device is one that is open.
type device struct {
	*nic.NIC
	cfg    Device
	log    *slog.Logger
	netns  uint64 // cookie of its network namespace
	server *server.Server
}

// openDevices opens all that are configured. Those that are not required may fail,
// which is logged; of the others all errors are returned.
func openDevices(cfgs []Device, log *slog.Logger) (devs []*device, err error) {
	var errs []error
	for _, c := range cfgs {
		d, err := openDevice(c, devs, log)
		switch {
		case err == nil:
			devs = append(devs, d)
		case c.Required:
			errs = append(errs, err)
		default:
			log.Warn("a device is not there; rxed goes on without it, since it is not required", "device", c.Name, "err", err)
		}
	}
	if len(devs) == 0 && errs == nil {
		errs = append(errs, errors.New("no device is there to serve"))
	}
	if errs != nil {
		closeDevices(devs)
		return nil, errors.Join(errs...)
	}
	return devs, nil
}

func openDevice(c Device, open []*device, log *slog.Logger) (*device, error) {
	n, err := gorxe.OpenNIC(gorxe.Config{
		Name: c.Name, Interface: c.Interface, Addr: c.Addr, Namespace: c.Namespace,
		Link: c.Link, Shards: c.Shards, Faults: c.Faults, Seed: c.Seed,
		Serve: true, MaxSL: maxSL, Logger: log,
	})
	if err != nil {
		err = fmt.Errorf("device %s (%s): %w", c.Name, c.place(), err)
		if owner := sharer(&c, open); owner != "" && errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("device %s (%s): device %s of this configuration has the same address; one of them has to go", c.Name, c.place(), owner)
		}
		return nil, err
	}
	log = log.With("device", c.Name) // the device says that by itself
	d := &device{NIC: n, cfg: c, log: log}
	err = n.SetCC(c.CC.Config)
	var a verbs.DeviceAttr
	if err == nil {
		a, err = n.QueryDevice()
	}
	if err == nil {
		d.netns, err = cookie(c.Namespace)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	log.Info("device open", "place", c.place(), "link", a.Link, "shards", a.Shards, "icrc", a.ICRC, "cc", c.CC.Algorithm, "gids", gids(n))
	for _, m := range a.Missing {
		log.Info("device does without", "what", m)
	}
	return d, nil
}

// maxSL is the highest service level of devices whose process gives up what more
// takes. socket(7), SO_PRIORITY.
const maxSL = 6

// cookie is what tells a network namespace from others, in what clients' sockets
// say of theirs.
func cookie(namespace string) (c uint64, err error) {
	if namespace == "" {
		return sys.NetnsCookieHere(), nil
	}
	ns, err := hostnet.OpenNamespace(namespace)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		c = sys.NetnsCookieHere()
		return nil
	})
	return c, err
}

// sharer names the open device that has an address of c.
func sharer(c *Device, open []*device) string {
	var want []netip.Addr
	if a, err := netip.ParseAddr(c.Addr); err == nil {
		want = append(want, a.Unmap())
	}
	if c.Namespace == "" && c.Interface != "" {
		if ifc, err := hostnet.Interface(c.Interface); err == nil {
			for _, a := range ifc.Addrs {
				want = append(want, a.Addr())
			}
		}
	}
	for _, d := range open {
		if d.cfg.Namespace != c.Namespace {
			continue
		}
		all, _ := d.GIDs()
		for _, g := range all {
			for _, a := range want {
				if g.GID.Addr() == a.WithZone("") {
					return d.cfg.Name
				}
			}
		}
	}
	return ""
}

func gids(n *nic.NIC) string {
	all, _ := n.GIDs()
	var out []string
	for _, g := range all {
		if g.GID != (verbs.GID{}) {
			out = append(out, g.GID.Addr().String())
		}
	}
	return strings.Join(out, " ")
}

func closeDevices(devs []*device) {
	for _, d := range devs {
		if err := d.Close(); err != nil {
			d.log.Warn("device closed", "err", err)
		}
	}
}

// moves returns nil when every shard of every device makes a step within the time.
func moves(ctx context.Context, devs []*device, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		still error
	)
	for _, d := range devs {
		for s := range d.Shards() {
			wg.Go(func() {
				if err := d.Pulse(ctx, s); err != nil {
					mu.Lock()
					still = errors.Join(still, err)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return still
}
