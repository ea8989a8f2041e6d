package layers_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/layers"
)

// carrier is what is below a BTH.
type carrier int

const (
	overIPv4 carrier = iota
	overIPv6
	overGRH
	overLRH
	overLRHGRH
	carriers
)

func (c carrier) String() string { return [...]string{"IPv4", "IPv6", "GRH", "LRH", "LRH+GRH"}[c] }

// first is how gopacket is to take such a frame.
func (c carrier) first() gopacket.Decoder {
	if c >= overLRH {
		return layers.LinkTypeInfiniBand
	}
	return inet.LayerTypeEthernet
}

var (
	src4, dst4 = net.IP{192, 0, 2, 1}, net.IP{192, 0, 2, 2}
	src6, dst6 = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
)

// builder makes packets of random fields.
type builder struct {
	*rand.Rand
	t testing.TB
}

func newBuilder(t testing.TB, seed uint64) builder {
	return builder{rand.New(rand.NewPCG(seed, 0)), t}
}

func (r builder) bit() bool         { return r.Uint32()&1 != 0 }
func (r builder) bits(n int) uint32 { return r.Uint32() >> (32 - n) }
func (r builder) bits8(n int) uint8 { return uint8(r.bits(n)) }
func (r builder) qpn() bth.QPN      { return bth.QPN(r.bits(24)) }
func (r builder) psn() bth.PSN      { return bth.MakePSN(r.bits(24)) }
func (r builder) octets(n int) (b []byte) {
	for range n {
		b = append(b, r.bits8(8))
	}
	return b
}

func (r builder) gid() netip.Addr { return netip.AddrFrom16([16]byte(r.octets(16))) }

// bth is a header with every field random but the destination of a management
// datagram.
func (r builder) bth(op bth.Opcode) *layers.BTH {
	return &layers.BTH{
		Opcode: op, SE: r.bit(), MigReq: r.bit(), PKey: uint16(r.bits(16)), FECN: r.bit(), BECN: r.bit(), Resv6: r.bits8(6),
		DestQP: r.qpn() | 0x100, AckReq: r.bit(), Resv7: r.bits8(7), PSN: r.psn(),
	}
}

// extensions are the headers of an opcode, by the specification's tables.
func (r builder) extensions(op bth.Opcode) (ls []gopacket.SerializableLayer) {
	ext := op.Info().Ext
	for _, e := range []struct {
		bit bth.Ext
		l   gopacket.SerializableLayer
	}{
		{bth.ExtRDETH, &layers.RDETH{Resv8: r.bits8(8), EEContext: r.bits(24)}},
		{bth.ExtXRCETH, &layers.XRCETH{Resv8: r.bits8(8), SRQ: r.bits(24)}},
		{bth.ExtDETH, &layers.DETH{QKey: r.Uint32(), Resv8: r.bits8(8), SrcQP: r.qpn()}},
		{bth.ExtFETH, &layers.FETH{Resv26: r.bits(26), Selectivity: r.bits8(2), Placement: r.bits8(4)}},
		{bth.ExtRETH, &layers.RETH{VA: r.Uint64(), RKey: r.Uint32(), DMALen: r.Uint32()}},
		{bth.ExtAtomicETH, &layers.AtomicETH{VA: r.Uint64(), RKey: r.Uint32(), SwapAdd: r.Uint64(), Compare: r.Uint64()}},
		{bth.ExtAETH, &layers.AETH{Syndrome: bth.Syndrome(r.bits8(8)), MSN: r.bits(24)}},
		{bth.ExtAtomicAckETH, &layers.AtomicAckETH{Orig: r.Uint64()}},
		{bth.ExtImmDt, &layers.ImmDt{Imm: r.Uint32()}},
		{bth.ExtIETH, &layers.IETH{RKey: r.Uint32()}},
	} {
		if ext&e.bit != 0 {
			ls = append(ls, e.l)
		}
	}
	if op == bth.CNP {
		ls = append(ls, &layers.CNP{Reserved: r.octets(16)})
	}
	return ls
}

func (r builder) path(resv ...int) layers.CMPath {
	p := layers.CMPath{
		LocalLID: uint16(r.bits(16)), RemoteLID: uint16(r.bits(16)), LocalGID: r.gid(), RemoteGID: r.gid(), FlowLabel: r.bits(20),
		PacketRate: r.bits8(6), TrafficClass: r.bits8(8), HopLimit: r.bits8(8), SL: r.bits8(4), SubnetLocal: r.bit(), LocalAckTimeout: r.bits8(5),
	}
	for i, n := range resv {
		p.Resv[i] = r.bits8(n)
	}
	return p
}

