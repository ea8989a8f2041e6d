package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"strconv"

	"github.com/gorxe/gorxe/cc"
)

// check finds what no key tells by itself.
func (c *Config) check(d *document) {
	if c.Control.Socket == c.Admin.Socket {
		d.add(c.at("admin.socket", "control.socket"), "control and admin cannot share the socket %s", c.Admin.Socket)
	}
	if c.Metrics.Listen != "" && !c.Metrics.AllowRemote {
		if host, _, err := net.SplitHostPort(c.Metrics.Listen); err == nil && !isLoopback(host) {
			d.add(c.at("metrics.listen"), "listen = %q: others can reach that address; take a loopback one, such as 127.0.0.1, or say allow_remote = true", c.Metrics.Listen)
		}
	}
	for key, name := range map[string]string{"control.group": c.Control.Group, "admin.group": c.Admin.Group, "process.group": c.Process.Group} {
		if _, err := groupID(name); name != "" && err != nil {
			d.add(c.at(key), "%v", err)
		}
	}
	if _, err := userIDs(c.Control.AllowUsers); err != nil {
		d.add(c.at("control.allow_uids"), "%v", err)
	}
	if _, err := groupIDs(c.Control.AllowGroups); err != nil {
		d.add(c.at("control.allow_groups"), "%v", err)
	}
	if _, err := userID(c.Process.User); c.Process.User != "" && err != nil {
		d.add(c.at("process.user"), "%v", err)
	}
	if _, tried := c.where["device"]; len(c.Devices) == 0 && !tried {
		d.add(whole, `no device is configured: add a [[device]] with interface = "eth0" or addr = "127.0.0.1", or say -d eth0`)
	}
	c.checkDevices(d)
}

// at returns the place of the first key that the file has, or an empty one.
func (c *Config) at(keys ...string) span {
	for _, k := range keys {
		if s, ok := c.where[k]; ok {
			return s
		}
	}
	return whole
}

func (d *Device) at(key string) span {
	for _, k := range []string{key, ""} {
		if s, ok := d.where[k]; ok {
			return s
		}
	}
	return whole
}

func (c *Config) checkDevices(d *document) {
	seen := map[string]*Device{}
	once := func(dev *Device, key, what string) {
		if first := seen[what]; first != nil {
			d.add(dev.at(key), "%s is also that of device %s%s", what, first.Name, d.lineOf(first.at(key)))
			return
		}
		seen[what] = dev
	}
	c.nameDevices()
	for i := range c.Devices {
		dev := &c.Devices[i]
		once(dev, "name", "name "+strconv.Quote(dev.Name))
		in := ""
		if dev.Namespace != "" {
			in = " in namespace " + dev.Namespace
		}
		switch {
		case dev.Interface != "" && dev.Addr != "":
			d.add(dev.at("addr"), "device %s has an interface and an addr; one of them says where it is", dev.Name)
		case dev.Interface != "":
			once(dev, "interface", "interface "+strconv.Quote(dev.Interface)+in)
		case dev.Addr != "":
			if a, err := netip.ParseAddr(dev.Addr); err == nil {
				once(dev, "addr", fmt.Sprintf("addr %q%s", a.Unmap(), in))
			}
		case !dev.given("interface") && !dev.given("addr"): // a bad one was told of
			d.add(dev.at(""), `device %s is nowhere: give it an interface = "eth0" or an addr = "127.0.0.1"`, dev.Name)
		}
		if dev.Seed != 0 && dev.Faults == "" {
			d.add(dev.at("seed"), "seed is for faults; there are none")
		}
		dev.checkCC(d)
		if p, t := dev.PerClient, dev.Total; t.Bytes > 0 && p.Bytes > t.Bytes {
			d.add(dev.at("per_client.bytes"), "a client may have %d octets, more than the %d of all clients (total)", p.Bytes, t.Bytes)
		}
	}
}

// checkCC begins with the profile, wherever the file has it, and checks parameters
// together.
func (d *Device) checkCC(doc *document) {
	c := CC{d.CC.Profile, cc.Default()}
	_ = c.SetProfile(c.Profile) // it is a good one
	for _, f := range cc.Fields() {
		if d.given("cc." + f.Name) {
			_ = c.Set(f.Name, f.Get(&d.CC.Config))
		}
	}
	d.CC = c
	if err := c.Check(); err != nil {
		at := "cc.rp_min_rate"
		if !d.given(at) {
			at = "cc.rp_max_rate"
		}
		doc.add(d.at(at), "%v", err)
	}
}

// given reports whether the file has a key, good or bad.
func (d *Device) given(key string) bool {
	_, ok := d.where[key]
	return ok
}

// nameDevices gives those without a name the first one that is free.
func (c *Config) nameDevices() {
	taken := map[string]bool{}
	for _, dev := range c.Devices {
		taken[dev.Name] = true
	}
	n := 0
	for i := range c.Devices {
		for c.Devices[i].Name == "" {
			if name := fmt.Sprintf("rxe%d", n); !taken[name] {
				c.Devices[i].Name, taken[name] = name, true
			}
			n++
		}
	}
}

// lineOf says where something is, in words.
func (d *document) lineOf(at span) string {
	if p := d.problem(at, ""); p.Line > 0 {
		return fmt.Sprintf(" (line %d)", p.Line)
	}
	return ""
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// Users and groups, by name or number.

func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no user %q on this host; a number does too", name)
	}
	return userID(u.Uid)
}

func groupID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q on this host; a number does too", name)
	}
	return groupID(g.Gid)
}

func userIDs(names []string) ([]uint32, error)  { return ids(names, userID) }
func groupIDs(names []string) ([]uint32, error) { return ids(names, groupID) }

func ids(names []string, id func(string) (uint32, error)) (out []uint32, err error) {
	for _, n := range names {
		v, err := id(n)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
