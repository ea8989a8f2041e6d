package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
)

// interfaces finds the two interfaces, and refuses those between which frames would go
// round in circles.
func interfaces(cfg *Config) (ifs [2]hostnet.Iface, err error) {
	if cfg.A == cfg.B {
		return ifs, fmt.Errorf("%s and %s are one interface: it takes two", cfg.A, cfg.B)
	}
	for i, name := range [...]string{cfg.A, cfg.B} {
		if ifs[i], err = hostnet.Interface(name); err != nil {
			return ifs, err
		}
		if ifs[i].Loopback {
			return ifs, fmt.Errorf("%s is the loopback interface, whose frames come back: choose two that lead elsewhere", name)
		}
	}
	if err := loop(&ifs[0], &ifs[1]); err != nil {
		return ifs, err
	}
	return ifs, nil
}

// advise says what about the interfaces is not as it should be.
func advise(a, b *hostnet.Iface, log func(string)) {
	if a.MTU != b.MTU {
		log(fmt.Sprintf("the MTU of %s is %d and that of %s %d: packets longer than the smaller are lost; give both one MTU", a.Name, a.MTU, b.Name, b.MTU))
	}
	if attribute(a, "iflink") == strconv.Itoa(b.Index) && attribute(b, "iflink") == strconv.Itoa(a.Index) {
		// Or of ends in other network namespaces that happen to have these numbers.
		log(fmt.Sprintf("%s and %s may be the two ends of one link, where frames would go round for ever", a.Name, b.Name))
	}
	for _, i := range [...]*hostnet.Iface{a, b} {
		adviseOn(i, log)
	}
}

func adviseOn(i *hostnet.Iface, log func(string)) {
	if !i.Up {
		log(fmt.Sprintf("%s is down: nothing passes; 'ip link set %s up'", i.Name, i.Name))
	}
	for _, a := range i.Addrs {
		if !a.Addr().IsLinkLocalUnicast() {
			log(fmt.Sprintf("%s has the address %v, for which this host answers too: 'ip addr flush dev %s', unless that is wanted", i.Name, a.Addr(), i.Name))
			break
		}
	}
	if on, err := sys.Feature(i.Name, "rx-lro"); err == nil && on {
		log(fmt.Sprintf("%s merges TCP segments for good (large-receive-offload), and what it merged may not pass: 'ethtool -K %s lro off'", i.Name, i.Name))
	}
}

// loop returns an error if frames that leave by one interface come back by the other.
// It goes by sysfs where that shows the interfaces of this network namespace.
func loop(a, b *hostnet.Iface) error {
	ma, mb := attribute(a, "master"), attribute(b, "master")
	switch {
	case ma != "" && ma == mb:
		return fmt.Errorf("%s and %s are both ports of %s, which forwards between them: 'ip link set %s nomaster' for one of them", a.Name, b.Name, ma, b.Name)
	case on(a, b) || on(b, a):
		return fmt.Errorf("one of %s and %s is on top of the other: frames would go round for ever; choose interfaces of different links", a.Name, b.Name)
	}
	return nil
}

// on reports whether a is an interface on top of b, as a VLAN is.
func on(a, b *hostnet.Iface) bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", a.Name, "lower_"+b.Name))
	return err == nil && attribute(a, "ifindex") != ""
}

// attribute returns what sysfs says of an interface, the last part of a link; "" if
// it does not.
func attribute(i *hostnet.Iface, name string) string {
	dir := filepath.Join("/sys/class/net", i.Name)
	if n, err := os.ReadFile(filepath.Join(dir, "ifindex")); err != nil || strings.TrimSpace(string(n)) != strconv.Itoa(i.Index) {
		return ""
	}
	path := filepath.Join(dir, name)
	if to, err := os.Readlink(path); err == nil {
		return filepath.Base(to)
	}
	v, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(v))
}
