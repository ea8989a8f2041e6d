package devinfo

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// lacks is what ibv_devinfo -v prints for a device without on-demand paging,
// timestamps, segmentation, receive-side scaling, pacing and tag matching; %X is
// for device_cap_flags, which have no upper half.
const lacks = `	general_odp_caps:
	rc_odp_caps:
					NO SUPPORT
	uc_odp_caps:
					NO SUPPORT
	ud_odp_caps:
					NO SUPPORT
	xrc_odp_caps:
					NO SUPPORT
	completion_timestamp_mask not supported
	core clock not supported
	device_cap_flags_ex:		0x%X
	tso_caps:
		max_tso:			0
	rss_caps:
		max_rwq_indirection_tables:			0
		max_rwq_indirection_table_size:			0
		rx_hash_function:				0x0
		rx_hash_fields_mask:				0x0
	max_wq_type_rq:			0
	packet_pacing_caps:
		qp_rate_limit_min:	0kbps
		qp_rate_limit_max:	0kbps
	tag matching not supported
`

// Columns that values of a device and of a port stand in, and the indents of
// their names, in tabs.
const (
	deviceIndent, deviceColumn = 1, 5
	portIndent, portColumn     = 3, 6
)

// WriteText writes a device as ibv_devinfo does, or with verbose as ibv_devinfo
// -v does, then what is our own.
func (i *Info) WriteText(w io.Writer, verbose bool) error {
	out := bufio.NewWriter(w)
	device := func(fs []field) {
		for _, f := range fs {
			line(out, deviceIndent, deviceColumn, f)
		}
	}
	port := func(fs []field) {
		for _, f := range fs {
			line(out, portIndent, portColumn, f)
		}
	}
	fmt.Fprintf(out, "hca_id:\t%s\n", i.Attr.Name)
	device(i.identity())
	if verbose {
		device(i.limits())
		flags, _ := capBits()
		fmt.Fprintf(out, lacks, flags)
		device([]field{num("num_comp_vectors", i.Attr.Shards)})
	}
	fmt.Fprintf(out, "\t\tport:\t1\n")
	port(i.port())
	if verbose {
		port(i.portLimits())
		for _, g := range i.GIDs {
			fmt.Fprintf(out, "\t\t\tGID[%3d]:\t\t%v, %s\n", g.Index, netip.AddrFrom16(g.GID), g.Type)
		}
	}
	device(i.own())
	fmt.Fprintln(out)
	return out.Flush()
}

// line writes a field with its value in a column of tabs.
func line(w io.Writer, indent, column int, f field) {
	s := strings.Repeat("\t", indent) + f.name + ":"
	fill := column - (8*indent+len(f.name)+1)/8
	fmt.Fprintf(w, "%s%s%s\n", s, strings.Repeat("\t", fill), f.text)
	for _, l := range f.lines {
		fmt.Fprintf(w, "%s%s\n", strings.Repeat("\t", column), l)
	}
}
