package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// live are the keys that a reload changes while clients are attached. All others
// take effect at the next start.
var live = map[string]bool{
	"control.mode": true, "control.group": true, "control.allow_uids": true, "control.allow_groups": true,
	"admin.mode": true, "admin.group": true,
	"metrics.listen": true, "metrics.allow_remote": true,
	"log.level": true, "log.format": true,
	"device.required": true,
}

func isLive(key string) bool {
	return live[key] || strings.HasPrefix(key, "device.cc.") || strings.HasPrefix(key, "device.per_client.") || strings.HasPrefix(key, "device.total.")
}

// Reloaded says what became of a configuration that was read again.
type Reloaded struct {
	Changed []string // took effect: key, old and new value
	Restart []string // differs, and needs a restart
}

// Reload reads the configuration again and changes what can be changed. When the
// file is bad, or a change fails, all is as it was before.
func (d *Daemon) Reload() (Reloaded, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify.reloading()
	r, err := d.reload()
	status := d.status()
	if err != nil {
		d.log.Error("reload failed, nothing was changed", "err", err)
		status += "; the last reload failed: " + err.Error()
	} else {
		d.log.Info("reloaded", "changed", r.Changed, "restart_needed", r.Restart)
		if len(r.Restart) > 0 {
			status += "; restart needed for " + strings.Join(r.Restart, ", ")
		}
	}
	d.notify.ready(status)
	return r, err
}

func (d *Daemon) reload() (Reloaded, error) {
	next, err := d.opts.Load()
	if err != nil {
		return Reloaded{}, err
	}
	r := diff(d.cfg, next)
	merged := merge(d.cfg, next)
	if len(r.Changed) == 0 {
		d.cfg = merged
		return r, nil
	}
	if err := d.change(merged); err != nil {
		return Reloaded{}, err
	}
	return r, nil
}

// change makes merged the configuration, or returns an error and has undone what it
// did.
func (d *Daemon) change(merged *Config) (err error) {
	old := d.cfg
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
	}()
	users, groups, err := merged.Control.allowed()
	if err != nil {
		return err
	}
	if merged.Metrics.Listen != old.Metrics.Listen {
		back, err := d.metrics.move(merged.Metrics, d)
		if err != nil {
			return err
		}
		undo = append(undo, back)
	}
	for _, s := range []struct {
		sock     *socket
		from, to fileRights
	}{
		{d.control, fileRights{old.Control.Mode, old.Control.Group}, fileRights{merged.Control.Mode, merged.Control.Group}},
		{d.admin, fileRights{old.Admin.Mode, old.Admin.Group}, fileRights{merged.Admin.Mode, merged.Admin.Group}},
	} {
		if s.from == s.to {
			continue
		}
		undo = append(undo, func() { _ = s.from.give(s.sock) })
		if err := s.to.give(s.sock); err != nil {
			return err
		}
	}
	for i, dev := range merged.Devices {
		x := d.served(dev.Name)
		if x == nil || x.Err() != nil || dev.CC == old.Devices[i].CC {
			continue
		}
		was := x.CC()
		undo = append(undo, func() { _ = x.SetCC(was) })
		if err := x.SetCC(dev.CC.Config); err != nil {
			return err
		}
	}
	for i, dev := range merged.Devices {
		was := old.Devices[i]
		if dev.PerClient == was.PerClient && dev.Total == was.Total || !d.serves(dev.Name) {
			continue
		}
		undo = append(undo, func() { _ = d.back.SetLimits(was.Name, was.PerClient, was.Total) })
		if err := d.back.SetLimits(dev.Name, dev.PerClient, dev.Total); err != nil {
			return err
		}
	}
	d.metrics.settle() // from here on nothing fails
	d.back.Allow(users, groups)
	d.logs.configure(merged.Log)
	d.cfg = merged
	return nil
}

func (d *Daemon) serves(name string) bool { return d.served(name) != nil }

func (d *Daemon) served(name string) *device {
	for _, x := range d.devices {
		if x.cfg.Name == name {
			return x
		}
	}
	return nil
}

// fileRights are those of a socket's file.
type fileRights struct {
	mode  fs.FileMode
	group string
}

func (r fileRights) give(s *socket) error {
	gid, err := fileGroup(r.group)
	if err != nil {
		return err
	}
	return s.admit(r.mode, gid)
}

// allowed are the users and groups that may attach; nil for both is everybody.
func (c *Control) allowed() (users, groups []uint32, err error) {
	users, err = userIDs(c.AllowUsers)
	groups, gerr := groupIDs(c.AllowGroups)
	return users, groups, errors.Join(err, gerr)
}

// diff compares what runs with what is wanted, key by key. Devices are known by
// their names.
func diff(old, next *Config) (r Reloaded) {
	compare := func(section, name string, a, b table) {
		values := map[string]string{}
		a.each(func(key, value, _ string) { values[key] = value })
		b.each(func(key, value, _ string) {
			if values[key] == value {
				return
			}
			text := fmt.Sprintf("%s.%s: %s -> %s", name, key, values[key], value)
			if isLive(section + "." + key) {
				r.Changed = append(r.Changed, text)
			} else {
				r.Restart = append(r.Restart, text)
			}
		})
	}
	for _, s := range []string{"control", "admin", "metrics", "log", "process"} {
		compare(s, s, tables[s](old), tables[s](next))
	}
	for i := range old.Devices {
		a := &old.Devices[i]
		b := find(next.Devices, a.Name)
		if b == nil {
			r.Restart = append(r.Restart, fmt.Sprintf("device %s: it is served, and no longer configured", a.Name))
			continue
		}
		name := "device " + a.Name
		compare("device", name, bound[Device]{deviceKeys, a}, bound[Device]{deviceKeys, b})
		for _, t := range []string{"cc", "per_client", "total"} {
			compare("device."+t, name+" "+t, deviceTables[t](a), deviceTables[t](b))
		}
	}
	for _, b := range next.Devices {
		if find(old.Devices, b.Name) == nil {
			r.Restart = append(r.Restart, fmt.Sprintf("device %s: it is new", b.Name))
		}
	}
	return r
}

// merge is old with what is live of next.
func merge(old, next *Config) *Config {
	m := *old
	m.Control.Mode, m.Control.Group = next.Control.Mode, next.Control.Group
	m.Control.AllowUsers, m.Control.AllowGroups = next.Control.AllowUsers, next.Control.AllowGroups
	m.Admin.Mode, m.Admin.Group = next.Admin.Mode, next.Admin.Group
	m.Metrics, m.Log = next.Metrics, next.Log
	m.Devices = slices.Clone(old.Devices)
	for i := range m.Devices {
		if b := find(next.Devices, m.Devices[i].Name); b != nil {
			m.Devices[i].Required, m.Devices[i].CC, m.Devices[i].PerClient, m.Devices[i].Total = b.Required, b.CC, b.PerClient, b.Total
		}
	}
	return &m
}

func find(all []Device, name string) *Device {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}
