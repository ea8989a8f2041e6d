package decode

import (
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
)

// Protocols of a Packet.
const (
	RoCEv2     = "rocev2"
	RoCEv1     = "rocev1"
	InfiniBand = "infiniband"
	Other      = "other" // none of them: Reason says why
)

// Packet is a decoded frame. Its JSON form is one line of rxe decode --json;
// a header that the frame does not hold is nil, and absent there. Numbers are
// JSON numbers, also those of 64 bits; addresses, GIDs and GUIDs are strings.
type Packet struct {
	Frame    int       `json:"frame"`
	Time     time.Time `json:"time,omitzero"`
	Len      int       `json:"len"`                // octets on the wire
	Captured int       `json:"captured,omitempty"` // octets in the file, when fewer
	Segment  int       `json:"segment,omitempty"`  // from 1, of the frame's Segments, when it holds several packets
	Segments int       `json:"segments,omitempty"`
	Protocol string    `json:"protocol"`

	Src    string  `json:"src,omitempty"` // IP address or GID, LID, MAC: the outermost that routes
	Dst    string  `json:"dst,omitempty"`
	Opcode string  `json:"opcode,omitempty"` // as bth.Opcode names it
	DestQP *uint32 `json:"dest_qp,omitempty"`
	PSN    *uint32 `json:"psn,omitempty"`
	// PayloadLen is without pad and ICRC.
	PayloadLen *int `json:"payload_len,omitempty"`

	// ICRC is "ok" or "bad", and empty where there is none to check: another
	// protocol, or a frame that was cut short. The other two, in wire order,
	// are set when it is bad.
	ICRC         string `json:"icrc,omitempty"`
	ICRCStored   string `json:"icrc_stored,omitempty"`
	ICRCComputed string `json:"icrc_computed,omitempty"`

	// Reason is the first thing that is wrong, by its counter name, and Why
	// says it in words. Notes are worth knowing but wrong for nobody.
	Reason string   `json:"reason,omitempty"`
	Why    string   `json:"why,omitempty"`
	Notes  []string `json:"notes,omitempty"`

	Comment string `json:"comment,omitempty"` // of the capture, about this frame

	Eth          *Eth          `json:"eth,omitempty"`
	VLAN         []VLAN        `json:"vlan,omitempty"`
	LRH          *LRH          `json:"lrh,omitempty"`
	IP           *IP           `json:"ip,omitempty"`
	GRH          *GRH          `json:"grh,omitempty"`
	UDP          *UDP          `json:"udp,omitempty"`
	BTH          *BTH          `json:"bth,omitempty"`
	RDETH        *RDETH        `json:"rdeth,omitempty"`
	XRCETH       *XRCETH       `json:"xrceth,omitempty"`
	DETH         *DETH         `json:"deth,omitempty"`
	FETH         *FETH         `json:"feth,omitempty"`
	RETH         *RETH         `json:"reth,omitempty"`
	AtomicETH    *AtomicETH    `json:"atomiceth,omitempty"`
	AETH         *AETH         `json:"aeth,omitempty"`
	AtomicAckETH *AtomicAckETH `json:"atomicacketh,omitempty"`
	ImmDt        *ImmDt        `json:"immdt,omitempty"`
	IETH         *IETH         `json:"ieth,omitempty"`
	MAD          *MAD          `json:"mad,omitempty"`
	CM           CM            `json:"cm,omitempty"`

	// Payload is without pad and ICRC, and shorter than PayloadLen when the
	// frame was cut short. It aliases the frame.
	Payload []byte `json:"-"`

	run *run // when the frame may hold several packets
}

// Eth is an Ethernet header; the type is the one after any VLAN tags.
type Eth struct {
	Dst  string `json:"dst"`
	Src  string `json:"src"`
	Type uint16 `json:"type"`
}

// VLAN is an 802.1Q or 802.1ad tag.
type VLAN struct {
	TPID uint16 `json:"tpid"`
	ID   uint16 `json:"id"`
	PCP  uint8  `json:"pcp"`
	DEI  bool   `json:"dei"`
}

