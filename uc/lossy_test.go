package uc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// message is one that was sent; its immediate data is its index, and a WRITE
// goes to a place of its own.
type message struct {
	op   verbs.WROpcode
	data []byte
	at   int // of a WRITE
}

// channel is two queue pairs and a wire between them that loses, repeats and
// delays packets by up to delay others.
type channel struct {
	c                    enginetest.Chooser
	a, b                 *raw
	loss, repeat, depart int // per 256
	delay                int
	recvLen              int
	msgs                 []message
	recvs                []int // where the request with that ID lies
	wire                 []flight
	order, arrived       int
	placed               int // WRITEs
	got                  []int
}

type flight struct {
	at int
	p  *bth.Packet
}

const (
	writes  = 1 << 16 // where WRITEs go
	memory  = 1 << 18
	longest = 3000
)

func newChannel(t testing.TB, c enginetest.Chooser) *channel {
	x := &channel{c: c, placed: writes}
	caps := verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 3, MaxInline: 512}
	x.a, x.b = unconnected(t, 0x11, memory, caps, nil), unconnected(t, 0x12, memory, caps, nil)
	mtu := []verbs.MTU{1024, 256}[c.IntN(2)]
	psn := 0xffffff - uint32(c.IntN(64))
	x.a.connect(attr(mtu, 0x12, psn, 5))
	x.b.connect(attr(mtu, 0x11, 5, psn))
	x.a.Base, x.b.Base = bth.MakePSN(psn), bth.MakePSN(psn)
	x.loss = []int{60, 20, 4, 0}[c.IntN(4)]
	x.repeat = []int{30, 0}[c.IntN(2)]
	x.depart = []int{30, 0}[c.IntN(2)]
	x.delay = 1 + c.IntN(20)
	x.recvLen = []int{500, longest}[c.IntN(2)]
	return x
}

// post posts a message of a random kind and length.
func (x *channel) post() {
	n := x.c.IntN(longest + 1)
	if x.c.IntN(3) == 0 {
		n = x.c.IntN(40)
	}
	if x.placed+n > memory {
		return
	}
	src := x.c.IntN(writes - n)
	m := message{op: []verbs.WROpcode{verbs.WRWrite, verbs.WRWriteImm, verbs.WRSendImm}[x.c.IntN(3)], data: bytes.Clone(x.a.Mem[src : src+n])}
	w := verbs.SendWR{ID: uint64(len(x.msgs)), Opcode: m.op, Flags: verbs.SendSignaled, Imm: uint32(len(x.msgs)), SGL: []verbs.SGE{x.a.SGE(src, n/4), x.a.SGE(src+n/4, n-n/4)}}
	if n <= 512 && x.c.IntN(3) == 0 {
		w.Flags, w.SGL, w.Inline = w.Flags|verbs.SendInline, nil, m.data
	}
	if m.op != verbs.WRSendImm {
		m.at = x.placed
		x.placed += n
		w.RemoteAddr, w.RKey = x.b.Reg.IOVA+uint64(m.at), x.b.Reg.Key
	}
	if x.a.SQ.Put(&w) != nil {
		return
	}
	x.a.SQ.Publish()
	x.msgs = append(x.msgs, m)
}

// postRecv posts a receive request at a place of its own.
func (x *channel) postRecv() {
	id := len(x.recvs)
	at := id % 20 * longest
	w := verbs.RecvWR{ID: uint64(id), SGL: []verbs.SGE{x.b.SGE(at, x.recvLen/2), x.b.SGE(at+x.recvLen/2, x.recvLen-x.recvLen/2)}}
	if x.b.RQ.Put(&w) == nil {
		x.b.RQ.Publish()
		x.recvs = append(x.recvs, at)
	}
}

// transmit fills some bursts, of which the link takes what it likes.
func (x *channel) transmit() {
	bs := x.a.Bursts(1+x.c.IntN(3), 1+x.c.IntN(8))
	total := 0
	for _, b := range bs {
		total += b.Len()
	}
	take := total
	if x.c.IntN(4) == 0 {
		take = x.c.IntN(total + 1)
	}
	for _, b := range bs {
		n := min(take, b.Len())
		take -= n
		for _, p := range x.a.Parse(b, n) {
			x.launch(p)
		}
		x.a.qp.Sent(b, n)
	}
}

func (x *channel) launch(p *bth.Packet) {
	copies, late := 1, 0
	switch f := x.c.IntN(256); {
	case f < x.loss:
		copies = 0
	case f < x.loss+x.repeat:
		copies = 2
	case f < x.loss+x.repeat+x.depart:
		late = x.c.IntN(x.delay)
	}
	for i := range copies {
		x.order++
		x.wire = append(x.wire, flight{x.order + late + 3*i, p})
	}
}

// arrive delivers what is due, or all.
func (x *channel) arrive(all bool) {
	for len(x.wire) > 0 {
		k := 0
		for i := range x.wire {
			if x.wire[i].at < x.wire[k].at {
				k = i
			}
		}
		if !all && x.wire[k].at > x.order {
			return
		}
		p := x.wire[k].p
		x.wire = append(x.wire[:k], x.wire[k+1:]...)
		x.b.In(*p)
		x.arrived++
		x.check()
	}
}

