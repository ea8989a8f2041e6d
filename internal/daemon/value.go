package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gorxe/gorxe/link/fault"
)

// value is what a file gives a key.
type value struct{ node *unstable.Node }

// errors of values begin with what the key takes.
func (v value) wants(what string) error {
	return fmt.Errorf("it takes %s, not %s", what, kinds[v.node.Kind])
}

var kinds = map[unstable.Kind]string{
	unstable.String: "a string", unstable.Integer: "a number", unstable.Float: "a fraction", unstable.Bool: "true or false",
	unstable.Array: "a list", unstable.InlineTable: "a table",
	unstable.LocalDate: "a date", unstable.LocalTime: "a time", unstable.LocalDateTime: "a time", unstable.DateTime: "a time",
}

func (v value) text() (string, error) {
	if v.node.Kind != unstable.String {
		return "", v.wants("a string")
	}
	return string(v.node.Data), nil
}

// scalar is a string, a number, or true or false, as text.
func (v value) scalar() (string, error) {
	switch v.node.Kind {
	case unstable.String, unstable.Bool:
		return string(v.node.Data), nil
	case unstable.Integer:
		n, err := strconv.ParseInt(string(v.node.Data), 0, 64)
		if err != nil {
			return string(v.node.Data), nil //nolint:nilerr // out of every range
		}
		return strconv.FormatInt(n, 10), nil
	}
	return "", fmt.Errorf("not %s", kinds[v.node.Kind])
}

func (v value) flag() (bool, error) {
	if v.node.Kind != unstable.Bool {
		return false, v.wants("true or false")
	}
	return string(v.node.Data) == "true", nil
}

func (v value) number(low, high int64) (int64, error) {
	what := fmt.Sprintf("a number from %d to %d", low, high)
	if v.node.Kind != unstable.Integer {
		return 0, v.wants(what)
	}
	n, err := strconv.ParseInt(string(v.node.Data), 0, 64) // TOML's forms are among Go's
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("it takes %s", what)
	}
	return n, nil
}

func (v value) mode() (fs.FileMode, error) {
	const what = `rights in octal, such as "0660"`
	s := string(v.node.Data)
	switch v.node.Kind {
	case unstable.String:
	case unstable.Integer:
		if !strings.HasPrefix(s, "0o") {
			return 0, fmt.Errorf("it takes %s, or 0o%s", what, s)
		}
		s = s[2:]
	default:
		return 0, v.wants(what)
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("it takes %s", what)
	}
	return fs.FileMode(n), nil
}

// names are strings and numbers.
func (v value) names() (out []string, err error) {
	const what = `a list of names and numbers, such as ["rdma", 1000]`
	if v.node.Kind != unstable.Array {
		return nil, v.wants(what)
	}
	for it := v.node.Children(); it.Next(); {
		switch n := it.Node(); n.Kind {
		case unstable.String, unstable.Integer:
			out = append(out, string(n.Data))
		default:
			return nil, fmt.Errorf("it takes %s; %s is in it", what, kinds[n.Kind])
		}
	}
	return out, nil
}

// size is a number of octets.
func (v value) size(high int64) (int64, error) {
	what := fmt.Sprintf(`a number of octets up to %d, or such as "512MiB" (KiB, MiB, GiB, TiB)`, high)
	if v.node.Kind != unstable.String {
		if v.node.Kind != unstable.Integer {
			return 0, v.wants(what)
		}
		return v.number(0, high)
	}
	s, shift := string(v.node.Data), 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			s, shift = strings.TrimSpace(rest), 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > high>>shift {
		return 0, fmt.Errorf("it takes %s", what)
	}
	return n << shift, nil
}

// What keys with text in them take.

func checkPath(s string) error {
	switch {
	case !strings.HasPrefix(s, "/"):
		return errors.New("it takes the whole path of a socket, such as /run/rxed/verbs.sock")
	case len(s) > 107: // sun_path and its zero
		return fmt.Errorf("a socket's path has at most 107 octets, this one %d", len(s))
	}
	return nil
}

func checkName(s string) error {
	ok := s != "" && len(s) < 32
	for _, r := range s {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	if !ok {
		return errors.New("it takes 1 to 31 letters, digits, '-', '_' and '.'")
	}
	return nil
}

func checkInterface(s string) error {
	if s == "" || len(s) > 15 || strings.ContainsAny(s, "/ \t\n") {
		return errors.New("it takes the name of a network interface, of 1 to 15 characters ('ip link' lists them)")
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return fmt.Errorf(`it takes the name of a network interface; for an address there is addr = "%v"`, a)
	}
	return nil
}

func checkAddr(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return fmt.Errorf(`an address goes without the length of its network: "%v"`, p.Addr())
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return fmt.Errorf(`an address goes without a port: "%v"`, p.Addr())
	}
	return errors.New("it takes an IP address of this host, such as 127.0.0.1")
}

func checkFaults(s string) error {
	_, err := fault.Parse(s)
	return err
}

func checkListen(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 {
		return errors.New("it takes an address and a port, such as 127.0.0.1:9879")
	}
	return nil
}
