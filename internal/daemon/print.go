package daemon

import (
	"bufio"
	"fmt"
	"io"
)

// Print writes the whole configuration as a file that Parse takes, each key with
// what it is for.
func (c *Config) Print(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := printer{w: b}
	for _, name := range []string{"control", "admin", "metrics", "log", "process"} {
		p.section("["+name+"]", tables[name](c))
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		p.section("[[device]]", bound[Device]{deviceKeys, d})
		p.section("[device.cc]", deviceTables["cc"](d))
		for _, name := range []string{"per_client", "total"} {
			p.section("[device."+name+"] # 0 is the default", deviceTables[name](d))
		}
	}
	return b.Flush()
}

type printer struct {
	w     *bufio.Writer
	later bool
}

func (p *printer) section(header string, t table) {
	if p.later {
		fmt.Fprintln(p.w)
	}
	p.later = true
	fmt.Fprintln(p.w, header)
	wide, long := 0, 0
	t.each(func(name, value, _ string) { wide, long = max(wide, len(name)), max(long, len(value)) })
	t.each(func(name, value, help string) {
		if value == `""` && (name == "interface" || name == "addr" || name == "namespace" || name == "faults") {
			return // would be checked
		}
		fmt.Fprintf(p.w, "%-*s = %-*s # %s\n", wide, name, long, value, help)
	})
}
