package layers

import (
	"fmt"
	"net/netip"
)

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
