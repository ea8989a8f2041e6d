package replay

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/gorxe/gorxe/bth"
)

// region is remotely accessible memory that requests name.
type region struct {
	va   uint64
	n    int
	rkey uint32 // as recorded
}

// findRegions lays regions under what accepted requests name.
func (p *plan) findRegions() {
	var all []region
	for i := range p.in.messages {
		m := &p.in.messages[i]
		if n := m.length; n > 0 && !m.refused && m.opcode.Info().Ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 && m.va+uint64(n)-1 >= m.va {
			all = append(all, region{m.va, n, m.rkey})
		}
	}
	slices.SortFunc(all, func(a, b region) int { return cmp.Or(cmp.Compare(a.rkey, b.rkey), cmp.Compare(a.va, b.va)) })
	for _, r := range all {
		if n := len(p.regions); n > 0 {
			if last := &p.regions[n-1]; last.rkey == r.rkey {
				if r.va-last.va <= uint64(last.n)+joinGap {
					last.n = max(last.n, int(r.va-last.va)+r.n)
					continue
				}
			}
		}
		p.regions = append(p.regions, r)
	}
}

// region returns the index of the region that holds n octets at va, or -1.
func (p *plan) region(rkey uint32, va uint64, n int) int {
	for i := range p.regions {
		r := &p.regions[i]
		if off := va - r.va; r.rkey == rkey && va >= r.va && off <= uint64(r.n) && uint64(n) <= uint64(r.n)-off {
			return i
		}
	}
	return -1
}

// findContents takes from the answers what memory held.
func (p *plan) findContents() {
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from == p.ours {
			continue
		}
		n := &p.script[i]
		switch op := e.pkt.Info().Op; {
		case op == bth.OpReadReq:
			if p.region(e.pkt.RKey, e.pkt.VA, int(e.pkt.DMALen)) >= 0 {
				n.data, n.have = p.recorded(i)
			}
		case op == bth.OpCmpSwap || op == bth.OpFetchAdd:
			if v, ok := p.original(i); ok {
				// The word is in host order, as programs see it.
				n.data, n.have = binary.NativeEndian.AppendUint64(nil, v), []bool{true, true, true, true, true, true, true, true}
			}
		}
	}
}

// recorded returns the octets that our side answered a READ with, from event i
// on, and which of them were recorded.
func (p *plan) recorded(i int) (data []byte, have []bool) {
	q := &p.conv.events[i].pkt
	mtu, n := int(p.attr.PathMTU), int(q.DMALen)
	data, have = make([]byte, n), make([]bool, n)
	if n == 0 {
		return data, have
	}
	for k := range packets(n, mtu) {
		for _, j := range p.index[p.ours][q.PSN.Add(k)] {
			if e := &p.conv.events[j]; j > i && e.pkt.Info().Op == bth.OpReadResp {
				copy(data[k*mtu:], e.pkt.Payload)
				for o := k * mtu; o < min(n, k*mtu+len(e.pkt.Payload)); o++ {
					have[o] = true
				}
				break
			}
		}
	}
	return data, have
}

// original returns the value that our side answered an atomic with.
func (p *plan) original(i int) (v uint64, ok bool) {
	for _, j := range p.index[p.ours][p.conv.events[i].pkt.PSN] {
		if e := &p.conv.events[j]; j > i && e.pkt.Info().Op == bth.OpAtomicAck {
			return e.pkt.Orig, true
		}
	}
	return 0, false
}
