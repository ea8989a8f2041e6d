package script

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// field is a number in a packet that scripts name.
type field struct {
	name string
	kind fieldKind
	bits int
	get  func(p *bth.Packet) uint64
	set  func(p *bth.Packet, v uint64)
}

type fieldKind uint8

const (
	plain    fieldKind = iota
	sequence           // shifted with all PSNs
	address            // a place
	key                // a region's key
)

// fields are in the order in which packets are printed.
var fields = []field{
	{"psn", sequence, 24, func(p *bth.Packet) uint64 { return uint64(p.PSN.Uint32()) }, func(p *bth.Packet, v uint64) { p.PSN = bth.MakePSN(uint32(v)) }},
	{"dest", plain, 24, func(p *bth.Packet) uint64 { return uint64(p.DestQP) }, func(p *bth.Packet, v uint64) { p.DestQP = bth.QPN(v) }},
	{"pkey", plain, 16, func(p *bth.Packet) uint64 { return uint64(p.PKey) }, func(p *bth.Packet, v uint64) { p.PKey = uint16(v) }},
	{"tver", plain, 4, func(p *bth.Packet) uint64 { return uint64(p.TVer) }, func(p *bth.Packet, v uint64) { p.TVer = uint8(v) }},
	{"pad", plain, 2, func(p *bth.Packet) uint64 { return uint64(p.Pad) }, func(p *bth.Packet, v uint64) { p.Pad = uint8(v) }},
	{"migreq", plain, 1, func(p *bth.Packet) uint64 { return bit(p.MigReq) }, func(p *bth.Packet, v uint64) { p.MigReq = v != 0 }},
	{"va", address, 64, func(p *bth.Packet) uint64 { return p.VA }, func(p *bth.Packet, v uint64) { p.VA = v }},
	{"rkey", key, 32, func(p *bth.Packet) uint64 { return uint64(p.RKey) }, func(p *bth.Packet, v uint64) { p.RKey = uint32(v) }},
	{"dma", plain, 32, func(p *bth.Packet) uint64 { return uint64(p.DMALen) }, func(p *bth.Packet, v uint64) { p.DMALen = uint32(v) }},
	{"add", plain, 64, func(p *bth.Packet) uint64 { return p.SwapAdd }, func(p *bth.Packet, v uint64) { p.SwapAdd = v }},
	{"swap", plain, 64, func(p *bth.Packet) uint64 { return p.SwapAdd }, func(p *bth.Packet, v uint64) { p.SwapAdd = v }},
	{"compare", plain, 64, func(p *bth.Packet) uint64 { return p.Compare }, func(p *bth.Packet, v uint64) { p.Compare = v }},
	{"syndrome", plain, 8, func(p *bth.Packet) uint64 { return uint64(p.Syndrome) }, func(p *bth.Packet, v uint64) { p.Syndrome = bth.Syndrome(v) }},
	{"msn", plain, 24, func(p *bth.Packet) uint64 { return uint64(p.MSN) }, func(p *bth.Packet, v uint64) { p.MSN = uint32(v) }},
	{"orig", plain, 64, func(p *bth.Packet) uint64 { return p.Orig }, func(p *bth.Packet, v uint64) { p.Orig = v }},
	{"imm", plain, 32, func(p *bth.Packet) uint64 { return uint64(p.Imm) }, func(p *bth.Packet, v uint64) { p.Imm = uint32(v) }},
	{"inv", key, 32, func(p *bth.Packet) uint64 { return uint64(p.Inv) }, func(p *bth.Packet, v uint64) { p.Inv = uint32(v) }},
	{"qkey", plain, 32, func(p *bth.Packet) uint64 { return uint64(p.QKey) }, func(p *bth.Packet, v uint64) { p.QKey = uint32(v) }},
	{"srcqp", plain, 24, func(p *bth.Packet) uint64 { return uint64(p.SrcQP) }, func(p *bth.Packet, v uint64) { p.SrcQP = bth.QPN(v) }},
}

// noSequence is the PSN of a packet outside of any sequence: it is not shifted.
var noSequence = field{"psn", plain, 24, fields[0].get, fields[0].set}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// fieldNamed returns the field, which must exist.
func fieldNamed(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	panic("script: no field " + name)
}

// setting is a field and what it is to be.
type setting struct {
	*field
	v place // of any kind: a number is a place in no region
}

