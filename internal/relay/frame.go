package relay

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// run is a received RoCEv2 frame: one packet, or several in a super-packet. It
// borrows the frame.
type run struct {
	frame    []byte
	ip       int    // offset of the IP header
	bth      int    // of the first BTH
	complete bool   // the UDP checksum has to be computed: it is missing, or that of a super-packet
	step     uint16 // by which the IPv4 identification grows from packet to packet
	wire.Datagram
}

// parse finds out whether a frame is RoCEv2. Whatever is not what Annex A17 says is
// not: fragments, IPv4 options, wrong lengths.
//
//gorxe:hot
func (r *run) parse(v vnet, frame []byte) bool {
	if wire.ParseFrame(frame, &r.Datagram) != trace.None || len(r.Payload) < bth.BTHLen+bth.ICRCLen {
		return false
	}
	r.frame, r.ip = frame, len(r.L2)
	r.bth = r.ip + wire.IPv6Len + wire.UDPLen
	if r.Src.Is4() {
		r.bth = r.ip + wire.IPv4Len + wire.UDPLen
	}
	r.complete, r.step = v.needsChecksum(), 0
	switch v.gso() {
	case gsoNone:
	case gsoUDPL4:
		seg := v.gsoSize()
		if seg < bth.BTHLen+bth.ICRCLen {
			return false
		}
		if seg < len(r.Payload) {
			r.SegLen = seg
			r.complete = r.complete || wire.UDP(frame[r.bth-wire.UDPLen:]).Checksum() != 0
			r.findStep()
		}
	default:
		return false
	}
	return true
}

// findStep finds out how the identifications of the packets go on. Segmentation
// counts them up, and so does who sealed them for it; but datagrams with DF that all
// have one identification may be merged too, and the ICRC tells.
func (r *run) findStep() {
	r.step = 1
	if !r.Src.Is4() {
		return
	}
	p := r.Segment(1)
	if len(p) < bth.BTHLen+bth.ICRCLen {
		return
	}
	body, want := p[:len(p)-bth.ICRCLen], binary.LittleEndian.Uint32(p[len(p)-bth.ICRCLen:])
	src, dst := netip.AddrPortFrom(r.Src, r.SrcPort), netip.AddrPortFrom(r.Dst, wire.Port)
	df := r.Flags&wire.FlagDF != 0
	if wire.ICRC(body, src, dst, r.ID+1, df) != want && wire.ICRC(body, src, dst, r.ID, df) == want {
		r.step = 0
	}
}

// whole reports whether segmentation by the kernel or a NIC gives the right packets.
func (r *run) whole() bool { return r.SegLen == 0 || r.step == 1 || !r.Src.Is4() }

// packet is a RoCEv2 packet in a frame of its own, as the wire has it.
type packet struct {
	frame []byte
	ip    int // offset of the IP header
	bth   int
	size  int   // octets of the IP packet
	at    int64 // when it came to where it is, or leaves
}

// cut sets p to packet i of the run.
//
//gorxe:hot
func (r *run) cut(p *packet, i int) {
	p.ip, p.bth = r.ip, r.bth
	p.frame = append(p.frame[:0], r.frame[:r.bth]...)
	pay := r.Segment(i)
	p.size = r.bth - r.ip + len(pay)
	if r.SegLen == 0 {
		p.frame = append(p.frame, r.frame[r.bth:]...) // with what pads the frame
	} else {
		p.frame = append(p.frame, pay...)
		p.resize(r.ID+uint16(i)*r.step, len(pay))
	}
	if r.complete {
		p.setChecksum()
	}
}

// resize sets lengths for so many octets of UDP payload.
func (p *packet) resize(id uint16, n int) {
	udp := wire.UDP(p.frame[p.bth-wire.UDPLen:])
	udp.SetLength(wire.UDPLen + n)
	if p.v4() {
		h := wire.IPv4(p.frame[p.ip:])
		h.SetTotalLen(wire.IPv4Len + wire.UDPLen + n)
		h.SetID(id)
		h.SetChecksum()
		return
	}
	wire.IPv6(p.frame[p.ip:]).SetPayloadLen(wire.UDPLen + n)
}

func (p *packet) v4() bool { return p.frame[p.ip]>>4 == 4 }

// roce returns the packet from BTH to ICRC.
func (p *packet) roce() []byte { return p.frame[p.bth : p.ip+p.size] }

// ect reports whether the packet's sender heeds marks. RFC 3168.
func (p *packet) ect() bool { return p.ecn() == wire.ECNECT0 || p.ecn() == wire.ECNECT1 }

func (p *packet) ecn() byte {
	if p.v4() {
		return p.frame[p.ip+1] & 3
	}
	return p.frame[p.ip+1] >> 4 & 3
}

// mark sets "congestion experienced". The ICRC does not cover it.
func (p *packet) mark() {
	if p.v4() {
		h := wire.IPv4(p.frame[p.ip:])
		h.SetTOS(h.TOS() | wire.ECNCE)
		h.SetChecksum()
		return
	}
	p.frame[p.ip+1] |= wire.ECNCE << 4
}

// setChecksum computes the UDP checksum. RFC 768, RFC 8200 section 8.1.
func (p *packet) setChecksum() {
	udp := wire.UDP(p.frame[p.bth-wire.UDPLen : p.ip+p.size])
	udp.SetChecksum(0)
	from, to := p.ip+8, p.ip+wire.IPv6Len
	if p.v4() {
		from, to = p.ip+12, p.ip+wire.IPv4Len
	}
	addrs := p.frame[from:to]
	s := add(add(uint64(wire.ProtoUDP)+uint64(len(udp)), addrs), udp)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	sum := ^uint16(s)
	if sum == 0 {
		sum = 0xffff // 0 says that there is none
	}
	udp.SetChecksum(sum)
}

// add adds the 16-bit words of b to a one's complement sum. RFC 1071: it may be done
// in longer words.
func add(s uint64, b []byte) uint64 {
	var c uint64
	for ; len(b) >= 8; b = b[8:] {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
	}
	s, c = bits.Add64(s, 0, c)
	s += c
	s = s>>32 + s&0xffffffff
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}