// check looks at what the last packet completed: the very message that was
// sent, later than all before it.
func (x *channel) check() {
	t := x.b.T
	for _, w := range x.b.Done {
		if w.Status != verbs.WCSuccess || w.Flags&verbs.WCWithImm == 0 || int(w.Imm) >= len(x.msgs) {
			t.Fatalf("%+v", w)
		}
		if n := len(x.got); n > 0 && int(w.Imm) <= x.got[n-1] {
			t.Fatalf("message %d after %d", w.Imm, x.got[n-1])
		}
		m, at := x.msgs[w.Imm], x.recvs[w.ID]
		if m.op == verbs.WRWriteImm {
			at = m.at
		}
		if want := map[verbs.WROpcode]verbs.WCOpcode{verbs.WRSendImm: verbs.WCRecv, verbs.WRWriteImm: verbs.WCRecvWriteImm}[m.op]; w.Opcode != want || int(w.ByteLen) != len(m.data) || !bytes.Equal(x.b.Mem[at:at+len(m.data)], m.data) {
			t.Fatalf("message %d differs: %+v", w.Imm, w)
		}
		x.got = append(x.got, int(w.Imm))
	}
	x.b.Done = x.b.Done[:0]
}

// run posts n messages and returns when all has arrived or is lost.
func (x *channel) run(n int) {
	t := x.a.T
	for range n {
		x.post()
		for range x.c.IntN(4) {
			x.postRecv()
		}
		x.transmit()
		x.arrive(false)
	}
	x.postRecv()
	b := wire.NewBurst()
	for x.a.qp.Ready(0) {
		b.Reset(nil, 0, 0)
		x.a.qp.Fill(0, b)
		for _, p := range x.a.Parse(b, b.Len()) {
			x.launch(p)
		}
		x.a.qp.Sent(b, b.Len())
	}
	x.arrive(true)

	if len(x.a.Done) != len(x.msgs) {
		t.Fatalf("%d of %d requests are complete", len(x.a.Done), len(x.msgs))
	}
	for i, w := range x.a.Done {
		if w.Status != verbs.WCSuccess || int(w.ID) != i {
			t.Fatalf("request %d: %+v", i, w)
		}
	}
	x.sums()
}

// sums checks that the counters add up: every packet that arrived is repeated
// or moved the expected PSN, past those that are lost.
func (x *channel) sums() {
	t, s, c := x.b.T, x.b.qp.Stats(), x.b.qp.Counts()
	moved := x.b.qp.resp.epsn.Diff(x.b.Base)
	if s.RcvdRequests != uint64(x.arrived) || s.Recvs != uint64(len(x.got)) {
		t.Errorf("%d arrived, %d received: %+v", x.arrived, len(x.got), s)
	}
	if uint64(moved) != s.RcvdRequests-c[trace.DropDuplicate]+s.Lost {
		t.Errorf("the PSN moved by %d: %d came, %d repeated, %d lost", moved, s.RcvdRequests, c[trace.DropDuplicate], s.Lost)
	}
	for r, n := range c {
		switch trace.Reason(r) {
		case trace.DropDuplicate, trace.DropOutOfOrder, trace.DropMessage, trace.DropNoRecv, trace.DropTooLong:
		default:
			if n != 0 {
				t.Errorf("%v: %d", trace.Reason(r), n)
			}
		}
	}
	if a := x.a.qp.Stats(); a.Completed != uint64(len(x.msgs)) || uint64(x.a.qp.Next.Diff(x.a.Base)) != a.SentRequests {
		t.Errorf("sender: %+v", a)
	}
	if x.loss == 0 && x.depart == 0 && x.repeat == 0 {
		x.perfect()
	}
}

// perfect: nothing went wrong on the wire, so only receive requests did.
func (x *channel) perfect() {
	t, c := x.b.T, x.b.qp.Counts()
	want := 0
	for _, m := range x.msgs {
		if m.op != verbs.WRWrite {
			want++
		}
		if m.op == verbs.WRWrite && !bytes.Equal(x.b.Mem[m.at:m.at+len(m.data)], m.data) {
			t.Error("a WRITE differs")
		}
	}
	if got := len(x.got) + int(c[trace.DropNoRecv]+c[trace.DropTooLong]); got != want || x.b.qp.Stats().Lost != 0 {
		t.Errorf("%d of %d messages delivered or refused", got, want)
	}
}

// TestLossyChannel: over a wire that loses, repeats and reorders, what is
// delivered was sent, is whole, in order and delivered once.
func TestLossyChannel(t *testing.T) {
	var seen trace.Counts
	var lost uint64
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newChannel(t, rand.New(rand.NewPCG(seed, 3)))
			x.run(60)
			for i, n := range x.b.qp.Counts() {
				seen[i] += n
			}
			lost += x.b.qp.Stats().Lost
			seen[trace.RetryLink] += x.a.qp.Counts()[trace.RetryLink]
			if len(x.got) > 0 {
				seen[trace.None]++
			}
		})
	}
	for _, r := range []trace.Reason{trace.None, trace.DropDuplicate, trace.DropOutOfOrder, trace.DropMessage, trace.DropNoRecv, trace.DropTooLong, trace.RetryLink} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
}

// FuzzChannel runs a channel of the fuzzer's choice.
func FuzzChannel(f *testing.F) {
	for seed := range uint64(3) {
		f.Add(enginetest.Bytes(400, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := enginetest.Schedule(b[:min(len(b), 2048)])
		newChannel(t, &s).run(12)
	})
}
