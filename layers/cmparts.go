package layers

import (
	"fmt"
	"net/netip"
)

// GUID is an EUI-64.
type GUID uint64

// String writes it as the tools of rdma-core do: 0250:56ff:fea7:7d03.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// CMPath is a path between two ports, as a REQ (44 octets) or a LAP describes
// it. The local port is the sender's. In RoCE the LIDs mean nothing.
type CMPath struct {
	LocalLID        uint16
	RemoteLID       uint16
	LocalGID        netip.Addr
	RemoteGID       netip.Addr
	FlowLabel       uint32 // 20 bits
	PacketRate      uint8  // 6 bits, IBA 9.11.1
	TrafficClass    uint8
	HopLimit        uint8
	SL              uint8 // service level, 4 bits
	SubnetLocal     bool
	LocalAckTimeout uint8    // 4.096 us * 2^n
	Resv            [4]uint8 // in wire order: 6, 3 and 3 bits of a REQ; 4, 2, 3 and 3 of a LAP
}

func (p *CMPath) walkGIDs(f fields) fields {
	number(&f, &p.LocalLID, 16)
	number(&f, &p.RemoteLID, 16)
	f.gid(&p.LocalGID)
	f.gid(&p.RemoteGID)
	number(&f, &p.FlowLabel, 20)
	return f
}

// walkREQ is the path's layout in a REQ. IBA table 106.
func (p *CMPath) walkREQ(f fields) fields {
	f = p.walkGIDs(f)
	reserved(&f, &p.Resv[0], 6)
	number(&f, &p.PacketRate, 6)
	number(&f, &p.TrafficClass, 8)
	number(&f, &p.HopLimit, 8)
	number(&f, &p.SL, 4)
	f.flag(&p.SubnetLocal)
	reserved(&f, &p.Resv[1], 3)
	number(&f, &p.LocalAckTimeout, 5)
	reserved(&f, &p.Resv[2], 3)
	return f
}

// walkLAP is the path's layout in a LAP. IBA table 115.
func (p *CMPath) walkLAP(f fields) fields {
	f = p.walkGIDs(f)
	reserved(&f, &p.Resv[0], 4)
	number(&f, &p.TrafficClass, 8)
	number(&f, &p.HopLimit, 8)
	reserved(&f, &p.Resv[1], 2)
	number(&f, &p.PacketRate, 6)
	number(&f, &p.SL, 4)
	f.flag(&p.SubnetLocal)
	reserved(&f, &p.Resv[2], 3)
	number(&f, &p.LocalAckTimeout, 5)
	reserved(&f, &p.Resv[3], 3)
	return f
}

// ipcmLen is the header of the IP connection manager.
const ipcmLen = 36

// IPCM is what the IP connection manager (librdmacm) says in a REQ: the first
// 36 octets of the private data and the service ID. Annex A11.
type IPCM struct {
	Version   uint8 // major and minor, 0
	IPVersion uint8 // 4 or 6
	PortSpace uint8 // of the service ID: 0x06 is TCP, 0x11 UDP
	SrcPort   uint16
	DstPort   uint16 // of the service ID
	Src, Dst  netip.Addr
}

// IPCM reads what a REQ of the IP connection manager says, and the private data
// after it; ok is false for any other REQ.
func (m *CMReq) IPCM() (h IPCM, private []byte, ok bool) {
	b := m.PrivateData
	if m.ServiceID>>24 != 1 || len(b) < ipcmLen {
		return h, nil, false
	}
	h.PortSpace, h.DstPort = uint8(m.ServiceID>>16), uint16(m.ServiceID)
	h.walk(fields{b: b[:ipcmLen]})
	switch h.IPVersion {
	case 4:
		h.Src, h.Dst = low4(h.Src), low4(h.Dst)
	case 6:
	default:
		return IPCM{}, nil, false
	}
	return h, b[ipcmLen:], true
}

// SetIPCM makes the message a REQ of the IP connection manager. The IP version
// is that of the addresses, which must be of one family; the private data
// follow the header, up to 56 octets.
func (m *CMReq) SetIPCM(h IPCM, private []byte) error {
	if !h.Src.IsValid() || !h.Dst.IsValid() || h.Src.Is4() != h.Dst.Is4() {
		return fmt.Errorf("layers: IP CM addresses %v and %v are not of one family", h.Src, h.Dst)
	}
	h.IPVersion = 6
	if h.Src.Is4() {
		h.IPVersion = 4
		h.Src, h.Dst = atLow4(h.Src), atLow4(h.Dst)
	}
	m.ServiceID = 1<<24 | uint64(h.PortSpace)<<16 | uint64(h.DstPort)
	b := make([]byte, ipcmLen, ipcmLen+len(private))
	if err := h.walk(fields{b: b, write: true}).err; err != nil {
		return err
	}
	m.PrivateData = append(b, private...)
	return nil
}

func (h *IPCM) walk(f fields) fields {
	number(&f, &h.Version, 8)
	number(&f, &h.IPVersion, 4)
	f.off += 4 // reserved
	number(&f, &h.SrcPort, 16)
	f.gid(&h.Src)
	f.gid(&h.Dst)
	return f
}

// low4 is the IPv4 address in the last four octets, which is where this header
// has it.
func low4(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func atLow4(a netip.Addr) netip.Addr {
	b := a.As4()
	return netip.AddrFrom16([16]byte{12: b[0], 13: b[1], 14: b[2], 15: b[3]})
}
