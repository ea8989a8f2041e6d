package daemon

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gorxe/gorxe/cc"
)

// key is what a section of T may have: how a value of the file is taken, shown,
// and described.
type key[T any] struct {
	name, help string
	kind       unstable.Kind // of a value that a flag gives
	set        func(*T, value) error
	get        func(*T) string // as TOML; "" is not shown
}

// section is the keys of one, in the order they are shown in.
type section[T any] []key[T]

func (s section[T]) find(name string) *key[T] {
	for i := range s {
		if s[i].name == name {
			return &s[i]
		}
	}
	return nil
}

func (s section[T]) names() string {
	var out []string
	for _, k := range s {
		out = append(out, k.name)
	}
	return strings.Join(out, ", ")
}

func text[T any](name, help string, at func(*T) *string, check func(string) error) key[T] {
	return key[T]{name, help, unstable.String, func(t *T, v value) error {
		s, err := v.text()
		if err == nil && check != nil {
			err = check(s)
		}
		if err == nil {
			*at(t) = s
		}
		return err
	}, func(t *T) string { return strconv.Quote(*at(t)) }}
}

func choice[T any](name, help string, at func(*T) *string, of ...string) key[T] {
	k := text(name, help, at, nil)
	k.set = func(t *T, v value) error {
		s, err := v.text()
		if err != nil || !slices.Contains(of, s) {
			return fmt.Errorf(`it takes "%s" or "%s"`, strings.Join(of[:len(of)-1], `", "`), of[len(of)-1])
		}
		*at(t) = s
		return nil
	}
	return k
}

func number[T any, N int | int64 | uint64](name, help string, at func(*T) *N, low, high int64) key[T] {
	return key[T]{name, help, unstable.Integer, func(t *T, v value) error {
		n, err := v.number(low, high)
		if err == nil {
			*at(t) = N(n)
		}
		return err
	}, func(t *T) string { return fmt.Sprint(*at(t)) }}
}

func flag[T any](name, help string, at func(*T) *bool) key[T] {
	return key[T]{name, help, unstable.Bool, func(t *T, v value) error {
		b, err := v.flag()
		if err == nil {
			*at(t) = b
		}
		return err
	}, func(t *T) string { return strconv.FormatBool(*at(t)) }}
}

func mode[T any](name, help string, at func(*T) *fs.FileMode) key[T] {
	return key[T]{name, help, unstable.String, func(t *T, v value) error {
		m, err := v.mode()
		if err == nil {
			*at(t) = m
		}
		return err
	}, func(t *T) string { return fmt.Sprintf(`"%04o"`, uint32(*at(t))) }}
}

