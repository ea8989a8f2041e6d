package rc

import (
	"math"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// transmit fills up to n bursts of up to segs packets, of which the link takes
// all but less. It reports whether there were any.
func (f *fighter) transmit(n, segs, less, order int) bool {
	total, k := 0, 0
	for _, w := range f.q.out {
		if w.local() && !w.ran {
			n = 1 // it would change what was answered in a burst before it
		}
	}
	var was [len(duelBursts)]verbs.QPState
	for ; k < n; k++ {
		b := duelBursts[k]
		b.Reset(nil, segs, 0)
		was[k] = f.state
		ready := f.qp.Ready(f.d.now)
		got := f.qp.Fill(f.d.now, b)
		f.check(nil)
		if got && !ready {
			f.t.Fatalf("%s: not Ready, but Fill gives %d packets", f.name, b.Len())
		}
		if !got {
			if f.qp.Ready(f.d.now) {
				f.t.Fatalf("%s: Ready, but Fill gives nothing", f.name)
			}
			break
		}
		total += b.Len()
	}
	take := max(0, total-less)
	var cut [len(duelBursts)]int
	for i := range k {
		cut[i] = min(take, duelBursts[i].Len())
		take -= cut[i]
		f.was = was[i]
		f.carry(duelBursts[i], cut[i])
	}
	for i := range k {
		if order%2 == 1 {
			i = k - 1 - i
		}
		f.qp.Sent(duelBursts[i], cut[i])
	}
	return k > 0
}

// carry puts the first n packets of a burst on the wire.
func (f *fighter) carry(b *wire.Burst, n int) {
	b.Seal(wire.IDCount)
	for k := range n {
		seg := b.AppendSegment(nil, k)
		if len(seg) > b.SegLen() || k < b.Len()-1 && len(seg) != b.SegLen() {
			f.t.Fatalf("%s: segment %d of %d has %d octets of %d", f.name, k, b.Len(), len(seg), b.SegLen())
		}
		p := new(bth.Packet)
		if why := bth.Parse(seg, p); why != trace.None {
			f.t.Fatalf("%s: own packet does not parse: %v", f.name, why)
		}
		f.logf("sends", p)
		if p.DestQP != f.peer.qp.QPN() || p.PKey != 0xffff || int(p.Pad) != (4-len(p.Payload)%4)%4 {
			f.t.Fatalf("%s: header %+v", f.name, *p)
		}
		if p.Opcode >= bth.RCReadRespFirst && p.Opcode <= bth.RCAtomicAck {
			f.r.sent(p)
		} else {
			f.q.sent(p)
		}
		f.peer.launch(p)
	}
}

// launch puts a packet on the way to a side, or has a fault befall it.
func (f *fighter) launch(p *bth.Packet) {
	for i := range f.mishaps {
		if f.mishaps[i].after--; f.mishaps[i].after >= 0 {
			continue
		}
		what := f.mishaps[i].what
		f.mishaps = append(f.mishaps[:i], f.mishaps[i+1:]...)
		switch what {
		case 0:
			f.d.troubles++
			f.d.past = append(f.d.past, p)
		case 1:
			f.to = append(f.to, p, p)
		default:
			f.d.troubles++
			f.held = append(f.held, p)
		}
		return
	}
	f.to = append(f.to, p)
}

// pump moves packets until nothing more happens at this instant.
func (d *duel) pump() {
	for n, busy := 0, true; busy; n++ {
		if busy = false; n > 10000 {
			d.t.Fatal("the two talk for ever")
		}
		for _, f := range d.sides {
			for f.transmit(1, 0, 0, 0) {
				busy = true
			}
		}
		for _, f := range d.sides {
			for len(f.to)+len(f.held) > 0 {
				if len(f.to) == 0 {
					f.to, f.held = f.held, nil
				}
				p := f.to[0]
				f.to = f.to[1:]
				f.deliver(p)
				busy = true
			}
		}
	}
	for _, f := range d.sides {
		f.r.quiet()
	}
}

// advance moves time to the next deadline, and reports whether there is one.
func (d *duel) advance() bool {
	next := min(d.sides[0].qp.Deadline(), d.sides[1].qp.Deadline())
	if next == math.MaxInt64 {
		return false
	}
	d.now = max(d.now, next)
	for _, f := range d.sides {
		if d.troubles += len(f.to) + len(f.held); f.qp.Ready(d.now) { // late
			d.troubles++
		}
	}
	for _, f := range d.sides {
		f.timer()
	}
	return true
}

// finish lets the two come to an end over a perfect wire: everything posted
// completes.
func (d *duel) finish() {
	for _, f := range d.sides {
		f.mishaps = nil
		if f.state == verbs.StateSQD {
			f.modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
			f.state = verbs.StateRTS
		}
	}
	for n := 0; ; n++ {
		for _, f := range d.sides {
			for n >= d.hungry && f.state == verbs.StateRTS && len(f.r.posted) < 4 {
				f.postRecv([]verbs.SGE{f.sgeOf(mainIOVA, mainLen, f.regs[0].key)})
			}
		}
		d.pump()
		if len(d.sides[0].q.out)+len(d.sides[1].q.out) == 0 || !d.advance() {
			break
		}
		if n > 5000 {
			d.t.Fatal("there is no end")
		}
	}
	for _, f := range d.sides {
		if len(f.q.out) > 0 && (f.attr.Timeout != 0 || !d.tainted && d.clean && d.troubles == 0 && !d.allowed[verbs.WCRetryExcErr]) {
			f.t.Fatalf("%s hangs with %d requests, at %v", f.name, len(f.q.out), f.q.una)
		}
		if f.r.fatal != nil {
			f.t.Fatalf("%s is in ERR, and its peer never heard of %v", f.name, f.r.fatal.syndrome)
		}
	}
}
