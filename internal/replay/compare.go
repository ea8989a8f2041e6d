package replay

import (
	"bytes"
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/transport"
)

// Allowed is what may differ between two implementations that both follow the
// specification: the closed list. The UDP source port and the identification of
// IPv4 belong to it too; an engine has neither, so they are never compared.
type Allowed uint8

const (
	// CreditCode: how many receive requests an ACK offers.
	CreditCode Allowed = iota
	// AckPSN: which of several legal PSNs an ACK names: any that is received,
	// with the MSN that the responder has reached.
	AckPSN
	// Coalescing: an ACK that one side sent and the other left to a later
	// response, or did not find worth repeating.
	Coalescing
	// ReadRestart: a READ asked for again from its middle is answered like a
	// new one (FIRST, ONLY) or as the rest of the old one (MIDDLE, LAST).
	ReadRestart
	// MigReq: the migration bit.
	MigReq
	numAllowed
)

var allowedNames = [numAllowed]string{"credit code", "ACK PSN", "ACK coalescing", "READ restart FIRST or MIDDLE", "MigReq"}

func (a Allowed) String() string { return allowedNames[a] }

// context is what a comparison must know of the engine and of the capture.
type context struct {
	msn       int     // added to the engine's MSN
	expected  bth.PSN // the PSN that the engine expects next
	completed int     // messages it has completed
	peer      bth.QPN // where the engine's packets go
	restarted bool    // theirs answers a READ from its middle
}

// compare holds the engine's packet to the recorded one of the same kind. It
// returns what differs although it may, and what differs and may not, in words.
func compare(ours, theirs *bth.Packet, c context) (allowed []Allowed, diffs []string) {
	diff := func(name string, o, t any) {
		if o != t {
			diffs = append(diffs, fmt.Sprintf("%s: ours %v, theirs %v", name, o, t))
		}
	}
	ti := theirs.Info()
	restart := c.restarted && sameRestart(ours, theirs)
	if restart {
		if ours.Opcode != theirs.Opcode {
			allowed = append(allowed, ReadRestart)
		}
	} else {
		diff("opcode", ours.Opcode, theirs.Opcode)
	}
	ack := ours.Info().Op == bth.OpAck && ti.Op == bth.OpAck && ours.Syndrome.Kind() == bth.KindAck && theirs.Syndrome.Kind() == bth.KindAck
	switch {
	case ours.PSN == theirs.PSN:
	case ack && theirs.PSN.Before(c.expected):
		allowed = append(allowed, AckPSN)
	default:
		diff("PSN", ours.PSN, theirs.PSN)
	}
	if ours.MigReq != theirs.MigReq {
		allowed = append(allowed, MigReq)
	}
	diff("solicited event", ours.SE, theirs.SE)
	diff("AckReq", ours.AckReq, theirs.AckReq)
	diff("FECN", ours.FECN, theirs.FECN)
	diff("BECN", ours.BECN, theirs.BECN)
	diff("pad", ours.Pad, theirs.Pad)
	diff("P_Key", ours.PKey, theirs.PKey)
	diff("destination QP", ours.DestQP, theirs.DestQP)
	ext := ours.Info().Ext & ti.Ext
	if ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 {
		diff("address", fmt.Sprintf("%#x", ours.VA), fmt.Sprintf("%#x", theirs.VA))
		diff("R_Key", fmt.Sprintf("%#08x", ours.RKey), fmt.Sprintf("%#08x", theirs.RKey))
	}
	if ext&bth.ExtRETH != 0 {
		diff("DMA length", ours.DMALen, theirs.DMALen)
	}
	if ext&bth.ExtAtomicETH != 0 {
		diff("swap or add", ours.SwapAdd, theirs.SwapAdd)
		diff("compare", ours.Compare, theirs.Compare)
	}
	if ext&bth.ExtAETH != 0 {
		o, t := ours.Syndrome, theirs.Syndrome
		if o != t {
			if o.Kind() == bth.KindAck && t.Kind() == bth.KindAck && t&0x80 == 0 {
				allowed = append(allowed, CreditCode)
			} else {
				diff("syndrome", o, t)
			}
		}
		diff("MSN", (ours.MSN+uint32(c.msn))&bth.PSNMask, theirs.MSN)
	}
	if ext&bth.ExtAtomicAckETH != 0 {
		diff("original value", fmt.Sprintf("%#x", ours.Orig), fmt.Sprintf("%#x", theirs.Orig))
	}
	if ext&bth.ExtImmDt != 0 {
		diff("immediate", fmt.Sprintf("%#08x", ours.Imm), fmt.Sprintf("%#08x", theirs.Imm))
	}
	if ext&bth.ExtIETH != 0 {
		diff("key to invalidate", fmt.Sprintf("%#08x", ours.Inv), fmt.Sprintf("%#08x", theirs.Inv))
	}
	if !bytes.Equal(ours.Payload, theirs.Payload) {
		diffs = append(diffs, payloadDiff(ours.Payload, theirs.Payload))
	}
	return allowed, diffs
}

