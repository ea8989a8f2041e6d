package uc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// raw is a queue pair in RTS and its peer, played by the test. PSNs are offsets
// from Base in both directions, the path MTU is 256.
type raw struct {
	*enginetest.Side
	qp *QP
}

const (
	sendMiddle   = sendFirst | bth.RCSendMiddle
	sendLast     = sendFirst | bth.RCSendLast
	sendLastImm  = sendFirst | bth.RCSendLastImm
	sendOnly     = sendFirst | bth.RCSendOnly
	sendOnlyImm  = sendFirst | bth.RCSendOnlyImm
	writeFirst   = sendFirst | bth.RCWriteFirst
	writeMiddle  = sendFirst | bth.RCWriteMiddle
	writeLast    = sendFirst | bth.RCWriteLast
	writeLastImm = sendFirst | bth.RCWriteLastImm
	writeOnly    = sendFirst | bth.RCWriteOnly
	writeOnlyImm = sendFirst | bth.RCWriteOnlyImm
)

// rule runs f on a fresh queue pair, with PSNs that do not wrap, that wrap
// within the first message, and at its first packet.
func rule(t *testing.T, f func(r *raw)) {
	t.Helper()
	for _, base := range []uint32{100, 0xfffffe, 0xffffff, 0x7fffff} {
		t.Run(fmt.Sprintf("psn%06x", base), func(t *testing.T) { f(newRaw(t, base)) })
	}
}

// newRaw makes a queue pair; change may adjust its capacity and attributes.
func newRaw(t testing.TB, base uint32, change ...func(c *transport.Config, a *verbs.QPAttr)) *raw {
	r := unconnected(t, 0x11, 1<<16, verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 32, MaxInline: 300}, func(c *transport.Config) {
		for _, f := range change {
			f(c, &verbs.QPAttr{})
		}
	})
	a := attr(256, 0x12, base, base)
	for _, f := range change {
		f(&transport.Config{}, &a)
	}
	r.Base = bth.MakePSN(base)
	r.connect(a)
	return r
}

func unconnected(t testing.TB, qpn bth.QPN, memory int, c verbs.QPCap, change func(*transport.Config)) *raw {
	r := &raw{Side: enginetest.New(t, qpn, memory, c)}
	if change != nil {
		change(&r.Cfg)
	}
	r.qp = New(r.Cfg)
	r.QP = r.qp
	return r
}

func attr(mtu verbs.MTU, dest, sq, rq uint32) verbs.QPAttr {
	return verbs.QPAttr{Access: verbs.AccessAll, PathMTU: mtu, DestQPN: dest, SQPSN: sq & bth.PSNMask, RQPSN: rq & bth.PSNMask}
}

const (
	toInit = verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess
	toRTR  = verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
)

func (r *raw) connect(a verbs.QPAttr) {
	r.T.Helper()
	r.Modify(verbs.StateInit, toInit, a, nil)
	r.Modify(verbs.StateRTR, toRTR, a, enginetest.Flow("192.0.2.1", "192.0.2.2"))
	r.Modify(verbs.StateRTS, verbs.AttrSQPSN, a, nil)
}

// packet makes a packet of a message to the region's start; its payload tells
// its PSN.
func (r *raw) packet(op bth.Opcode, off, n int) bth.Packet {
	return bth.Packet{
		Opcode: op, PSN: r.Base.Add(off), VA: r.Reg.IOVA, RKey: r.Reg.Key, DMALen: uint32(n), Imm: uint32(off),
		Pad: uint8(-n & 3), Payload: enginetest.Bytes(n, uint64(1000+off)),
	}
}

// send posts a signaled request of n octets from the region's start.
func (r *raw) send(id uint64, op verbs.WROpcode, n int) {
	r.T.Helper()
	r.Post(verbs.SendWR{ID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.SGE(0, n)}, RemoteAddr: 7000, RKey: 77})
}

// recv posts a receive request of n octets at offset at.
func (r *raw) recv(id uint64, at, n int) {
	r.T.Helper()
	r.PostRecv(verbs.RecvWR{ID: id, SGL: []verbs.SGE{r.SGE(at, n)}})
}
