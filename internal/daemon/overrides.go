package daemon

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
)

// Overrides are what the command line says; it goes before the file.
type Overrides struct {
	// Devices replace those of the file: interfaces and addresses, in this order.
	Interfaces, Addrs []string
	// Keys are single values, as section.key; device.key is for all devices.
	Keys []Override
	// CC is a list of parameters of congestion control, of all devices, such as
	// "dcqcn,rp_ai_rate=10".
	CC string
}

// Override is one key and the flag that gave it.
type Override struct {
	Section, Key string
	Value        string
	Flag         string
}

func (o *Overrides) apply(c *Config) error {
	if o == nil {
		return nil
	}
	if len(o.Interfaces)+len(o.Addrs) > 0 {
		c.Devices = nil
		add := func(flag, key string, values []string) error {
			for _, v := range values {
				c.Devices = append(c.Devices, NewDevice())
				if err := c.override(Override{"device", key, v, flag}, len(c.Devices)-1); err != nil {
					return err
				}
			}
			return nil
		}
		if err := add("-d", "interface", o.Interfaces); err != nil {
			return err
		}
		if err := add("--addr", "addr", o.Addrs); err != nil {
			return err
		}
	}
	for _, k := range o.Keys {
		if k.Section != "device" {
			if err := c.override(k, 0); err != nil {
				return err
			}
			continue
		}
		for i := range c.Devices {
			if err := c.override(k, i); err != nil {
				return err
			}
		}
	}
	if o.CC == "" {
		return nil
	}
	change, err := admin.ParseCC(strings.Split(o.CC, ","))
	if err == nil {
		err = inspect.ApplyCC(new(cc.Default()), change)
	}
	if err != nil {
		return fmt.Errorf("--cc %s: %w", o.CC, err)
	}
	for i := range c.Devices {
		c.Devices[i].overrideCC(change)
	}
	return nil
}

// overrideCC sets parameters that are good, as if they were in the file.
func (d *Device) overrideCC(change map[string]string) {
	for name, v := range change {
		if name == "profile" {
			d.CC.Profile = v
		} else {
			_ = d.CC.Set(name, v)
		}
		d.where["cc."+name] = whole
	}
}

// override sets one key to what a flag says.
func (c *Config) override(o Override, device int) error {
	var t table
	if o.Section == "device" {
		t = bound[Device]{deviceKeys, &c.Devices[device]}
	} else {
		t = tables[o.Section](c)
	}
	_, err := t.set(o.Key, value{&unstable.Node{Kind: t.kind(o.Key), Data: []byte(o.Value)}})
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Flag, o.Value, err)
	}
	return nil
}
