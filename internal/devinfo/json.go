package devinfo

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/gorxe/gorxe/verbs"
)

// object is a JSON object whose members keep their order.
type object []field

// MarshalJSON encodes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// WriteJSON writes a device as a JSON object on a line: everything that
// WriteText has, by the same names. What can be larger than 2^53 or has a unit
// of its own is a string.
func (i *Info) WriteJSON(w io.Writer) error {
	o := object{word("hca_id", "%s", i.Attr.Name)}
	o = append(append(o, i.identity()...), i.limits()...)
	o = append(o, num("num_comp_vectors", i.Attr.Shards))
	p := append(object{num("port", 1)}, i.port()...)
	p = append(p, i.portLimits()...)
	gids := make([]object, 0, len(i.GIDs))
	for _, g := range i.GIDs {
		gids = append(gids, i.gid(g))
	}
	p = append(p, field{name: "gids", value: gids})
	o = append(append(o, field{name: "ports", value: []object{p}}), i.own()...)
	return writeLine(w, o)
}

func (i *Info) gid(g verbs.GIDEntry) object {
	return object{
		num("index", g.Index), word("gid", "%v", g.GID), word("address", "%v", g.GID.Addr()), word("type", "%s", g.Type),
		{name: "usable", value: i.usable(g)},
	}
}

func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
