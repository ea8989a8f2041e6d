package bth

import "github.com/gorxe/gorxe/trace"

// Packet is a decoded packet: what engines consume and what AppendHeaders
// produces. A field of an extension header is meaningful only when the
// opcode's Info.Ext holds that header. Payload is borrowed from the buffer
// that was parsed, for as long as that buffer is.
type Packet struct {
	Opcode Opcode
	SE     bool // solicited event
	MigReq bool
	AckReq bool
	FECN   bool
	BECN   bool
	Pad    uint8 // pad octets after the payload, 0 to 3
	TVer   uint8 // transport version
	PKey   uint16
	DestQP QPN
	PSN    PSN

	VA     uint64 // RETH, AtomicETH
	RKey   uint32 // RETH, AtomicETH
	DMALen uint32 // RETH

	SwapAdd uint64 // AtomicETH
	Compare uint64 // AtomicETH

	Syndrome Syndrome // AETH
	MSN      uint32   // AETH, 24 bits

	Orig uint64 // AtomicAckETH: the value before the operation
	Imm  uint32 // ImmDt, in host order
	Inv  uint32 // IETH: the key to invalidate

	QKey  uint32 // DETH
	SrcQP QPN    // DETH

	XRCSRQ uint32 // XRCETH
	EECtx  uint32 // RDETH

	FlushPlacement   uint8 // FETH
	FlushSelectivity uint8 // FETH

	// ECN is the two low bits of the IP traffic class, set by whoever parsed
	// the IP header: 3 is congestion experienced.
	ECN uint8

	// GRH is what a UD receive finds before its payload: the IPv6 header, or 20
	// octets of 0 and the IPv4 header (Annex A17.4.5.3). It is set by whoever
	// parsed the IP header, for packets of UD.
	GRH []byte

	// Payload excludes pad and ICRC.
	Payload []byte
}

// Info returns the row of the opcode table.
func (p *Packet) Info() *Info { return &table[p.Opcode] }

// Parse decodes the UDP payload of a RoCEv2 packet, BTH to ICRC, into p. It
// checks that every header the opcode calls for, the pad and the ICRC are
// there, and nothing else: the ICRC's value is the business of package wire,
// everything with a meaning that of an engine. It returns trace.None, or why
// the octets are not a packet; p is then undefined. It never panics.
//
//gorxe:hot
func Parse(b []byte, p *Packet) trace.Reason {
	if len(b) < BTHLen+ICRCLen {
		return trace.DropShort
	}
	h := BTH(b)
	info := h.Opcode().Info()
	if !info.Valid() {
		return trace.DropOpcode
	}
	pad := h.PadCount()
	end := len(b) - ICRCLen - pad
	if end < info.HdrLen {
		return trace.DropShort
	}
	if h.TVer() != 0 {
		return trace.DropTVer
	}
	*p = Packet{
		Opcode: h.Opcode(), SE: h.SE(), MigReq: h.MigReq(), AckReq: h.AckReq(), FECN: h.FECN(), BECN: h.BECN(),
		Pad: uint8(pad), PKey: h.PKey(), DestQP: h.DestQP(), PSN: h.PSN(),
		Payload: b[info.HdrLen:end:end],
	}
	if info.Ext != 0 {
		p.parseExt(info.Ext, b[BTHLen:info.HdrLen])
	}
	return trace.None
}

// parseExt reads the extension headers in wire order. b has their exact
// length: the caller checked it against the table, in which nothing follows
// AtomicETH, AtomicAckETH, ImmDt and IETH.
func (p *Packet) parseExt(ext Ext, b []byte) {
	if ext&ExtRDETH != 0 {
		p.EECtx, b = RDETH(b).EEContext(), b[RDETHLen:]
	}
	if ext&ExtXRCETH != 0 {
		p.XRCSRQ, b = XRCETH(b).SRQ(), b[XRCETHLen:]
	}
	if ext&ExtDETH != 0 {
		p.QKey, p.SrcQP, b = DETH(b).QKey(), DETH(b).SrcQP(), b[DETHLen:]
	}
	if ext&ExtFETH != 0 {
		p.FlushPlacement, p.FlushSelectivity, b = FETH(b).Placement(), FETH(b).Selectivity(), b[FETHLen:]
	}
	if ext&ExtRETH != 0 {
		h := RETH(b)
		p.VA, p.RKey, p.DMALen, b = h.VA(), h.RKey(), h.DMALen(), b[RETHLen:]
	}
	if ext&ExtAtomicETH != 0 {
		h := AtomicETH(b)
		p.VA, p.RKey, p.SwapAdd, p.Compare = h.VA(), h.RKey(), h.SwapAdd(), h.Compare()
	}
	if ext&ExtAETH != 0 {
		p.Syndrome, p.MSN, b = AETH(b).Syndrome(), AETH(b).MSN(), b[AETHLen:]
	}
	if ext&ExtAtomicAckETH != 0 {
		p.Orig = AtomicAckETH(b).Orig()
	}
	if ext&ExtImmDt != 0 {
		p.Imm = ImmDt(b).Imm()
	}
	if ext&ExtIETH != 0 {
		p.Inv = IETH(b).RKey()
	}
}