// IP is an IPv4 or IPv6 header. ID, DF and Checksum are IPv4's, FlowLabel is
// IPv6's. Len is the total length of IPv4, the payload length of IPv6.
type IP struct {
	Version   uint8   `json:"version"`
	Src       string  `json:"src"`
	Dst       string  `json:"dst"`
	DSCP      uint8   `json:"dscp"`
	ECN       uint8   `json:"ecn"`
	TTL       uint8   `json:"ttl"` // or hop limit
	Protocol  uint8   `json:"protocol"`
	Len       int     `json:"len"`
	ID        *uint16 `json:"id,omitempty"`
	DF        *bool   `json:"df,omitempty"`
	Checksum  *uint16 `json:"checksum,omitempty"`
	FlowLabel *uint32 `json:"flow_label,omitempty"`
}

// UDP is a UDP header.
type UDP struct {
	SrcPort  uint16 `json:"src_port"`
	DstPort  uint16 `json:"dst_port"`
	Len      int    `json:"len"`
	Checksum uint16 `json:"checksum"`
}

// LRH is an InfiniBand local route header. IBA 7.7. Len is in octets, from
// the LRH to the ICRC.
type LRH struct {
	VL      uint8  `json:"vl"`
	Version uint8  `json:"version"`
	SL      uint8  `json:"sl"`
	LNH     uint8  `json:"lnh"`
	DLID    uint16 `json:"dlid"`
	SLID    uint16 `json:"slid"`
	Len     int    `json:"len"`
}

// GRH is a global route header. IBA 8.3.
type GRH struct {
	Version      uint8  `json:"version"`
	TrafficClass uint8  `json:"traffic_class"`
	FlowLabel    uint32 `json:"flow_label"`
	Len          int    `json:"len"`
	NextHeader   uint8  `json:"next_header"`
	HopLimit     uint8  `json:"hop_limit"`
	SGID         string `json:"sgid"`
	DGID         string `json:"dgid"`
}

// BTH is a base transport header with every bit of it.
type BTH struct {
	Opcode uint8  `json:"opcode"`
	SE     bool   `json:"se"`
	MigReq bool   `json:"mig_req"`
	Pad    int    `json:"pad"`
	TVer   uint8  `json:"tver"`
	PKey   uint16 `json:"pkey"`
	FECN   bool   `json:"fecn"`
	BECN   bool   `json:"becn"`
	Resv6  uint8  `json:"resv6"`
	DestQP uint32 `json:"dest_qp"`
	AckReq bool   `json:"ack_req"`
	Resv7  uint8  `json:"resv7"`
	PSN    uint32 `json:"psn"`
}

// The extension headers. IBA 9.3.
type (
	RDETH struct {
		EEContext uint32 `json:"ee_context"`
	}
	XRCETH struct {
		SRQ uint32 `json:"srq"`
	}
	DETH struct {
		QKey  uint32 `json:"qkey"`
		SrcQP uint32 `json:"src_qp"`
	}
	FETH struct {
		Placement   uint8 `json:"placement"`
		Selectivity uint8 `json:"selectivity"`
	}
	RETH struct {
		VA     uint64 `json:"va"`
		RKey   uint32 `json:"rkey"`
		DMALen uint32 `json:"dma_len"`
	}
	AtomicETH struct {
		VA      uint64 `json:"va"`
		RKey    uint32 `json:"rkey"`
		SwapAdd uint64 `json:"swap_add"`
		Compare uint64 `json:"compare"`
	}
	// AETH has the syndrome also in words.
	AETH struct {
		Syndrome uint8  `json:"syndrome"`
		Text     string `json:"text"`
		MSN      uint32 `json:"msn"`
	}
	AtomicAckETH struct {
		Orig uint64 `json:"orig"`
	}
	ImmDt struct {
		Imm uint32 `json:"imm"`
	}
	IETH struct {
		RKey uint32 `json:"rkey"`
	}
)

// Bad reports whether the packet is of one of the protocols and a receiver
// would drop it for what its headers and CRC say, or the frame is too broken
// to tell. A frame of another protocol is not bad.
func (p *Packet) Bad() bool { return p.Reason != "" && p.Protocol != Other }

// fail records the first thing that is wrong; detail, if any, says more than
// the reason's own sentence.
func (p *Packet) fail(r trace.Reason, detail string) {
	if p.Reason != "" || r == trace.None {
		return
	}
	p.Reason, p.Why = r.String(), r.Explain()
	if detail != "" {
		p.Why = detail + ": " + p.Why
	}
}

