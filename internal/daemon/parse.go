package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// MaxFile bounds what is read of a configuration file.
const MaxFile = 1 << 20

// Load reads a configuration file and applies what the command line says. All
// errors of the file are in the one that is returned, a Problems.
func Load(path string, getenv func(string) string, over *Overrides) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	b := make([]byte, MaxFile+1)
	n := 0
	for n < len(b) && err == nil {
		var k int
		k, err = f.Read(b[n:])
		n += k
	}
	if n > MaxFile {
		return nil, fmt.Errorf("configuration: %s is longer than %d octets", path, MaxFile)
	}
	if n == 0 && err != nil && err.Error() != "EOF" {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, b[:n:n], getenv, over)
}

// Parse is Load of a text; name is what errors call it.
func Parse(name string, text []byte, getenv func(string) string, over *Overrides) (*Config, error) {
	d := &document{name: name, text: text}
	c := Default(getenv)
	c.where = map[string]span{}
	if err := syntax(d); err != nil {
		return nil, err // the rest would be a guess
	}
	r := reader{doc: d, c: c}
	r.read()
	if err := over.apply(c); err != nil {
		return nil, err
	}
	c.check(d)
	return c, d.err()
}

// syntax finds what is not TOML: one error, where the library stops.
func syntax(d *document) error {
	err := toml.Unmarshal(d.text, &map[string]any{})
	if err == nil {
		return nil
	}
	var de *toml.DecodeError
	if !errors.As(err, &de) {
		d.add(whole, "%v", err)
		return d.err()
	}
	line, column := de.Position()
	off := 0
	for range line - 1 {
		off += strings.IndexByte(string(d.text[off:]), '\n') + 1
	}
	d.add(span{off + column - 1, 1}, "%s", strings.TrimPrefix(de.Error(), "toml: "))
	return d.err()
}

// reader carries the expressions of a file into a Config.
type reader struct {
	doc *document
	c   *Config

	path []string // of the table that the file is in
	skip bool     // that table is not known, which was said
}

func (r *reader) read() {
	p := unstable.Parser{}
	p.Reset(r.doc.text)
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			r.header(e)
		case unstable.KeyValue:
			if !r.skip {
				r.pair(r.path, e)
			}
		}
	}
	if err := p.Error(); err != nil {
		r.doc.add(whole, "%v", err) // syntax has seen it first
	}
}

// keys returns the parts of a key and where it stands.
func keys(n *unstable.Node) (parts []string, at span) {
	for it := n.Key(); it.Next(); {
		k := it.Node()
		parts = append(parts, string(k.Data))
		if len(parts) == 1 {
			at.off = int(k.Raw.Offset)
		}
		at.n = int(k.Raw.Offset+k.Raw.Length) - at.off
	}
	return parts, at
}

func (r *reader) header(e *unstable.Node) {
	path, at := keys(e)
	r.path, r.skip = path, true
	if path[0] == "device" {
		r.c.where["device"] = at
	}
	list := e.Kind == unstable.ArrayTable
	switch {
	case path[0] != "device":
		if _, ok := tables[path[0]]; !ok || len(path) > 1 {
			r.doc.add(at, "there is no section [%s]; there are %s, and any number of [[device]]", strings.Join(path, "."), sorted(tables))
			return
		}
		if list {
			r.doc.add(at, "section %s is there once: [%[1]s]", path[0])
			return
		}
	case len(path) == 1:
		if !list {
			r.doc.add(at, "a device is one of a list: [[device]]")
			return
		}
		r.device(at)
	default:
		if _, ok := deviceTables[path[1]]; !ok || len(path) > 2 || list {
			r.doc.add(at, "there is no section [%s]; in a device there are [device.%s]", strings.Join(path, "."), strings.ReplaceAll(sorted(deviceTables), ", ", "] and [device."))
			return
		}
		if len(r.c.Devices) == 0 {
			r.doc.add(at, "[%s] is of the device above it; there is none", strings.Join(path, "."))
			return
		}
	}
	r.skip = false
}

func (r *reader) device(at span) *Device {
	d := NewDevice()
	d.where[""] = at
	r.c.Devices = append(r.c.Devices, d)
	return &r.c.Devices[len(r.c.Devices)-1]
}

// pair takes a key and its value, in the table of a path.
func (r *reader) pair(path []string, e *unstable.Node) {
	parts, at := keys(e)
	path = append(path[:len(path):len(path)], parts...)
	v := e.Value()
	switch {
	case v.Kind == unstable.InlineTable && r.holds(path):
		if len(path) == 1 && path[0] == "device" {
			r.doc.add(at, "a device is one of a list: [[device]]")
			return
		}
		for it := v.Children(); it.Next(); {
			r.pair(path, it.Node())
		}
	case v.Kind == unstable.Array && len(path) == 1 && path[0] == "device":
		for it := v.Children(); it.Next(); {
			if it.Node().Kind != unstable.InlineTable {
				r.doc.add(at, "it takes tables, not %s", kinds[it.Node().Kind])
				return
			}
			r.device(at)
			for in := it.Node().Children(); in.Next(); {
				r.pair(path, in.Node())
			}
		}
	default:
		r.set(path, at, v)
	}
}

// holds reports whether a path is that of a table.
func (r *reader) holds(path []string) bool {
	switch len(path) {
	case 1:
		return tables[path[0]] != nil || path[0] == "device"
	case 2:
		return path[0] == "device" && deviceTables[path[1]] != nil && len(r.c.Devices) > 0
	}
	return false
}

// table returns the section that a path of a key leads to, and where its keys'
// places are kept.
func (r *reader) table(path []string) (t table, where map[string]span, prefix string) {
	in := path[:len(path)-1]
	switch {
	case len(in) == 1 && in[0] != "device" && tables[in[0]] != nil:
		return tables[in[0]](r.c), r.c.where, in[0] + "."
	case len(in) == 0 || in[0] != "device" || len(r.c.Devices) == 0:
		return nil, nil, ""
	}
	d := &r.c.Devices[len(r.c.Devices)-1]
	switch {
	case len(in) == 1:
		return bound[Device]{deviceKeys, d}, d.where, ""
	case len(in) == 2 && deviceTables[in[1]] != nil:
		return deviceTables[in[1]](d), d.where, in[1] + "."
	}
	return nil, nil, ""
}

func (r *reader) set(path []string, at span, v *unstable.Node) {
	name := path[len(path)-1]
	t, where, prefix := r.table(path)
	if t == nil {
		r.doc.add(at, "unknown key %s; there are sections %s, and any number of [[device]]", strings.Join(path, "."), sorted(tables))
		return
	}
	known, err := t.set(name, value{v})
	switch raw := (span{int(v.Raw.Offset), int(v.Raw.Length)}); {
	case !known:
		r.doc.add(at, "unknown key %s; allowed are %s", name, t.names())
	case err != nil && raw.n > 0:
		r.doc.add(raw, "%s = %s: %v", name, r.doc.text[raw.off:raw.off+raw.n], err)
	case err != nil:
		r.doc.add(at, "%s: %v", name, err)
	}
	where[prefix+name] = at
}