// sameRestart reports whether two READ responses say the same, one as a new
// READ and one as the rest of an old one: neither or both end it.
func sameRestart(a, b *bth.Packet) bool {
	if a.Info().Op != bth.OpReadResp || b.Info().Op != bth.OpReadResp {
		return false
	}
	return a.Info().Has(bth.Ends) == b.Info().Has(bth.Ends)
}

// payloadDiff says where two payloads begin to differ.
func payloadDiff(ours, theirs []byte) string {
	if len(ours) != len(theirs) {
		return fmt.Sprintf("payload: ours %d octets, theirs %d", len(ours), len(theirs))
	}
	n, first := 0, 0
	for i := range ours {
		if ours[i] != theirs[i] {
			if n++; n == 1 {
				first = i
			}
		}
	}
	return fmt.Sprintf("payload: %d of %d octets, from octet %d: ours %02x, theirs %02x", n, len(ours), first, ours[first], theirs[first])
}

// spare reports whether the engine might as well have sent a recorded ACK that
// it did not: it is of what the engine received, with the MSN it reached, and in
// all else an ACK of the engine's.
func spare(theirs *bth.Packet, c context) bool {
	if theirs.Info().Op != bth.OpAck || theirs.Syndrome.Kind() != bth.KindAck || !theirs.PSN.Before(c.expected) {
		return false
	}
	ours := bth.Packet{
		Opcode: bth.RCAck, MigReq: true, PKey: transport.PKey, DestQP: c.peer, PSN: theirs.PSN,
		Syndrome: bth.AckUnlimited, MSN: uint32(c.completed),
	}
	_, diffs := compare(&ours, theirs, c)
	return len(diffs) == 0
}

// text is a packet in words, as short as it can be told.
func text(p *bth.Packet) string {
	if p == nil {
		return "-"
	}
	s := fmt.Sprintf("%v psn %v", p.Opcode, p.PSN)
	ext := p.Info().Ext
	if p.AckReq {
		s += " ackreq"
	}
	if p.SE {
		s += " se"
	}
	if ext&bth.ExtRETH != 0 {
		s += fmt.Sprintf(" va %#x len %d", p.VA, p.DMALen)
	}
	if ext&bth.ExtAtomicETH != 0 {
		s += fmt.Sprintf(" va %#x", p.VA)
	}
	if ext&bth.ExtAETH != 0 {
		s += fmt.Sprintf(" %v msn %d", p.Syndrome, p.MSN)
	}
	if ext&bth.ExtAtomicAckETH != 0 {
		s += fmt.Sprintf(" orig %#x", p.Orig)
	}
	if ext&bth.ExtImmDt != 0 {
		s += fmt.Sprintf(" imm %#x", p.Imm)
	}
	if len(p.Payload) > 0 {
		s += fmt.Sprintf(" data %d", len(p.Payload))
	}
	return s
}
