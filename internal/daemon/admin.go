package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/inspect"
)

// source is the daemon as control/admin and internal/metrics see it.
type source struct {
	d    *Daemon
	devs []admin.Device
}

func newSource(d *Daemon) *source {
	s := &source{d: d}
	for _, dev := range d.devices {
		s.devs = append(s.devs, inspect.New(inspect.Config{
			Name: dev.cfg.Name, NIC: dev.NIC, Clients: dev.clients, Limits: dev.limits,
			SetLimits: func(l admin.Limits) error { return d.setLimits(dev, l) },
			SetCC:     func(change map[string]string) error { return d.setCC(dev, change) },
		}))
	}
	return s
}

func (s *source) Daemon() admin.Daemon {
	return admin.Daemon{Program: "rxed", Version: s.d.opts.Version, PID: os.Getpid(), Since: s.d.started}
}

func (s *source) Devices() []admin.Device { return s.devs }

func (s *source) Reload(context.Context) (admin.ReloadResult, error) {
	r, err := s.d.Reload()
	if err != nil {
		err = fmt.Errorf("%w: nothing was changed: %w", admin.ErrInvalid, err)
	}
	return admin.ReloadResult{Changed: append([]string{}, r.Changed...), Restart: append([]string{}, r.Restart...)}, err
}

// clients are the processes that use the device.
func (d *device) clients() (out []admin.ClientInfo) {
	for _, c := range d.server.Clients() {
		i := admin.ClientInfo{
			ID: c.ID, PID: int(c.PID), UID: int(c.UID), GID: -1, Command: c.Command, Device: d.cfg.Name, Since: c.Since,
			Objects: map[string]int{}, Bytes: c.Held["bytes"],
		}
		for kind, limit := range map[string]string{"pd": "pds", "mr": "mrs", "mw": "mws", "cq": "cqs", "qp": "qps", "srq": "srqs", "ah": "ahs"} {
			i.Objects[kind] = int(c.Held[limit])
		}
		out = append(out, i)
	}
	return out
}

func (d *device) limits() admin.Limits {
	client, total := d.server.Limits()
	return admin.Limits{PerClient: limitSet(client), Device: limitSet(total)}
}

func limitSet(l server.Limits) admin.LimitSet {
	return admin.LimitSet{
		QPs: l.QPs, CQs: l.CQs, MRs: l.MRs, MWs: l.MWs, PDs: l.PDs, SRQs: l.SRQs, AHs: l.AHs, CQEs: l.CQEs,
		Groups: l.Groups, Clients: l.Clients, Bytes: l.Bytes,
	}
}

// setLimits changes the limits of a running device, until a reload finds others in
// the file or the daemon ends.
func (d *Daemon) setLimits(dev *device, l admin.Limits) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.PerClient.Clients != 0 {
		return fmt.Errorf("%w: limit clients of one client: it is the device's alone", admin.ErrInvalid)
	}
	client, err := fromLimitSet(l.PerClient)
	if err != nil {
		return err
	}
	total, err := fromLimitSet(l.Device)
	if err != nil {
		return err
	}
	// What is in force stays as the configuration has it: 0 for a default.
	nowClient, nowTotal := dev.server.Limits()
	was := find(d.cfg.Devices, dev.cfg.Name)
	client, total = client.Keep(nowClient, was.PerClient), total.Keep(nowTotal, was.Total)
	if err := d.back.SetLimits(dev.cfg.Name, client, total); err != nil {
		return err
	}
	d.log.Info("limits changed", "device", dev.cfg.Name, "per_client", fmt.Sprintf("%+v", client), "total", fmt.Sprintf("%+v", total))
	next := *d.cfg
	next.Devices = append([]Device(nil), d.cfg.Devices...)
	c := find(next.Devices, dev.cfg.Name)
	c.PerClient, c.Total = client, total
	d.cfg = &next
	return nil
}

// setCC changes the congestion control of a running device, until a reload finds
// another in the file or the daemon ends.
func (d *Daemon) setCC(dev *device, change map[string]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := dev.CC()
	if err := inspect.ApplyCC(&c, change); err != nil {
		return err
	}
	if err := dev.SetCC(c); err != nil {
		return err
	}
	d.log.Info("congestion control changed", "device", dev.cfg.Name, "change", change)
	next := *d.cfg
	next.Devices = append([]Device(nil), d.cfg.Devices...)
	to := &find(next.Devices, dev.cfg.Name).CC
	to.Config = c
	if p, ok := change["profile"]; ok {
		to.Profile = p
	}
	d.cfg = &next
	return nil
}

// fromLimitSet checks limits.
func fromLimitSet(s admin.LimitSet) (Limits, error) {
	l := Limits{
		QPs: s.QPs, CQs: s.CQs, MRs: s.MRs, MWs: s.MWs, PDs: s.PDs, SRQs: s.SRQs, AHs: s.AHs, CQEs: s.CQEs,
		Groups: s.Groups, Clients: s.Clients, Bytes: s.Bytes,
	}
	for _, c := range []struct {
		name     string
		v, limit int64
	}{
		{"qps", int64(l.QPs), int64(maxima.QPs)},
		{"cqs", int64(l.CQs), int64(maxima.CQs)},
		{"mrs", int64(l.MRs), int64(maxima.MRs)},
		{"mws", int64(l.MWs), int64(maxima.MWs)},
		{"pds", int64(l.PDs), int64(maxima.PDs)},
		{"srqs", int64(l.SRQs), int64(maxima.SRQs)},
		{"ahs", int64(l.AHs), int64(maxima.AHs)},
		{"cqes", int64(l.CQEs), int64(maxima.CQEs)},
		{"groups", int64(l.Groups), int64(maxima.Groups)},
		{"clients", int64(l.Clients), int64(maxima.Clients)},
		{"bytes", l.Bytes, maxima.Bytes},
	} {
		if c.v < 0 || c.v > c.limit {
			return l, fmt.Errorf("%w: limit %s of %d: it takes a number from 0, the default, to %d", admin.ErrInvalid, c.name, c.v, c.limit)
		}
	}
	return l, nil
}

// adminServer answers on the admin socket.
type adminServer struct{ *http.Server }

func newAdminServer(src admin.Source) *adminServer { return &adminServer{admin.NewServer(src)} }

func (s *adminServer) serve(l net.Listener) error {
	if err := s.Serve(l); err != nil && err != http.ErrServerClosed {
		return err
	}
	return nil
}