// packet is a packet as a script describes it.
type packet struct {
	op       bth.Opcode
	settings []setting
	ackKind  bool // an AETH that only has to acknowledge
	rnrKind  bool // an AETH that only has to say RNR
	data     []byte
	hasData  bool // data are compared
	hasLen   bool // its length is
	ack, se  bool
	fecn     bool
	becn     bool
	reserved bool
	cut      int
	icrc     uint32 // differs from the right one in these bits
	from, to netip.Addr
	ecn      uint8
	dscp     uint8
	hasECN   bool // they are compared
	hasDSCP  bool
}

// fillOctet is what len=n means.
const fillOctet = 0x5a

// syndromes are the names of ACKs that say no.
var syndromes = []struct {
	name string
	s    bth.Syndrome
}{
	{"NAK_SEQ", bth.NAKSequence},
	{"NAK_INV", bth.NAKInvalidRequest},
	{"NAK_ACCESS", bth.NAKRemoteAccess},
	{"NAK_OP", bth.NAKRemoteOperational},
}

// parsePacket reads an opcode and fields.
func (c *parser) parsePacket(a *args, inbound bool) *packet {
	p := &packet{}
	name := a.next("an opcode")
	set := func(name string, v uint64) { p.settings = append(p.settings, setting{fieldNamed(name), place{off: v}}) }
	known := false
	for _, s := range syndromes {
		if name == s.name {
			p.op, known = bth.RCAck, true
			set("syndrome", uint64(s.s))
		}
	}
	if name == "RNR_NAK" {
		p.op, known, p.rnrKind = bth.RCAck, true, true
		timer, ok := a.num("timer", 5)
		if ok || inbound {
			set("syndrome", uint64(bth.RNRNAK(uint8(timer))))
		}
	}
	if !known {
		p.op = c.parseOpcode(a, name)
		if n, ok := a.num("credits", 31); ok {
			s := bth.AckCredits(int(n))
			if exact, _ := s.Credits(); exact != int(n) {
				a.fail("credits=%d: there is no code for this count; the next below is %d", n, exact)
			}
			set("syndrome", uint64(s))
		}
	}
	for i := range fields {
		f := &fields[i]
		s, ok := a.str(f.name)
		if !ok {
			continue
		}
		v, err := parsePlace(s)
		switch {
		case err != nil:
			a.fail("%s=%s: %v", f.name, s, err)
		case v.region != "" && f.kind != address && f.kind != key:
			a.fail("%s=%s: not a number", f.name, s)
		case v.region == "" && f.bits < 64 && v.off>>f.bits != 0:
			a.fail("%s=%s: the field has %d bits", f.name, s, f.bits)
		}
		if f.kind == key {
			c.needKey(a, v)
		} else {
			c.needRegion(a, v)
		}
		if p.op == bth.CNP && f.kind == sequence {
			f = &noSequence
		}
		p.settings = append(p.settings, setting{f, v})
	}
	if n, ok := a.num("len", 20); ok {
		p.data, p.hasLen = make([]byte, n), true
		for i := range p.data {
			p.data[i] = fillOctet
		}
	}
	if b, ok := a.bytes("data"); ok {
		if p.hasLen && len(b) != len(p.data) {
			a.fail("data are %d octets, len says %d", len(b), len(p.data))
		}
		p.data, p.hasData, p.hasLen = b, true, true
	}
	p.ack, p.se, p.fecn, p.becn = a.flag("ack"), a.flag("se"), a.flag("fecn"), a.flag("becn")
	ecn, dscp := a.count("ecn", -1, wire.ECNCE), a.count("dscp", -1, 63)
	p.ecn, p.hasECN = uint8(max(0, ecn)), ecn >= 0
	p.dscp, p.hasDSCP = uint8(max(0, dscp)), dscp >= 0
	if (p.hasECN || p.hasDSCP) && !inbound && !c.s.setup.Device {
		a.fail("only a device has IP headers: qp ... device")
	}
	if inbound {
		p.reserved, p.cut = a.flag("reserved"), a.count("cut", 0, maxBytes)
		n, _ := a.num("icrc", 32)
		p.icrc = uint32(n)
		p.from, p.to = a.addr("from"), a.addr("to")
	}
	if info := p.op.Info(); info.Ext&bth.ExtAETH != 0 && !p.rnrKind && !p.names("syndrome") {
		p.ackKind = true
	}
	return p
}

