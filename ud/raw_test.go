package ud

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// handles are the address handles of protection domain 1.
type handles map[uint32]*wire.Flow

func (h handles) Flow(pd mr.PD, handle uint32) *wire.Flow {
	if pd != 1 {
		return nil
	}
	return h[handle]
}

// raw is a queue pair in RTS with address handles 1, 2 and 3, of which 3 is to a
// multicast group; a datagram has 512 octets at most.
type raw struct {
	*enginetest.Side
	qp *QP
	ah handles
}

const (
	mtu  = 512
	qkey = 0x1234
	base = 0xfffffe // PSNs wrap
)

func newRaw(t testing.TB, change ...func(c *Config)) *raw {
	r := unready(t, change...)
	r.activate()
	return r
}

// unready is newRaw in RESET.
func unready(t testing.TB, change ...func(c *Config)) *raw {
	r := &raw{Side: enginetest.New(t, 0x11, 1<<16, verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 32, MaxInline: 512})}
	r.ah = handles{1: enginetest.Flow("192.0.2.1", "192.0.2.2"), 2: enginetest.Flow("192.0.2.1", "192.0.2.3"), 3: enginetest.Flow("192.0.2.1", "239.1.1.1")}
	c := Config{Config: r.Cfg, Addresses: r.ah, MTU: mtu}
	for _, f := range change {
		f(&c)
	}
	r.qp = New(c)
	r.QP, r.Base = r.qp, bth.MakePSN(base)
	return r
}

func (r *raw) activate() {
	r.T.Helper()
	a := verbs.QPAttr{QKey: qkey, SQPSN: base}
	r.Modify(verbs.StateInit, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey, a, nil)
	r.Modify(verbs.StateRTR, 0, a, nil)
	r.Modify(verbs.StateRTS, verbs.AttrSQPSN, a, nil)
}

// wr is a signaled datagram of n octets from the region's start.
func (r *raw) wr(id uint64, ah uint32, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.SGE(0, n)}, AH: ah, RemoteQPN: 0x22, RemoteQKey: qkey}
}

// datagram is one that arrives; its payload and GRH tell its PSN.
func (r *raw) datagram(psn, n int) bth.Packet {
	return bth.Packet{
		Opcode: bth.UDSendOnly, PSN: r.Base.Add(psn), QKey: qkey, SrcQP: 0x33, Pad: uint8(-n & 3),
		Payload: enginetest.Bytes(n, uint64(psn)), GRH: enginetest.Bytes(GRHLen, uint64(psn)+1000), Imm: 5,
	}
}

// shared is a receive queue of several queue pairs: not the queue pair's own.
type shared struct{ r *verbs.RecvRing }

func (s shared) Fetch(sgl []verbs.SGE) (verbs.RecvID, int, bool) { return s.r.Fetch(sgl) }

func withSharedQueue(c *Config) { c.RQ = shared{c.RQ.(*verbs.RecvRing)} }

var _ transport.RecvSource = shared{}