// messages are one of each message of the connection manager, in the order of
// their attribute numbers.
func (r builder) messages() []gopacket.SerializableLayer {
	u := r.Uint32
	return []gopacket.SerializableLayer{
		&layers.CMReq{
			LocalCommID: u(), Resv32: [2]uint32{u(), u()}, ServiceID: r.Uint64(), LocalCAGUID: layers.GUID(r.Uint64()), LocalQKey: u(),
			LocalQPN: r.qpn(), ResponderResources: r.bits8(8), LocalEECN: r.bits(24), InitiatorDepth: r.bits8(8), RemoteEECN: r.bits(24),
			RemoteCMResponseTimeout: r.bits8(5), TransportService: r.bits8(2), EndToEndFlowControl: r.bit(), StartingPSN: r.psn(),
			LocalCMResponseTimeout: r.bits8(5), RetryCount: r.bits8(3), PKey: uint16(r.bits(16)), PathMTU: r.bits8(4), RDCExists: r.bit(),
			RNRRetryCount: r.bits8(3), MaxCMRetries: r.bits8(4), SRQ: r.bit(), ExtendedTransport: r.bits8(3),
			Primary: r.path(6, 3, 3), Alternate: r.path(6, 3, 3), PrivateData: r.octets(92),
		},
		&layers.CMMRA{LocalCommID: u(), RemoteCommID: u(), MessageMRAed: r.bits8(2), Resv6: r.bits8(6), ServiceTimeout: r.bits8(5), Resv3: r.bits8(3), PrivateData: r.octets(222)},
		&layers.CMRej{
			LocalCommID: u(), RemoteCommID: u(), MessageRejected: r.bits8(2), Resv6: r.bits8(6), RejectInfoLength: r.bits8(7), Resv1: r.bits8(1),
			Reason: uint16(r.bits(16)), AdditionalInfo: r.octets(72), PrivateData: r.octets(148),
		},
		&layers.CMRep{
			LocalCommID: u(), RemoteCommID: u(), LocalQKey: u(), LocalQPN: r.qpn(), Resv8: [3]uint8(r.octets(3)), LocalEECN: r.bits(24),
			StartingPSN: r.psn(), ResponderResources: r.bits8(8), InitiatorDepth: r.bits8(8), TargetAckDelay: r.bits8(5), FailoverAccepted: r.bits8(2),
			EndToEndFlowControl: r.bit(), RNRRetryCount: r.bits8(3), SRQ: r.bit(), Resv4: r.bits8(4), LocalCAGUID: layers.GUID(r.Uint64()), PrivateData: r.octets(196),
		},
		&layers.CMRTU{LocalCommID: u(), RemoteCommID: u(), PrivateData: r.octets(224)},
		&layers.CMDReq{LocalCommID: u(), RemoteCommID: u(), RemoteQPN: r.qpn(), Resv8: r.bits8(8), PrivateData: r.octets(220)},
		&layers.CMDRep{LocalCommID: u(), RemoteCommID: u(), PrivateData: r.octets(224)},
		&layers.CMSIDRReq{RequestID: u(), PKey: uint16(r.bits(16)), Resv16: uint16(r.bits(16)), ServiceID: r.Uint64(), PrivateData: r.octets(216)},
		&layers.CMSIDRRep{
			RequestID: u(), Status: r.bits8(8), AdditionalInfoLength: r.bits8(8), Resv16: uint16(r.bits(16)), QPN: r.qpn(), Resv8: r.bits8(8),
			ServiceID: r.Uint64(), QKey: u(), AdditionalInfo: r.octets(72), PrivateData: r.octets(136),
		},
		&layers.CMLAP{
			LocalCommID: u(), RemoteCommID: u(), Resv32: [2]uint32{u(), u()}, RemoteQPN: r.qpn(), RemoteCMResponseTimeout: r.bits8(5), Resv3: r.bits8(3),
			Alternate: r.path(4, 2, 3, 3), PrivateData: r.octets(168),
		},
		&layers.CMAPR{
			LocalCommID: u(), RemoteCommID: u(), AdditionalInfoLength: r.bits8(8), Status: r.bits8(8), Resv16: uint16(r.bits(16)),
			AdditionalInfo: r.octets(72), PrivateData: r.octets(148),
		},
	}
}

