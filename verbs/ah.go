package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// AH is an address handle: where datagrams of UD queue pairs of its protection
// domain go.
type AH struct {
	pd *PD
	h  Handle
	av AV
}

// CreateAH makes an address handle. It returns an error for a destination that
// cannot be reached from the GID at SGIDIndex, as Connect does.
func (p *PD) CreateAH(av AV) (*AH, error) {
	h, err := p.ctx.p.CreateAH(p.h, &av)
	if err != nil {
		return nil, err
	}
	return &AH{pd: p, h: h, av: av}, nil
}

// Handle is what SendWR.AH takes.
func (a *AH) Handle() uint32 { return uint32(a.h) }

// AV returns what the handle was made from.
func (a *AH) AV() AV { return a.av }

// Destroy frees the handle. Send requests that name it must be complete: a
// later one fails.
func (a *AH) Destroy() error { return a.pd.ctx.p.Destroy(KindAH, a.h) }

// GRHLen is how many octets precede the payload in the buffer of a UD receive:
// an IPv6 header, or 20 octets that mean nothing and an IPv4 header (Annex
// A17.4.5.3; rxe leaves the first 20 as 0, and so does this device).
const GRHLen = 40

// AVFrom returns the address vector that answers a datagram: from its
// completion and the first GRHLen octets of its buffer, as
// ibv_init_ah_from_wc does.
func (c *Context) AVFrom(wc *WC, grh []byte) (AV, error) {
	if wc.Flags&WCGRH == 0 || len(grh) < GRHLen {
		return AV{}, errors.New("verbs: the completion is not of a UD receive, or the buffer is shorter than its GRH")
	}
	var src, dst netip.Addr
	var tos uint8
	var label uint32
	switch {
	case grh[0]>>4 == 6:
		src, dst = netip.AddrFrom16([16]byte(grh[8:24])), netip.AddrFrom16([16]byte(grh[24:40]))
		tos, label = uint8(binary.BigEndian.Uint16(grh)>>4), binary.BigEndian.Uint32(grh)&0xfffff
	case grh[20] == 0x45:
		src, dst = netip.AddrFrom4([4]byte(grh[32:36])), netip.AddrFrom4([4]byte(grh[36:40]))
		tos = grh[21]
	default:
		return AV{}, fmt.Errorf("verbs: the buffer begins with neither an IPv6 nor an IPv4 header: % x", grh[:GRHLen])
	}
	av := AV{DGID: GIDOf(src), TrafficClass: tos &^ 3, FlowLabel: label}
	if dst.IsMulticast() {
		g, err := c.ChooseGID(src)
		av.SGIDIndex = g.Index
		return av, err
	}
	gids, err := c.p.GIDs()
	if err != nil {
		return AV{}, err
	}
	for _, g := range gids {
		if g.GID == GIDOf(dst) {
			av.SGIDIndex = g.Index
			return av, nil
		}
	}
	return AV{}, fmt.Errorf("verbs: the datagram was sent to %v, which is not in the GID table", dst)
}
