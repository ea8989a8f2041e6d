package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/gorxe/gorxe/internal/pcap"
)

// Options says how Run writes.
type Options struct {
	JSON bool // one object a line
}

// Run decodes every frame of r and writes one line for each packet to w. It
// returns how many packets were bad, in the sense of Packet.Bad. After an error of the
// file the frames before it are written.
func Run(w io.Writer, r *pcap.Reader, o Options) (bad int, err error) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	var start time.Time
	for {
		f, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return bad, nil
		case err != nil:
			return bad, err
		}
		if start.IsZero() {
			start = f.Time
		}
		for _, p := range Packets(f) {
			if p.Bad() {
				bad++
			}
			if o.JSON {
				err = enc.Encode(p)
			} else {
				_, err = fmt.Fprintln(w, p.Line(start))
			}
			if err != nil {
				return bad, err
			}
		}
	}
}

// Line is the packet in one line; times count from start.
func (p *Packet) Line(start time.Time) string {
	var b strings.Builder
	at := "-"
	if !p.Time.IsZero() {
		at = fmt.Sprintf("%.6f", p.Time.Sub(start).Seconds())
	}
	fmt.Fprintf(&b, "%5d %11s  %s", p.Frame, at, p.addresses())
	for _, v := range p.VLAN {
		fmt.Fprintf(&b, "  vlan %d pcp %d", v.ID, v.PCP)
	}
	if p.Protocol == RoCEv1 {
		b.WriteString("  RoCEv1")
	}
	if p.BTH != nil {
		fmt.Fprintf(&b, "  %-19s qp 0x%06x psn %-8d", p.Opcode, *p.DestQP, *p.PSN)
		b.WriteString(p.flags())
		b.WriteString(p.headers())
		if p.PayloadLen != nil && *p.PayloadLen > 0 {
			fmt.Fprintf(&b, "  len %d", *p.PayloadLen)
		}
	}
	switch p.ICRC {
	case "ok":
		b.WriteString("  icrc ok")
	case "bad":
		fmt.Fprintf(&b, "  icrc BAD (holds %s, computed %s)", p.ICRCStored, p.ICRCComputed)
	}
	switch {
	case p.Reason != "" && p.Protocol == Other:
		fmt.Fprintf(&b, "  not RoCE: %s", p.Why)
	case p.Reason != "":
		fmt.Fprintf(&b, "  ! %s: %s", p.Reason, p.Why)
	}
	if p.Captured > 0 {
		fmt.Fprintf(&b, "  (%d of %d octets captured)", p.Captured, p.Len)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "  (%s)", n)
	}
	if p.Comment != "" {
		fmt.Fprintf(&b, "  # %s", oneLine(p.Comment))
	}
	return b.String()
}

// oneLine leaves out of a foreign text what would do more to a terminal than
// be read.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func (p *Packet) addresses() string {
	if p.Src == "" {
		return "-"
	}
	src := p.Src
	if a, err := netip.ParseAddr(src); err == nil && p.UDP != nil {
		src = netip.AddrPortFrom(a, p.UDP.SrcPort).String()
	}
	return src + " > " + p.Dst
}

// flags are the bits of the BTH that are set, and what is not as usual.
func (p *Packet) flags() string {
	var b strings.Builder
	h := p.BTH
	for _, f := range []struct {
		on   bool
		name string
	}{{h.SE, " se"}, {h.AckReq, " ackreq"}, {h.MigReq, " migreq"}, {h.FECN, " fecn"}, {h.BECN, " becn"}, {p.IP != nil && p.IP.ECN == 3, " ce"}} {
		if f.on {
			b.WriteString(f.name)
		}
	}
	if h.Pad != 0 {
		fmt.Fprintf(&b, " pad %d", h.Pad)
	}
	if h.PKey != 0xffff {
		fmt.Fprintf(&b, " pkey 0x%04x", h.PKey)
	}
	if h.TVer != 0 {
		fmt.Fprintf(&b, " tver %d", h.TVer)
	}
	if h.Resv6 != 0 || h.Resv7 != 0 {
		fmt.Fprintf(&b, " reserved 0x%02x 0x%02x", h.Resv6, h.Resv7)
	}
	return b.String()
}

// headers are the extension headers, in wire order.
func (p *Packet) headers() string {
	var b strings.Builder
	if h := p.RDETH; h != nil {
		fmt.Fprintf(&b, "  rdeth ee %d", h.EEContext)
	}
	if h := p.XRCETH; h != nil {
		fmt.Fprintf(&b, "  xrceth srq %d", h.SRQ)
	}
	if h := p.DETH; h != nil {
		fmt.Fprintf(&b, "  deth qkey 0x%08x src_qp 0x%06x", h.QKey, h.SrcQP)
	}
	if h := p.FETH; h != nil {
		fmt.Fprintf(&b, "  feth placement %d selectivity %d", h.Placement, h.Selectivity)
	}
	if h := p.RETH; h != nil {
		fmt.Fprintf(&b, "  reth va 0x%x rkey 0x%08x len %d", h.VA, h.RKey, h.DMALen)
	}
	if h := p.AtomicETH; h != nil {
		fmt.Fprintf(&b, "  atomiceth va 0x%x rkey 0x%08x swap_add 0x%x compare 0x%x", h.VA, h.RKey, h.SwapAdd, h.Compare)
	}
	if h := p.AETH; h != nil {
		fmt.Fprintf(&b, "  aeth %s msn %d", h.Text, h.MSN)
	}
	if h := p.AtomicAckETH; h != nil {
		fmt.Fprintf(&b, "  atomicacketh orig 0x%x", h.Orig)
	}
	if h := p.ImmDt; h != nil {
		fmt.Fprintf(&b, "  immdt 0x%08x", h.Imm)
	}
	if h := p.IETH; h != nil {
		fmt.Fprintf(&b, "  ieth rkey 0x%08x", h.RKey)
	}
	switch {
	case p.CM != nil:
		fmt.Fprintf(&b, "  cm %s", p.CM)
	case p.MAD != nil && p.MAD.AttributeName != "":
		fmt.Fprintf(&b, "  mad %s %s", p.MAD.ClassName, p.MAD.AttributeName)
	case p.MAD != nil:
		fmt.Fprintf(&b, "  mad %s", p.MAD)
	}
	return b.String()
}