func (c *parser) parseOpcode(a *args, name string) bth.Opcode {
	if name == "" {
		return 0
	}
	if name[0] >= '0' && name[0] <= '9' {
		v, err := parsePlace(name)
		if err != nil || v.off > 255 {
			a.fail("%s is not an opcode", name)
		}
		return bth.Opcode(v.off)
	}
	class := "RC"
	if c.s.setup.Type != 0 {
		class = c.s.setup.Type.String()
	}
	for _, n := range []string{class + "_" + name, name} {
		if op, ok := bth.LookupOpcode(n); ok {
			return op
		}
	}
	a.fail("there is no opcode %s; they are spelled like SEND_ONLY_IMM, READ_REQ or, of another service, UD_SEND_ONLY", name)
	return 0
}

func (p *packet) names(field string) bool {
	for _, s := range p.settings {
		if s.name == field {
			return true
		}
	}
	return false
}

// datagram returns a packet that arrives, from where the queue pair sends to,
// unless it says otherwise.
func (r *runner) datagram(p *packet) *wire.Datagram {
	f := r.setup.Flow
	d := &wire.Datagram{
		Src: f.Dst, Dst: f.Src, SrcPort: f.SrcPort, TOS: p.dscp<<2 | p.ecn, TTL: f.TTL, IDKnown: true, Flags: wire.FlagDF, Payload: r.encode(p),
	}
	if p.from.IsValid() {
		d.Src = p.from
	}
	if p.to.IsValid() {
		d.Dst = p.to
	}
	return d
}

// encode returns the octets of a packet that arrives, BTH to ICRC; in the place
// of that is what is to be wrong with it.
func (r *runner) encode(p *packet) []byte {
	info := p.op.Info()
	q := bth.Packet{
		Opcode: p.op, MigReq: true, PKey: verbs.DefaultPKey, DestQP: r.setup.QPN, SrcQP: bth.QPN(r.s.attr.DestQPN), QKey: r.s.attr.QKey,
		AckReq: p.ack, SE: p.se, FECN: p.fecn, BECN: p.becn, Pad: uint8(-len(p.data) & 3), Syndrome: bth.AckUnlimited,
		DMALen: uint32(len(p.data)),
	}
	if m := r.regions["m"]; m != nil {
		q.VA, q.RKey = m.IOVA, m.Key
	}
	for _, s := range p.settings {
		s.set(&q, r.value(s))
	}
	if q.DestQP == r.s.setup.QPN { // the script's name for it
		q.DestQP = r.setup.QPN
	}
	n := bth.BTHLen
	if info.Valid() {
		n = info.HdrLen
	} else {
		q.Opcode = bth.RCSendOnly
	}
	b := make([]byte, n+len(p.data)+int(q.Pad)+bth.ICRCLen)
	q.PutHeaders(b)
	b[0] = byte(p.op)
	if p.reserved {
		b[4] |= 0x3f
		b[8] |= 0x7f
	}
	copy(b[n:], p.data)
	binary.LittleEndian.PutUint32(b[len(b)-bth.ICRCLen:], p.icrc)
	return b[:max(0, len(b)-p.cut)]
}

// value is what a field is to be in this run.
func (r *runner) value(s setting) uint64 {
	switch s.kind {
	case sequence:
		return uint64(r.psn(uint32(s.v.off)).Uint32())
	case address:
		return r.addr(s.v)
	case key:
		return uint64(r.key(s.v))
	}
	if own := uint64(r.s.setup.QPN); s.name == "srcqp" && s.v.off == own {
		return uint64(r.setup.QPN)
	}
	return s.v.off
}

// diff says how a packet that was sent differs from what the script expects, or
// returns "".
func (r *runner) diff(want *packet, got *bth.Packet) string {
	var out []string
	say := func(format string, v ...any) { out = append(out, fmt.Sprintf(format, v...)) }
	if got.Opcode != want.op {
		return fmt.Sprintf("opcode is %v", got.Opcode)
	}
	always := []setting{
		{fieldNamed("pkey"), place{off: verbs.DefaultPKey}},
		{fieldNamed("tver"), place{}},
		{fieldNamed("pad"), place{off: uint64(-len(got.Payload) & 3)}},
	}
	if r.setup.Type != verbs.UD {
		always = append(always, setting{fieldNamed("dest"), place{off: uint64(r.s.attr.DestQPN)}})
	}
	for _, s := range append(always, want.settings...) {
		if g, w := s.get(got), r.value(s); g != w {
			say("%s is %s, not %s", s.name, r.show(s.field, g), r.show(s.field, w))
		}
	}
	if k := got.Syndrome.Kind(); want.ackKind && k != bth.KindAck || want.rnrKind && k != bth.KindRNR {
		say("syndrome is %v", got.Syndrome)
	}
	switch {
	case want.hasLen && len(got.Payload) != len(want.data):
		say("payload is %d octets, not %d", len(got.Payload), len(want.data))
	case want.hasData && string(got.Payload) != string(want.data):
		say("payload differs: %s", firstDiff(got.Payload, want.data))
	}
	for _, f := range []struct {
		name      string
		got, want bool
	}{{"ack", got.AckReq, want.ack}, {"se", got.SE, want.se}, {"fecn", got.FECN, want.fecn}, {"becn", got.BECN, want.becn}} {
		if f.got != f.want {
			say("%s is %v", f.name, f.got)
		}
	}
	return strings.Join(out, ", ")
}