// Decode explains a frame. The packet's payload aliases the frame's data.
func Decode(f pcap.Frame) *Packet {
	p := &Packet{Frame: f.Number, Time: f.Time, Len: f.Len, Protocol: Other, Comment: f.Comment}
	if len(f.Data) < f.Len {
		p.Captured = len(f.Data)
	}
	p.link(f.Link, f.Data)
	p.verdict()
	return p
}

// verdict is about the ICRC; it comes last, as a receiver checks it last.
func (p *Packet) verdict() {
	if p.ICRC == "bad" {
		p.fail(trace.DropICRC, "")
	}
}

// transport decodes from the BTH on. pkt runs to the end of the ICRC, or to
// where the capture cut it; full is how long the headers before it say it is.
func (p *Packet) transport(pkt []byte, full int) {
	whole := pkt
	if full > len(pkt) { // headers beyond the cut read as zero and are left out
		whole = make([]byte, full)
		copy(whole, pkt)
	}
	if len(pkt) < bth.BTHLen {
		p.fail(trace.DropShort, "")
		return
	}
	p.bth(bth.BTH(pkt))
	var d bth.Packet
	if r := bth.Parse(whole, &d); r != trace.None {
		p.fail(r, "")
		return
	}
	info := d.Info()
	n := len(d.Payload)
	p.PayloadLen = &n
	if len(pkt) < info.HdrLen {
		p.Notes = append(p.Notes, "the capture cuts the transport headers short")
		return
	}
	p.extensions(&d, info.Ext)
	p.Payload = pkt[info.HdrLen:max(info.HdrLen, min(len(pkt), info.HdrLen+n))]
	if n > 4096 && p.ICRC == "" {
		p.Notes = append(p.Notes, "longer than any path MTU: probably several packets that were captured before the sender's kernel split them; the frame is cut short, so they cannot be told apart")
	}
	if info.Class == bth.UD && d.DestQP <= bth.QPNGSI {
		p.mad(p.Payload)
	}
}

func (p *Packet) bth(h bth.BTH) {
	p.BTH = &BTH{
		Opcode: uint8(h.Opcode()), SE: h.SE(), MigReq: h.MigReq(), Pad: h.PadCount(), TVer: h.TVer(), PKey: h.PKey(),
		FECN: h.FECN(), BECN: h.BECN(), Resv6: h.Resv6(), DestQP: uint32(h.DestQP()), AckReq: h.AckReq(), Resv7: h.Resv7(),
		PSN: h.PSN().Uint32(),
	}
	p.Opcode, p.DestQP, p.PSN = h.Opcode().String(), &p.BTH.DestQP, &p.BTH.PSN
}

func (p *Packet) extensions(d *bth.Packet, ext bth.Ext) {
	if ext&bth.ExtRDETH != 0 {
		p.RDETH = &RDETH{EEContext: d.EECtx}
	}
	if ext&bth.ExtXRCETH != 0 {
		p.XRCETH = &XRCETH{SRQ: d.XRCSRQ}
	}
	if ext&bth.ExtDETH != 0 {
		p.DETH = &DETH{QKey: d.QKey, SrcQP: uint32(d.SrcQP)}
	}
	if ext&bth.ExtFETH != 0 {
		p.FETH = &FETH{Placement: d.FlushPlacement, Selectivity: d.FlushSelectivity}
	}
	if ext&bth.ExtRETH != 0 {
		p.RETH = &RETH{VA: d.VA, RKey: d.RKey, DMALen: d.DMALen}
	}
	if ext&bth.ExtAtomicETH != 0 {
		p.AtomicETH = &AtomicETH{VA: d.VA, RKey: d.RKey, SwapAdd: d.SwapAdd, Compare: d.Compare}
	}
	if ext&bth.ExtAETH != 0 {
		p.AETH = &AETH{Syndrome: uint8(d.Syndrome), Text: d.Syndrome.String(), MSN: d.MSN}
	}
	if ext&bth.ExtAtomicAckETH != 0 {
		p.AtomicAckETH = &AtomicAckETH{Orig: d.Orig}
	}
	if ext&bth.ExtImmDt != 0 {
		p.ImmDt = &ImmDt{Imm: d.Imm}
	}
	if ext&bth.ExtIETH != 0 {
		p.IETH = &IETH{RKey: d.Inv}
	}
}
