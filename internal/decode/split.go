package decode

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/wire"
)

// run is a datagram whose ICRC is bad and that may hold several packets: what
// a capture on the sender sees of a burst that the kernel or the interface
// splits later (UDP segmentation offload). Each packet then gets the headers
// of the run with its own lengths and, over IPv4, the run's identification
// plus its number.
type run struct {
	ip, udp []byte // headers
	body    []byte // UDP payload
	partial bool   // the UDP checksum was left to whoever splits it
}

// maxPacket is the longest packet, BTH to ICRC, with room for any headers.
const maxPacket = 4096 + 128

// Packets explains a frame that may be a run: one packet for each segment, or
// the frame as Decode has it.
func Packets(f pcap.Frame) []*Packet {
	p := Decode(f)
	if p.run == nil {
		return []*Packet{p}
	}
	size, step := p.run.segment()
	if size == 0 {
		if p.run.partial || len(p.run.body) > maxPacket {
			p.Notes = append(p.Notes, "captured on the sender before it was finished, perhaps as several packets in one frame, but there is no length at which it splits into packets whose ICRC holds; capture on the receiver")
		}
		return []*Packet{p}
	}
	n := (len(p.run.body) + size - 1) / size
	out := make([]*Packet, n)
	for k := range out {
		pkt := p.run.packet(k, size, uint16(k)*step)
		q := &Packet{
			Frame: p.Frame, Time: p.Time, Len: p.Len - len(p.run.body) + min(size, len(p.run.body)-k*size), Protocol: Other,
			Comment: p.Comment, Eth: p.Eth, VLAN: p.VLAN, Segment: k + 1, Segments: n,
		}
		q.ip(pkt)
		q.verdict()
		q.Notes = append(q.Notes, fmt.Sprintf("segment %d of %d of one captured frame", k+1, n))
		out[k] = q
	}
	return out
}

// segment returns the length at which the run splits, 0 if at none, and what
// is added to the IPv4 identification from one segment to the next.
func (r *run) segment() (size int, step uint16) {
	const least = bth.BTHLen + bth.ICRCLen
	for size = least; size <= min(maxPacket, len(r.body)-least); size += 4 {
		if rest := len(r.body) % size; rest != 0 && (rest < least || rest%4 != 0) {
			continue
		}
		if !r.good(0, size, 0) {
			continue
		}
		if !r.good(1, size, 1) && r.good(1, size, 0) {
			return size, 0
		}
		return size, 1
	}
	return 0, 0
}

// good reports whether segment k holds the right ICRC.
func (r *run) good(k, size int, id uint16) bool {
	pkt := r.packet(k, size, id)
	n := len(r.ip)
	want, got := icrc(pseudo(nil, pkt[:n], pkt[n:n+wire.UDPLen]), pkt[n+wire.UDPLen:])
	return want == got
}

// packet returns segment k as an IP packet, with id added to its IPv4
// identification, and without a UDP checksum.
func (r *run) packet(k, size int, id uint16) []byte {
	body := r.body[k*size : min((k+1)*size, len(r.body))]
	b := make([]byte, 0, len(r.ip)+wire.UDPLen+len(body))
	b = append(append(append(b, r.ip...), r.udp...), body...)
	if b[0]>>4 == 4 {
		h := wire.IPv4(b)
		h.SetTotalLen(len(b))
		h.SetID(h.ID() + id)
		h.SetChecksum()
	} else {
		wire.IPv6(b).SetPayloadLen(wire.UDPLen + len(body))
	}
	u := wire.UDP(b[len(r.ip):])
	u.SetLength(wire.UDPLen + len(body))
	u.SetChecksum(0)
	return b
}
