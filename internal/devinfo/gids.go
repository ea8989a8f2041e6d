package devinfo

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteGIDs writes the GID tables of devices as show_gids does.
func WriteGIDs(w io.Writer, devices []Info) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"+
		"---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n")
	n := 0
	for _, d := range devices {
		for _, g := range d.GIDs {
			ipv4 := "\t"
			if a := g.GID.Addr(); a.Is4() {
				ipv4 = a.String() + "  "
			}
			fmt.Fprintf(out, "%s\t1\t%d\t%v\t%s\t%s\t%s\n", d.Attr.Name, g.Index, g.GID, ipv4, version(g.Type), g.Interface)
			n++
		}
	}
	fmt.Fprintf(out, "n_gids_found=%d\n", n)
	return out.Flush()
}

// WriteGIDsJSON writes each GID as a JSON object on a line.
func WriteGIDsJSON(w io.Writer, devices []Info) error {
	for i := range devices {
		d := &devices[i]
		for _, g := range d.GIDs {
			o := append(object{word("dev", "%s", d.Attr.Name), num("port", 1)}, d.gid(g)...)
			if err := writeLine(w, append(o, word("netdev", "%s", g.Interface))); err != nil {
				return err
			}
		}
	}
	return nil
}

// version shortens "RoCE v2" to "v2".
func version(typ string) string { return typ[strings.LastIndexByte(typ, ' ')+1:] }
