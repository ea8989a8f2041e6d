package devinfo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// field is a line of the text and a member of the JSON object.
type field struct {
	name  string
	text  string   // as ibv_devinfo prints the value
	lines []string // below it
	value any      // in JSON
}

func num[T int | verbs.MTU](name string, v T) field {
	return field{name: name, text: strconv.Itoa(int(v)), value: v}
}

func word(name, format string, args ...any) field {
	s := fmt.Sprintf(format, args...)
	return field{name: name, text: s, value: s}
}

func list(name, text string, lines []string) field {
	return field{name: name, text: text, lines: lines, value: append([]string{}, lines...)}
}

func mtu(name string, m verbs.MTU) field {
	return field{name: name, text: fmt.Sprintf("%d (%d)", m, m.Enum()), value: int(m)}
}

func guid(name string, v uint64) field {
	return word(name, "%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// identity is what ibv_devinfo prints of a device without -v. Vendor 0xffffff is
// nobody's (an OUI of all ones), as that of Soft-RoCE; there is no hardware to
// have a part number or a revision.
func (i *Info) identity() []field {
	a := &i.Attr
	return []field{
		word("transport", "InfiniBand (0)"),
		word("fw_ver", "%s", a.FWVer),
		guid("node_guid", a.NodeGUID),
		guid("sys_image_guid", a.NodeGUID), // a system image of one device
		word("vendor_id", "0x%04x", a.VendorID),
		num("vendor_part_id", 0),
		word("hw_ver", "0x%X", 0),
		num("phys_port_cnt", a.PhysPorts),
	}
}

// Flags of device_cap_flags that are true of the device; values as
// ibv_device_cap_flags.
var capFlags = []struct {
	bit  uint32
	name string
}{
	{1 << 1, "BAD_PKEY_CNTR"},   // counter bad_pkey
	{1 << 11, "SYS_IMAGE_GUID"}, // the node's
	{1 << 12, "RC_RNR_NAK_GEN"}, // a SEND without a receive request is answered
}

func capBits() (flags uint32, names []string) {
	for _, f := range capFlags {
		flags |= f.bit
		names = append(names, f.name)
	}
	return flags, names
}

// limits is what ibv_devinfo -v adds to it, as far as it has a value. What has
// no attribute is 0 since the device has no such thing.
func (i *Info) limits() []field {
	a := &i.Attr
	flags, names := capBits()
	atomic := "ATOMIC_NONE (0)"
	if a.AtomicHCA {
		atomic = "ATOMIC_HCA (1)"
	}
	return []field{
		word("max_mr_size", "0x%x", a.MaxMRSize),
		word("page_size_cap", "0x%x", ^uint64(0)&^(1<<12-1)), // regions have no pages: any size will do
		num("max_qp", a.MaxQP),
		num("max_qp_wr", a.MaxQPWR),
		list("device_cap_flags", fmt.Sprintf("0x%08x", flags), names),
		num("max_sge", a.MaxSGE),
		num("max_sge_rd", a.MaxSGE),
		num("max_cq", a.MaxCQ),
		num("max_cqe", a.MaxCQE),
		num("max_mr", a.MaxMR),
		num("max_pd", a.MaxPD),
		num("max_qp_rd_atom", a.MaxQPRdAtom),
		num("max_ee_rd_atom", 0),
		num("max_res_rd_atom", a.MaxQP*a.MaxQPRdAtom), // a queue pair has its own
		num("max_qp_init_rd_atom", a.MaxInitRdAtom),
		num("max_ee_init_rd_atom", 0),
		word("atomic_cap", "%s", atomic),
		num("max_ee", 0),
		num("max_rdd", 0),
		num("max_mw", a.MaxMW),
		num("max_raw_ipv6_qp", 0),
		num("max_raw_ethy_qp", 0),
		num("max_mcast_grp", a.MaxMcastGrp),
		num("max_mcast_qp_attach", a.MaxMcastQP),
		num("max_total_mcast_qp_attach", a.MaxMcastGrp*a.MaxMcastQP),
		num("max_ah", a.MaxAH),
		num("max_fmr", 0),
		num("max_srq", a.MaxSRQ),
		num("max_srq_wr", a.MaxSRQWR),
		num("max_srq_sge", a.MaxSGE),
		num("max_pkeys", i.Port.PKeyTblLen),
		num("local_ca_ack_delay", a.LocalAckDelay),
	}
}

func (i *Info) port() []field {
	return []field{
		word("state", "%s", i.Port.State),
		mtu("max_mtu", i.Port.MaxMTU),
		mtu("active_mtu", i.Port.ActiveMTU),
		num("sm_lid", 0),
		num("port_lid", 0),
		word("port_lmc", "0x%02x", 0),
		word("link_layer", "%s", i.Port.LinkLayer),
	}
}

// portLimits is what ibv_devinfo -v adds to the port. Counters are those of a
// device that has just been opened.
func (i *Info) portLimits() []field {
	phys := "LINK_UP (5)"
	if !i.Port.Active {
		phys = "DISABLED (3)"
	}
	width, speed := rate(i.Port.SpeedMbit)
	return []field{
		word("max_msg_sz", "0x%x", uint32(verbs.MaxMessage)),
		word("port_cap_flags", "0x%08x", 0), // no communication manager yet
		word("port_cap_flags2", "0x%04x", 0),
		word("max_vl_num", "1 (1)"),
		word("bad_pkey_cntr", "0x%x", 0),
		word("qkey_viol_cntr", "0x%x", 0),
		num("sm_sl", 0),
		num("pkey_tbl_len", i.Port.PKeyTblLen),
		num("gid_tbl_len", i.Port.GIDTblLen),
		num("subnet_timeout", 0),
		num("init_type_reply", 0),
		word("active_width", "%s", width),
		word("active_speed", "%s", speed),
		word("phys_state", "%s", phys),
	}
}

// rate returns the InfiniBand width and speed per lane that come nearest to an
// Ethernet speed in Mbit/s, as the kernel's ib_get_eth_speed chooses them up to
// 100 Gbit/s. An unknown one is the lowest. Codes of width: IBA 14.2.5.6.
func rate(mbit int) (width, speed string) {
	const x1, x2, x4 = "1X (1)", "2X (16)", "4X (2)"
	for _, r := range []struct {
		upTo         int
		width, speed string
	}{
		{1000, x1, "2.5 Gbps (1)"},
		{10000, x1, "10.0 Gbps (8)"},
		{20000, x4, "5.0 Gbps (2)"},
		{25000, x1, "25.0 Gbps (32)"},
		{40000, x4, "10.0 Gbps (8)"},
		{50000, x2, "25.0 Gbps (32)"},
		{100000, x4, "25.0 Gbps (32)"},
		{200000, x4, "50.0 Gbps (64)"},
	} {
		if mbit <= r.upTo {
			return r.width, r.speed
		}
	}
	return x4, "100.0 Gbps (128)"
}

// own is what ibv_devinfo has no line for.
func (i *Info) own() []field {
	port := field{name: fmt.Sprintf("udp_port_%d", wire.Port), text: "free"}
	owners := []object{}
	for _, o := range i.Owners {
		port.text = "taken, so a device cannot be opened"
		addr := "every address"
		if !o.Addr.IsUnspecified() {
			addr = o.Addr.String()
		}
		port.lines = append(port.lines, fmt.Sprintf("%s: %v", addr, o))
		owners = append(owners, object{
			word("address", "%v", o.Addr), num("uid", o.UID), num("pid", o.PID), word("command", "%s", o.Command), word("text", "%v", o),
		})
	}
	port.value = owners
	notes := "nothing"
	if n := len(i.Notes); n > 0 {
		notes = strconv.Itoa(n)
	}
	other := list("other_links", "none", i.OtherLinks)
	if other.lines != nil {
		other.text, other.lines = strings.Join(other.lines, ", "), nil
	}
	chosen := word("link", "%s", i.Attr.Link)
	if i.Auto {
		chosen.text += ", chosen by auto: " + WhyAuto(i.Attr.Link)
	}
	return []field{
		chosen,
		other,
		word("icrc_check", "%s", i.Attr.ICRC),
		word("netdev", "%s", i.netdev()),
		port,
		list("not_available", notes, i.Notes),
	}
}

func (i *Info) netdev() string {
	s := fmt.Sprintf("%s, MTU %d", i.Iface.Name, i.Iface.MTU)
	if i.Iface.Speed > 0 {
		s += fmt.Sprintf(", %d Mbit/s", i.Iface.Speed)
	}
	return s
}