// PutBTH encodes what PutHeaders would of a packet with no more than a base
// transport header, of the default partition, of which only this much is to be
// said. It is what most packets of a long message are.
//
// Preconditions: len(b) >= BTHLen.
//
//gorxe:hot
func PutBTH(b []byte, op Opcode, pad uint8, se, ack bool, to QPN, psn PSN) {
	flags := uint32(pad&3)<<20 | 0x40ffff // MigReq; P_Key 0xffff
	if se {
		flags |= 0x800000
	}
	last := psn.v
	if ack {
		last |= 0x80000000
	}
	_ = b[BTHLen-1]
	be.PutUint32(b, uint32(op)<<24|flags)
	be.PutUint32(b[4:], uint32(to)&QPNMask)
	be.PutUint32(b[8:], last)
}

// PutHeaders encodes BTH and extension headers into b, whose length must be
// p.Info().HdrLen or more, and returns how many octets it wrote. It writes
// every octet of them. Payload, pad and ICRC are the caller's.
//
// Preconditions: the opcode is in the table.
//
//gorxe:hot
func (p *Packet) PutHeaders(b []byte) int {
	info := p.Info()
	b = b[:info.HdrLen]
	flags := p.Pad&3<<4 | p.TVer&0x0f
	if p.SE {
		flags |= 0x80
	}
	if p.MigReq {
		flags |= 0x40
	}
	var ecn, ack byte
	if p.FECN {
		ecn |= 0x80
	}
	if p.BECN {
		ecn |= 0x40
	}
	if p.AckReq {
		ack = 0x80
	}
	b[0], b[1], b[2], b[3] = byte(p.Opcode), flags, byte(p.PKey>>8), byte(p.PKey)
	be.PutUint32(b[4:], uint32(p.DestQP)&QPNMask|uint32(ecn)<<24)
	be.PutUint32(b[8:], p.PSN.v|uint32(ack)<<24)
	if info.HdrLen > BTHLen {
		p.putExt(info.Ext, b[BTHLen:])
	}
	return info.HdrLen
}

func (p *Packet) putExt(ext Ext, b []byte) {
	clear(b) // reserved octets are sent as 0
	if ext&ExtRDETH != 0 {
		RDETH(b).SetEEContext(p.EECtx)
		b = b[RDETHLen:]
	}
	if ext&ExtXRCETH != 0 {
		XRCETH(b).SetSRQ(p.XRCSRQ)
		b = b[XRCETHLen:]
	}
	if ext&ExtDETH != 0 {
		DETH(b).SetQKey(p.QKey)
		DETH(b).SetSrcQP(p.SrcQP)
		b = b[DETHLen:]
	}
	if ext&ExtFETH != 0 {
		FETH(b).SetPlacement(p.FlushPlacement)
		FETH(b).SetSelectivity(p.FlushSelectivity)
		b = b[FETHLen:]
	}
	if ext&ExtRETH != 0 {
		RETH(b).SetVA(p.VA)
		RETH(b).SetRKey(p.RKey)
		RETH(b).SetDMALen(p.DMALen)
		b = b[RETHLen:]
	}
	if ext&ExtAtomicETH != 0 {
		h := AtomicETH(b)
		h.SetVA(p.VA)
		h.SetRKey(p.RKey)
		h.SetSwapAdd(p.SwapAdd)
		h.SetCompare(p.Compare)
	}
	if ext&ExtAETH != 0 {
		AETH(b).SetSyndrome(p.Syndrome)
		AETH(b).SetMSN(p.MSN)
		b = b[AETHLen:]
	}
	if ext&ExtAtomicAckETH != 0 {
		AtomicAckETH(b).SetOrig(p.Orig)
	}
	if ext&ExtImmDt != 0 {
		ImmDt(b).SetImm(p.Imm)
	}
	if ext&ExtIETH != 0 {
		IETH(b).SetRKey(p.Inv)
	}
}