// datagram is a message of the connection manager in a packet.
func (r builder) datagram(i int, message gopacket.SerializableLayer) (*layers.BTH, []gopacket.SerializableLayer) {
	head := r.bth(bth.UDSendOnly)
	head.DestQP = bth.QPNGSI
	return head, append(r.extensions(bth.UDSendOnly), &layers.MAD{
		BaseVersion: 1, Class: layers.ClassCM, ClassVersion: layers.ClassVersionCM, Method: 3, Status: uint16(r.bits(16)), ClassSpecific: uint16(r.bits(16)),
		TransactionID: r.Uint64(), AttributeID: layers.AttrREQ + uint16(i), Resv16: uint16(r.bits(16)), AttributeModifier: r.Uint32(),
	}, message)
}

// frame puts a BTH and what follows it on a carrier, and seals the packet.
func (r builder) frame(c carrier, head *layers.BTH, rest ...gopacket.SerializableLayer) []byte {
	udp := &inet.UDP{SrcPort: inet.UDPPort(0xc000 | r.bits(14)), DstPort: 4791}
	eth := &inet.Ethernet{SrcMAC: r.octets(6), DstMAC: r.octets(6)}
	grh := &layers.GRH{IPVer: 6, TrafficClass: r.bits8(8), FlowLabel: r.bits(20), NextHeader: 0x1b, HopLimit: r.bits8(8), SGID: src6, DGID: dst6}
	lrh := &layers.LRH{VL: r.bits8(4), SL: r.bits8(4), LNH: 2, DLID: uint16(r.bits(16)), SLID: uint16(r.bits(16)), Trailer: r.octets(2)}
	var lower []gopacket.Layer // below the BTH and covered
	switch c {
	case overIPv4:
		eth.EthernetType = inet.EthernetTypeIPv4
		lower = []gopacket.Layer{&inet.IPv4{
			Version: 4, TOS: r.bits8(8), Id: uint16(r.bits(16)), Flags: inet.IPv4DontFragment, TTL: r.bits8(8), Protocol: inet.IPProtocolUDP, SrcIP: src4, DstIP: dst4,
		}, udp}
	case overIPv6:
		eth.EthernetType = inet.EthernetTypeIPv6
		lower = []gopacket.Layer{&inet.IPv6{
			Version: 6, TrafficClass: r.bits8(8), FlowLabel: r.bits(20), NextHeader: inet.IPProtocolUDP, HopLimit: r.bits8(8), SrcIP: src6.AsSlice(), DstIP: dst6.AsSlice(),
		}, udp}
	case overGRH:
		eth.EthernetType = layers.EthernetTypeRoCE
		lower = []gopacket.Layer{grh}
	case overLRH:
		lower = []gopacket.Layer{lrh}
	case overLRHGRH:
		lrh.LNH = 3
		lower = []gopacket.Layer{lrh, grh}
	}
	require.NoError(r.t, head.SetLayersForChecksum(lower...))
	if n, ok := lower[0].(gopacket.NetworkLayer); ok && c <= overIPv6 {
		require.NoError(r.t, udp.SetNetworkLayerForChecksum(n))
	}
	var ls []gopacket.SerializableLayer
	if c < overLRH {
		ls = append(ls, eth)
	}
	for _, l := range lower {
		ls = append(ls, l.(gopacket.SerializableLayer))
	}
	ls = append(append(append(ls, head), rest...), &layers.ICRC{})
	buf := gopacket.NewSerializeBuffer()
	require.NoError(r.t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...))
	return append([]byte(nil), buf.Bytes()...)
}

// sample is a packet and what it was made of.
type sample struct {
	name   string
	on     carrier
	frame  []byte
	layers []gopacket.SerializableLayer // from the BTH on
}

// samples are one packet of each opcode on each carrier, with every pad, and
// one of each message of the connection manager.
func samples(t testing.TB) (out []sample) {
	r := newBuilder(t, 1)
	add := func(name string, head *layers.BTH, rest ...gopacket.SerializableLayer) {
		for c := range carriers {
			out = append(out, sample{name + "/" + c.String(), c, r.frame(c, head, rest...), append([]gopacket.SerializableLayer{head}, rest...)})
		}
	}
	for o := range 256 {
		op := bth.Opcode(o)
		rest := r.extensions(op)
		info := op.Info()
		if info.Has(bth.HasPayload) || !info.Valid() {
			rest = append(rest, gopacket.Payload(r.octets(o%7+1)))
		}
		add(op.String(), r.bth(op), rest...)
	}
	for i, m := range r.messages() {
		head, rest := r.datagram(i, m)
		add(m.LayerType().String(), head, rest...)
	}
	return out
}
