package inspect

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control/admin"
)

// CC returns the device's congestion control.
func (d *Device) CC() (admin.CC, error) {
	if err := d.cfg.NIC.Err(); err != nil {
		return admin.CC{}, err
	}
	now := d.cfg.NIC.CC()
	out := DescribeCC(&now)
	out.Device = d.cfg.Name
	return out, nil
}

// SetCC changes it.
func (d *Device) SetCC(change map[string]string) error {
	if d.cfg.SetCC != nil {
		return d.cfg.SetCC(change)
	}
	c := d.cfg.NIC.CC()
	if err := ApplyCC(&c, change); err != nil {
		return err
	}
	return d.cfg.NIC.SetCC(c)
}

// DescribeCC returns the parameters of a configuration, and what they may be.
func DescribeCC(c *cc.Config) admin.CC {
	out := admin.CC{Profiles: cc.Profiles}
	def := cc.Default()
	for _, f := range cc.Fields() {
		p := admin.CCParameter{Name: f.Name, Value: f.Get(c), Default: f.Get(&def), Unit: f.Unit, Low: f.Low, High: f.High, Of: f.Of, Help: f.Help}
		if f.Of == nil && f.High == 0 { // off and on
			p.High = 1
		}
		out.Parameters = append(out.Parameters, p)
	}
	return out
}

// ApplyCC changes parameters by their names, a profile before the others. It checks
// them together: the error names the parameter, its range and its unit, wraps
// admin.ErrInvalid, and then nothing is changed.
func ApplyCC(c *cc.Config, change map[string]string) error {
	next := *c
	set := func(name string) error {
		if err := next.Set(name, change[name]); err != nil {
			return fmt.Errorf("%w: congestion control: %w", admin.ErrInvalid, err)
		}
		return nil
	}
	if _, ok := change["profile"]; ok {
		if err := set("profile"); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(change)) {
		if name == "profile" {
			continue
		}
		if err := set(name); err != nil {
			return err
		}
	}
	if err := next.Check(); err != nil {
		return fmt.Errorf("%w: congestion control: %w", admin.ErrInvalid, err)
	}
	*c = next
	return nil
}
