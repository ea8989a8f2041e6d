package server_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// FuzzRings has a client write what the input says into all that it shares with the
// device, between the device's steps, while a program beside it sends and receives.
// The device must not panic nor loop; the program's data must be what it sent, and
// its memory what it wrote; and the client's objects must go when they are destroyed.
// Time is the test's.
func FuzzRings(f *testing.F) {
	good := func(op verbs.WROpcode, addr uint64, n, key uint32) (b []byte) {
		w := sendWQE(op, 1, addr, n, key)
		for i := 0; i < len(w); i += 4 {
			if v := binary.LittleEndian.Uint32(w[i:]); v != 0 {
				b = append(b, poke(0, atUnits+i, v)...)
			}
		}
		return append(append(b, poke(0, atProducer, 2)...), bell(0)...)
	}
	f.Add(good(verbs.WRSend, 0, 64, ownKey))
	f.Add(append(good(verbs.WRWrite, 0, 64, ownKey), poke(2, atConsumer, 1<<31)...))
	f.Add(append(append(poke(1, atProducer, 1<<30), poke(0, atProducer, 1<<16)...), bell(0)...))
	f.Add(append(append(poke(5, atProducer, 9), poke(5, atUnits, 77)...), good(verbs.WRSend, 0, 8, ownKey)...))
	f.Add(append(append(poke(6, 132, 1<<31), poke(6, 68, 1<<30)...), poke(4, atProducer, 1<<31)...))
	f.Add(append(append(good(verbs.WRBindMW, 0, 0, ownKey), []byte{modifyTo, byte(verbs.StateErr), 0, 0, 0, 0, 0, 0}...), []byte{modifyTo, 0, 0, 0, 0, 0, 0, 0}...))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		x := newRings(t)
		for ; len(in) >= 8; in = in[8:] {
			x.do([8]byte(in))
			x.step()
		}
		for range 20 {
			x.step()
		}
		x.end()
	})
}

// The input is a sequence of 8 octets each: where to write (one of 7 memories, or
// one of the calls below), an argument of calls, an offset of 16 bits, and a value of
// 32.
const (
	ownKey   = 1<<32 - 1 // stands for the L_Key and R_Key of the client's own region
	rings    = 7
	bellOf   = 8
	modifyTo = 9
	later    = 10
)

func poke(which byte, at int, v uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{which, 0, byte(at), byte(at >> 8)}, v)
}

func bell(i byte) []byte { return []byte{bellOf, i, 0, 0, 0, 0, 0, 0} }

// ringSite is a device with a client and a program, and the device of their peers.
type ringSite struct {
	t      *testing.T
	now    int64
	a, b   *nic.NIC
	client *nic.Client
	pd     verbs.Handle
	cq     verbs.CQInfo
	srq    verbs.SRQInfo
	qps    []verbs.QPInfo
	bells  []nic.Bell
	mrs    []verbs.MRInfo
	mems   [rings][]byte // what the client shares: see do

	ends [2]*end // the program, and its peer
	n    int
	busy bool
	got  [2]bool
}

func newRings(t *testing.T) *ringSite {
	x := &ringSite{t: t}
	la, lb, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	open := func(l []link.Link, seed uint64, addr netip.Addr) *nic.NIC {
		n, err := nic.Open(nic.Config{
			Links: l, Seed: seed, Manual: true, Recorder: 64, NetDev: "mem",
			GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(addr), Type: "RoCE v2"}}, Clock: func() int64 { return x.now },
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	x.a, x.b = open(la, 1, servedAddr), open(lb, 2, peerAddr)
	for i, n := range []*nic.NIC{x.a, x.b} {
		x.ends[i] = newEnd(t, verbs.NewContext(n), verbs.RC, 8192)
	}
	connect(t, x.ends[0], x.ends[1], servedAddr, peerAddr)
	fill(x.ends[0].mr.Bytes()[4096:], 3)
	x.make()
	return x
}

// make makes the client's objects: an RC queue pair that is connected to another
// one of the client's, which has a shared receive queue, and a UD one.
func (x *ringSite) make() {
	t := x.t
	var err error
	x.mems[6] = verbs.NewRingBytes(verbs.BellBlockLen)
	x.client, err = x.a.Attach(1, x.mems[6])
	require.NoError(t, err)
	x.pd, err = x.a.AllocPD()
	require.NoError(t, err)
	x.mems[2] = verbs.NewRingMem(16)
	x.cq, err = x.client.CreateCQ(verbs.CQConfig{Depth: 16}, x.mems[2])
	require.NoError(t, err)
	x.mems[5] = verbs.NewRingBytes(nic.RecvRingBytes(8, 2))
	x.srq, err = x.client.CreateSRQ(verbs.SRQReq{PD: x.pd, MaxWR: 8, MaxSGE: 2}, x.mems[5])
	require.NoError(t, err)
	mr, err := x.a.RegMR(verbs.MRReq{PD: x.pd, Len: 8192, Access: verbs.AccessAll | verbs.AccessMWBind})
	require.NoError(t, err)
	x.mrs = append(x.mrs, mr)
	for i, typ := range []verbs.QPType{verbs.RC, verbs.RC, verbs.UD} {
		req := verbs.QPReq{PD: x.pd, SendCQ: x.cq.Handle, RecvCQ: x.cq.Handle, Type: typ, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxInline: 256}}
		if i == 1 {
			req.SRQ = x.srq.Handle
		}
		sqLen, rqLen, err := nic.QPRingBytes(&req)
		require.NoError(t, err)
		sq := verbs.NewRingBytes(sqLen)
		var rq []byte
		if rqLen > 0 {
			rq = verbs.NewRingBytes(rqLen)
		}
		q, at, err := x.client.CreateQP(req, sq, rq)
		require.NoError(t, err)
		x.qps, x.bells = append(x.qps, q), append(x.bells, at)
		switch i {
		case 0:
			x.mems[0], x.mems[1] = sq, rq
		case 1:
			x.mems[4] = sq
		case 2:
			x.mems[3] = sq
		}
	}
	for i := range x.qps {
		x.up(i)
	}
}