func names[T any](name, help string, at func(*T) *[]string) key[T] {
	return key[T]{name, help, unstable.String, func(t *T, v value) error {
		l, err := v.names()
		if err == nil {
			*at(t) = l
		}
		return err
	}, func(t *T) string {
		out := make([]string, len(*at(t)))
		for i, s := range *at(t) {
			out[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(out, ", ") + "]"
	}}
}

var controlKeys = section[Control]{
	text("socket", "where programs attach", func(c *Control) *string { return &c.Socket }, checkPath),
	mode("mode", "rights of that file; who may write to it may attach", func(c *Control) *fs.FileMode { return &c.Mode }),
	text("group", "group of that file", func(c *Control) *string { return &c.Group }, nil),
	names("allow_uids", "users, by name or number, whose programs may attach; with allow_groups empty too, whoever may open the file", func(c *Control) *[]string { return &c.AllowUsers }),
	names("allow_groups", "the same for groups", func(c *Control) *[]string { return &c.AllowGroups }),
}

var adminKeys = section[Admin]{
	text("socket", "where rxe stat, rxe qp and others ask", func(c *Admin) *string { return &c.Socket }, checkPath),
	mode("mode", "rights of that file; who may write to it sees all traffic", func(c *Admin) *fs.FileMode { return &c.Mode }),
	text("group", "group of that file", func(c *Admin) *string { return &c.Group }, nil),
}

var metricsKeys = section[Metrics]{
	text("listen", "address and port for Prometheus, such as 127.0.0.1:9879; empty is none", func(c *Metrics) *string { return &c.Listen }, checkListen),
	flag("allow_remote", "listen may be an address that others reach", func(c *Metrics) *bool { return &c.AllowRemote }),
}

var logKeys = section[Log]{
	choice("level", "debug, info, warn or error", func(c *Log) *string { return &c.Level }, "debug", "info", "warn", "error"),
	choice("format", "text or json", func(c *Log) *string { return &c.Format }, "text", "json"),
}

var processKeys = section[Process]{
	text("user", "user to become once devices are open; empty stays", func(c *Process) *string { return &c.User }, nil),
	text("group", "group to become; empty is the user's", func(c *Process) *string { return &c.Group }, nil),
	choice("seccomp", "filter of system calls: on refuses what is not needed, kill ends the process, off is none", func(c *Process) *string { return &c.Seccomp }, SeccompOn, SeccompOff, SeccompKill),
}

var deviceKeys = section[Device]{
	text("name", "of the device; rxe0, rxe1 and so on", func(d *Device) *string { return &d.Name }, checkName),
	text("interface", "network interface to share with the kernel", func(d *Device) *string { return &d.Interface }, checkInterface),
	text("addr", "a single local address instead", func(d *Device) *string { return &d.Addr }, checkAddr),
	text("namespace", "network namespace, by name (ip netns) or path; empty is this one", func(d *Device) *string { return &d.Namespace }, nil),
	choice("link", "auto, udp, packet or xdp", func(d *Device) *string { return &d.Link }, "auto", "udp", "packet", "xdp"),
	number("shards", "lanes, for as many cores", func(d *Device) *int { return &d.Shards }, 1, 16),
	text("faults", `rules for breaking traffic on purpose, such as "tx drop 1%"`, func(d *Device) *string { return &d.Faults }, checkFaults),
	number("seed", "makes their chances repeatable", func(d *Device) *uint64 { return &d.Seed }, 0, 1<<63-1),
	flag("required", "rxed does not start without the device", func(d *Device) *bool { return &d.Required }),
}

var limitKeys = func() (s section[Limits]) {
	count := func(name, help string, at func(*Limits) *int) {
		s = append(s, number(name, help, at, 0, int64(*at(&maxima))))
	}
	count("qps", "queue pairs", func(l *Limits) *int { return &l.QPs })
	count("cqs", "completion queues", func(l *Limits) *int { return &l.CQs })
	count("cqes", "entries of all completion queues", func(l *Limits) *int { return &l.CQEs })
	count("srqs", "shared receive queues", func(l *Limits) *int { return &l.SRQs })
	count("mrs", "memory regions", func(l *Limits) *int { return &l.MRs })
	count("mws", "memory windows", func(l *Limits) *int { return &l.MWs })
	count("pds", "protection domains", func(l *Limits) *int { return &l.PDs })
	count("ahs", "address handles", func(l *Limits) *int { return &l.AHs })
	count("groups", "attachments to multicast groups", func(l *Limits) *int { return &l.Groups })
	count("clients", "attached programs", func(l *Limits) *int { return &l.Clients })
	return append(s, key[Limits]{"bytes", `memory that rxed holds for them, as a number or such as "512MiB"`, unstable.String, func(l *Limits, v value) (err error) {
		n, err := v.size(maxima.Bytes)
		if err == nil {
			l.Bytes = n
		}
		return err
	}, func(l *Limits) string { return fmt.Sprint(l.Bytes) }})
}()

// clientLimitKeys are those of one client.
var clientLimitKeys = slices.DeleteFunc(slices.Clone(limitKeys), func(k key[Limits]) bool { return k.name == "clients" })

// tables are the sections that a file has once; device comes any number of times.
var tables = map[string]func(*Config) table{
	"control": func(c *Config) table { return bound[Control]{controlKeys, &c.Control} },
	"admin":   func(c *Config) table { return bound[Admin]{adminKeys, &c.Admin} },
	"metrics": func(c *Config) table { return bound[Metrics]{metricsKeys, &c.Metrics} },
	"log":     func(c *Config) table { return bound[Log]{logKeys, &c.Log} },
	"process": func(c *Config) table { return bound[Process]{processKeys, &c.Process} },
}

// ccKeys are the parameters of congestion control, and a set of them.
var ccKeys = func() section[CC] {
	profile := choice("profile", "set of parameters that those below change: "+strings.Join(cc.Profiles, ", "), func(c *CC) *string { return &c.Profile }, cc.Profiles...)
	s := section[CC]{profile}
	for _, f := range cc.Fields() {
		help := f.Help
		if r := f.Range(); f.Of != nil || f.High != 0 { // a switch explains itself
			help += " (" + r + ")"
		}
		k := key[CC]{f.Name, help, unstable.Integer, func(c *CC, v value) error {
			text, err := v.scalar()
			if err != nil {
				return fmt.Errorf("it takes %s, %w", f.Range(), err)
			}
			if c.Set(f.Name, text) != nil {
				return fmt.Errorf("it takes %s", f.Range())
			}
			return nil
		}, func(c *CC) string { return f.Get(&c.Config) }}
		switch {
		case f.Of != nil:
			k.kind, k.get = unstable.String, func(c *CC) string { return strconv.Quote(f.Get(&c.Config)) }
		case f.High == 0:
			k.kind, k.get = unstable.Bool, func(c *CC) string { return strconv.FormatBool(f.Get(&c.Config) == "1") }
		}
		s = append(s, k)
	}
	return s
}()

// deviceTables are those inside a device.
var deviceTables = map[string]func(*Device) table{
	"per_client": func(d *Device) table { return bound[Limits]{clientLimitKeys, &d.PerClient} },
	"cc":         func(d *Device) table { return bound[CC]{ccKeys, &d.CC} },
	"total":      func(d *Device) table { return bound[Limits]{limitKeys, &d.Total} },
}

func sorted[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// table is a section and what its values go to.
type table interface {
	// set takes a value; known is false where there is no such key.
	set(name string, v value) (known bool, err error)
	names() string
	// kind is that of a value of a key, as a flag gives it.
	kind(name string) unstable.Kind
	// each shows the keys and values.
	each(func(name, value, help string))
}

type bound[T any] struct {
	section[T]
	to *T
}

func (b bound[T]) set(name string, v value) (bool, error) {
	k := b.find(name)
	if k == nil {
		return false, nil
	}
	return true, k.set(b.to, v)
}

func (b bound[T]) kind(name string) unstable.Kind {
	if k := b.find(name); k != nil {
		return k.kind
	}
	return unstable.Invalid
}

func (b bound[T]) each(f func(name, value, help string)) {
	for _, k := range b.section {
		f(k.name, k.get(b.to), k.help)
	}
}
