package demo

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// operation is one row of the table: what is posted again and again, and how
// its data are checked.
type operation struct {
	name   string
	code   verbs.WROpcode
	size   int
	window int // requests outstanding; with 1, the row is of times, not of a rate
}

var operations = []operation{
	{"SEND, one at a time", verbs.WRSend, 64, 1},
	{"SEND", verbs.WRSend, 64, 32},
	{"SEND", verbs.WRSend, 1 << 20, 2},
	{"RDMA WRITE", verbs.WRWrite, 1 << 20, 4},
	{"RDMA READ", verbs.WRRead, 1 << 20, 2},
	{"FetchAdd", verbs.WRFetchAdd, 8, 16},
	{"CmpSwap", verbs.WRCmpSwap, 8, 16},
}

// row is the outcome of an operation.
type row struct {
	op    operation
	n     int
	took  time.Duration
	times []time.Duration // of each, when one is outstanding at a time; sorted
	check string          // what was compared

	packets, bursts uint64 // that the first NIC sent
}

// Where things lie in each side's memory: the counter, the source of b's READ
// and a's SEND and WRITE data, and where data arrive.
const (
	counterOff = 0
	sourceOff  = 64
	targetOff  = memory / 2
)

// The round that is captured: how many of each operation, how long at most, in
// packets of which payload. The file stays under 1 MB, and there are packets
// enough to lose some.
const (
	captureOps  = 3
	captureSize = 32 << 10
	captureMTU  = verbs.MTU(512)
)

// run posts an operation for d, or a few times, waits for it and checks the
// data at the far end.
func (p *pair) run(ctx context.Context, op operation, d time.Duration) (row, error) {
	src, dst := p.a.mr.Bytes()[sourceOff:sourceOff+op.size], p.b.mr.Bytes()[targetOff:targetOff+op.size]
	if op.code == verbs.WRRead {
		src, dst = p.b.mr.Bytes()[sourceOff:sourceOff+op.size], p.a.mr.Bytes()[targetOff:targetOff+op.size]
	}
	for i := range src {
		src[i] = byte(i*31 + i>>8*7 + int(op.code) + 1)
	}
	clear(dst)
	p.b.mr.SetUint64(counterOff, 0)
	p.settle()
	r := row{op: op}
	start := time.Now()
	last := start
	var posted, done, recvs int
	var wcs [16]verbs.WC
	more := func() bool {
		if d == 0 {
			return posted < captureOps
		}
		return time.Since(start) < d
	}
	for {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		for posted-done < op.window && more() {
			if op.code == verbs.WRSend {
				if _, err := p.b.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.b.mr.SGE(targetOff, op.size)}}}); err != nil {
					return r, err
				}
				recvs++
			}
			if err := p.post(op, uint64(posted)); err != nil {
				return r, err
			}
			posted++
		}
		if done == posted && recvs == 0 {
			break
		}
		n, err := p.poll(ctx, wcs[:], &recvs)
		if err != nil {
			return r, err
		}
		done += n
		if n > 0 && op.window == 1 {
			now := time.Now()
			r.times = append(r.times, now.Sub(last))
			last = now
		}
	}
	r.n, r.took = done, time.Since(start)
	slices.Sort(r.times)
	p.settle()
	switch op.code {
	case verbs.WRFetchAdd, verbs.WRCmpSwap:
		if got := p.b.mr.Uint64(counterOff); got != uint64(done) {
			return r, fmt.Errorf("the counter is %d after %d operations", got, done)
		}
		r.check = "counter = operations"
	default:
		if !bytes.Equal(src, dst) {
			return r, fmt.Errorf("data differ at the far end")
		}
		r.check = "data equal"
	}
	return r, nil
}

// settle takes each device's lock once. What orders this program's accesses to
// b's memory with those of b's NIC on a's behalf is packets, which the race
// detector does not see; a peer in another process has nothing to order.
func (p *pair) settle() {
	_, _ = p.a.qp.Query()
	_, _ = p.b.qp.Query()
}

func (p *pair) post(op operation, i uint64) error {
	w := verbs.SendWR{ID: i, Opcode: op.code, Flags: verbs.SendSignaled, RemoteAddr: p.b.mr.Addr() + targetOff, RKey: p.b.mr.RKey()}
	switch op.code {
	case verbs.WRRead:
		w.SGL = []verbs.SGE{p.a.mr.SGE(targetOff, op.size)}
		w.RemoteAddr = p.b.mr.Addr() + sourceOff
	case verbs.WRFetchAdd:
		w.SGL, w.RemoteAddr, w.CompareAdd = []verbs.SGE{p.a.mr.SGE(counterOff, 8)}, p.b.mr.Addr()+counterOff, 1
	case verbs.WRCmpSwap: // executed in order, each expects the value that the last one leaves
		w.SGL, w.RemoteAddr, w.CompareAdd, w.Swap = []verbs.SGE{p.a.mr.SGE(counterOff, 8)}, p.b.mr.Addr()+counterOff, i, i+1
	default:
		w.SGL = []verbs.SGE{p.a.mr.SGE(sourceOff, op.size)}
	}
	_, err := p.a.qp.PostSend([]verbs.SendWR{w})
	return err
}

// poll takes completions of both sides and returns how many requests of a
// finished; receives that finished are taken off recvs.
func (p *pair) poll(ctx context.Context, wcs []verbs.WC, recvs *int) (int, error) {
	for {
		n := p.a.cq.Poll(wcs)
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, err
			}
		}
		m := p.b.cq.Poll(wcs)
		for i := range wcs[:m] {
			if err := wcs[i].Err(); err != nil {
				return 0, err
			}
		}
		*recvs -= m
		if n+m > 0 {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}