// up takes one of the client's queue pairs to RTS, as far as it will go.
func (x *ringSite) up(i int) {
	to := x.qps[(i+1)%2]
	a := verbs.QPAttr{
		Port: 1, Access: verbs.AccessAll, QKey: 1, PathMTU: 256, DestQPN: to.QPN, RQPSN: to.PSN, SQPSN: x.qps[i].PSN,
		AV: verbs.AV{DGID: verbs.GIDOf(servedAddr)}, MaxRdAtomic: 2, MaxDestRdAtomic: 2, Timeout: 1, RetryCnt: 1, RNRRetry: 1, MinRNRTimer: 1,
	}
	masks := []verbs.AttrMask{
		verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess,
		verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer,
		verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrSQPSN | verbs.AttrMaxRdAtomic,
	}
	if i == 2 {
		masks = []verbs.AttrMask{verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey, 0, verbs.AttrSQPSN}
	}
	for k, m := range masks {
		a.State = verbs.StateInit + verbs.QPState(k)
		_ = x.a.ModifyQP(x.qps[i].Handle, &a, m|verbs.AttrState)
	}
}

// do does what 8 octets say. Memory is: the send and receive ring of the first
// queue pair, the completion ring, the send rings of the third and second, the shared
// receive ring, the bell block.
func (x *ringSite) do(b [8]byte) {
	switch at, v := int(b[2])|int(b[3])<<8, binary.LittleEndian.Uint32(b[4:]); {
	case b[0] < rings:
		m := x.mems[b[0]]
		if v == ownKey {
			v = x.mrs[0].LKey
		}
		binary.LittleEndian.PutUint32(m[at%len(m)&^3:], v)
	case b[0] == bellOf:
		blocks, _ := verbs.BellBlocks(x.mems[6], 1)
		blocks[0].Bells.Ring(x.bells[int(b[1])%len(x.bells)].Index)
	case b[0] == modifyTo:
		i := at % len(x.qps)
		_ = x.a.ModifyQP(x.qps[i].Handle, &verbs.QPAttr{State: verbs.QPState(b[1] % 8)}, verbs.AttrState)
		if b[1] == 0 {
			x.up(i)
		}
	case b[0] == later:
		x.now += int64(at) << (b[1] % 16)
	}
}

// step moves both devices, and the program's traffic: what one sends the other
// sends back.
func (x *ringSite) step() {
	t := x.t
	if !x.busy {
		x.n++
		x.busy, x.got = true, [2]bool{}
		fill(x.ends[0].mr.Bytes()[:512], x.n)
		x.ends[1].recv(0, 512)
		x.ends[0].send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{x.ends[0].mr.SGE(0, 512)}})
	}
	for range 3 {
		x.now += 1000
		x.a.Step(0, x.now)
		x.b.Step(0, x.now)
	}
	for i, e := range x.ends {
		var wc [4]verbs.WC
		n := e.cq.Poll(wc[:])
		for _, w := range wc[:n] {
			require.NoError(t, w.Err())
			x.got[i] = true
		}
	}
	if x.got[0] && x.got[1] {
		require.True(t, bytes.Equal(x.ends[0].mr.Bytes()[:512], x.ends[1].mr.Bytes()[:512]), "the program's data has changed")
		x.busy = false
	}
	require.NoError(t, x.a.Err())
}

// end takes everything down.
func (x *ringSite) end() {
	t := x.t
	for i := 0; x.busy; i++ {
		require.Less(t, i, 1000, "the program's traffic has stopped")
		x.now += 1e6
		x.step()
	}
	want := make([]byte, 4096)
	fill(want, 3)
	require.True(t, bytes.Equal(want, x.ends[0].mr.Bytes()[4096:]), "the program's memory was written")
	require.Greater(t, x.n, 3, "the program hardly got on")
	for _, q := range x.qps {
		require.NoError(t, x.a.Destroy(verbs.KindQP, q.Handle))
	}
	require.NoError(t, x.a.Destroy(verbs.KindSRQ, x.srq.Handle))
	require.NoError(t, x.a.Destroy(verbs.KindCQ, x.cq.Handle))
	require.NoError(t, x.a.Destroy(verbs.KindMR, x.mrs[0].Handle))
	require.NoError(t, x.a.Destroy(verbs.KindPD, x.pd))
	require.NoError(t, x.client.Detach())
	for _, m := range x.mems { // nothing looks at it any more
		for k := range m {
			m[k] = 0xff
		}
	}
	x.a.Step(0, x.now+1e9)
	for _, m := range x.mems {
		require.Equal(t, len(m), bytes.Count(m, []byte{0xff}), "a step wrote into memory of the client that has gone")
	}
}