// firstDiff says where octets of the same number differ.
func firstDiff(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("octet %d is %02x, not %02x", i, got[i], want[i])
		}
	}
	return ""
}

// show prints a field's value as a script has it.
func (r *runner) show(f *field, v uint64) string {
	switch f.kind {
	case sequence:
		return fmt.Sprint(bth.MakePSN(uint32(v)).Add(-int(r.shift)).Uint32())
	case address:
		for name, g := range r.regions {
			if off := v - g.IOVA; off <= uint64(len(g.Mem)) {
				return fmt.Sprintf("%s+%d", name, off)
			}
		}
		return fmt.Sprintf("%#x", v)
	case key:
		for name, g := range r.regions {
			if uint64(g.Key) == v {
				return name
			}
		}
		for name, w := range r.windows {
			if uint64(w.Key) == v {
				return name
			}
		}
		return fmt.Sprintf("%#x", v)
	}
	switch f.name {
	case "pkey", "dest", "syndrome", "orig", "add", "swap", "compare", "imm", "qkey", "srcqp":
		return fmt.Sprintf("%#x", v)
	}
	return fmt.Sprint(v)
}

// text prints the octets of a packet as a script would have it.
func (r *runner) text(b []byte) string {
	var p bth.Packet
	if why := bth.Parse(b, &p); why != trace.None {
		return fmt.Sprintf("%d octets % x: %v", len(b), b[:min(len(b), 16)], why)
	}
	info := p.Info()
	name := strings.TrimPrefix(p.Opcode.String(), r.setup.Type.String()+"_")
	names := []string{"psn"}
	switch {
	case p.Opcode == bth.RCAck && p.Syndrome.Kind() == bth.KindRNR && p.Syndrome < 0x80:
		name = fmt.Sprintf("RNR_NAK timer=%d", p.Syndrome.Code())
	case info.Ext&bth.ExtAETH != 0:
		known := p.Syndrome == bth.AckUnlimited
		for _, s := range syndromes {
			if p.Opcode == bth.RCAck && p.Syndrome == s.s {
				name, known = s.name, true
			}
		}
		if n, ok := p.Syndrome.Credits(); ok {
			name = fmt.Sprintf("%s credits=%d", name, n)
		} else if !known {
			names = append(names, "syndrome")
		}
	}
	for _, e := range []struct {
		ext  bth.Ext
		name []string
	}{
		{bth.ExtRETH, []string{"va", "rkey", "dma"}},
		{bth.ExtAtomicETH, []string{"va", "rkey", "swap", "compare"}},
		{bth.ExtAETH, []string{"msn"}},
		{bth.ExtAtomicAckETH, []string{"orig"}},
		{bth.ExtImmDt, []string{"imm"}},
		{bth.ExtIETH, []string{"inv"}},
		{bth.ExtDETH, []string{"qkey", "srcqp"}},
	} {
		if info.Ext&e.ext != 0 {
			names = append(names, e.name...)
		}
	}
	out := []string{name}
	for _, n := range names {
		f := fieldNamed(n)
		if p.Opcode == bth.CNP {
			f = &noSequence
		}
		out = append(out, n+"="+r.show(f, f.get(&p)))
	}
	if len(p.Payload) > 0 || info.Has(bth.HasPayload) {
		out = append(out, fmt.Sprintf("len=%d", len(p.Payload)))
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"ack", p.AckReq}, {"se", p.SE}, {"fecn", p.FECN}, {"becn", p.BECN}} {
		if f.on {
			out = append(out, f.name)
		}
	}
	return strings.Join(out, " ")
}
