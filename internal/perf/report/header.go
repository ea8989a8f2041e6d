package report

import (
	"fmt"
	"strings"
)

// Address is a line of addresses.
type Address struct {
	LID       uint16
	QPN, PSN  uint32
	OutReads  int // READ
	RKey      uint32
	VAddr     uint64
	GID       [16]byte
	Multicast bool
}

// Header prints the block of parameters. Lines that tell of things that this
// implementation does not have stay, for whoever reads them, and say OFF.
func (p *Printer) Header() {
	t := &p.t
	var b strings.Builder
	put := func(format string, a ...any) { fmt.Fprintf(&b, " "+format+"\n", a...) }
	b.WriteString(line)
	fmt.Fprintf(&b, "                    %sTest\n", t.title(" "))
	if t.Events {
		put("Test with events. Using %s_comp0", t.Device)
	}
	if t.Multicast {
		put("MultiCast runs on UD!")
	}
	put("Dual-port       : OFF\t\tDevice         : %s", t.Device)
	put("Number of qps   : %d\t\tTransport type : IB", t.QPs)
	put("Connection type : %s\t\tUsing SRQ      : %s", t.Transport, onOff(t.SRQ))
	put("PCIe relax order: OFF\t\tLock-free      : OFF")
	put("ibv_wr* API     : OFF\t\tUsing DDP      : OFF")
	if t.sends() {
		put("TX depth        : %d", t.TxDepth)
	}
	if t.Post > 1 {
		put("Post List       : %d", t.Post)
	}
	if t.takes() {
		put("RX depth        : %d", t.RxDepth)
	}
	if !t.Latency {
		put("CQ Moderation   : %d", t.CQMod)
	}
	put("Mtu             : %d[B]", t.MTU)
	put("Link type       : Ethernet")
	put("GID index       : %d", t.GIDIndex)
	if t.reads() {
		put("Outstand reads  : %d", t.OutReads)
	} else {
		put("Max inline data : %d[B]", t.Inline)
	}
	put("rdma_cm QPs\t : OFF")
	put("Data ex. method : Ethernet")
	b.WriteString(line)
	p.print("%s", b.String())
}

// title is the test's name in words, each with sep behind it.
func (t *Test) title(sep string) string {
	s := t.Verb + sep
	if t.Verb == "Atomic" {
		s += t.Atomic + sep
	}
	post := "Post" + sep + "List" + sep
	switch {
	case t.Latency:
		s += "Latency" + sep
	case t.Both && t.Post > 1:
		s += "Bidirectional" + sep + post + "BW" + sep
	case t.Both:
		s += "Bidirectional" + sep + "BW" + sep
	case t.Post > 1:
		s += post + "BW" + sep
	default:
		s += "BW" + sep
	}
	if t.Multicast {
		s += "Multicast" + sep
	}
	return s
}

func (t *Test) sends() bool { return !t.Server || t.Both }
func (t *Test) takes() bool { return t.messages() && (t.Server || t.Both) }

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// Local prints an address of this end; perftest prints all of them before the
// first remote one.
func (p *Printer) Local(a Address) { p.address("local", a) }

// Remote prints an address of the peer.
func (p *Printer) Remote(a Address) { p.address("remote", a) }

func (p *Printer) address(side string, a Address) {
	var b strings.Builder
	fmt.Fprintf(&b, " %s address: LID %s QPN %s PSN %s", side, chex(4, uint64(a.LID)), chex(6, uint64(a.QPN)), chex(6, uint64(a.PSN)))
	if p.t.Verb == "RDMA_Read" {
		fmt.Fprintf(&b, " OUT %s", chex(4, uint64(a.OutReads)))
	}
	if p.t.Verb == "RDMA_Read" || p.t.Verb == "RDMA_Write" {
		fmt.Fprintf(&b, " RKey %s VAddr %s", chex(8, uint64(a.RKey)), chex(16, a.VAddr))
	}
	name := "GID"
	if a.Multicast {
		name = "MGID"
	}
	fmt.Fprintf(&b, "\n %s", name)
	for i, x := range a.GID { // in decimal, as perftest does
		sep := ":"
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%02d", sep, x)
	}
	p.print("%s\n", b.String())
}

// chex is C's "%#0*x": the width counts the "0x", which 0 does not have.
func chex(width int, v uint64) string {
	if v == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}
