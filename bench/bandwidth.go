package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// prepare posts the receive requests that the other end's first messages need.
func (e *end) prepare() error {
	switch {
	case e.Op == "send" && e.takes():
		for i := range 2 * e.Window {
			if err := e.postRecv(i); err != nil {
				return err
			}
		}
	case e.Op == "send_lat":
		return e.postRecv(0)
	}
	return nil
}

func (e *end) sends() bool { return !e.Server || e.Both }
func (e *end) takes() bool { return e.Server || e.Both }

// postRecv posts a receive request for the nth message.
func (e *end) postRecv(n int) error {
	at := e.Region + n*e.Size%e.Region
	_, err := e.qps[0].PostRecv([]verbs.RecvWR{{ID: recvID, SGL: []verbs.SGE{e.mr.SGE(at, e.Size)}}})
	return err
}

// recvID tells the completions of receive requests from those of send
// requests.
const recvID = 1 << 63

// stuck is how long after the time the last requests may take.
const stuck = 30 * time.Second

// flow is the traffic of an end.
type flow struct {
	*end
	wrs      []verbs.SendWR
	recv     []verbs.RecvWR
	sgl      []verbs.SGE
	wc       [64]verbs.WC
	posted   int // messages
	done     int
	arrived  int
	reposted int
}

func newFlow(e *end) *flow {
	f := &flow{end: e, wrs: make([]verbs.SendWR, e.List), recv: make([]verbs.RecvWR, 64), sgl: make([]verbs.SGE, e.List)}
	code := map[string]verbs.WROpcode{"write": verbs.WRWrite, "read": verbs.WRRead, "send": verbs.WRSend}[e.Op]
	for i := range f.wrs {
		f.wrs[i] = verbs.SendWR{Opcode: code, RKey: e.peer.RKey, SGL: f.sgl[i : i+1]}
	}
	f.wrs[e.List-1].Flags = verbs.SendSignaled // and says that those before it are done
	for i := range f.recv {
		f.recv[i] = verbs.RecvWR{ID: recvID, SGL: []verbs.SGE{e.mr.SGE(e.Region, e.Size)}}
	}
	return f
}

// post hands over a list of messages, on the connection whose turn it is.
func (f *flow) post() error {
	for i := range f.wrs {
		at := (f.posted + i) * f.Size % f.Region
		mine, theirs := at, f.Region+at
		if f.Op == "read" {
			mine, theirs = theirs, mine
		}
		f.sgl[i] = f.mr.SGE(mine, f.Size)
		f.wrs[i].RemoteAddr = f.peer.Addr + uint64(theirs)
	}
	_, err := f.qps[f.posted/f.List%f.Active].PostSend(f.wrs)
	f.posted += f.List
	return err
}

// poll takes completions, and posts a receive request again for each that was
// used, many at once.
func (f *flow) poll() error {
	n := f.cq.Poll(f.wc[:])
	for i := range f.wc[:n] {
		c := &f.wc[i]
		if err := c.Err(); err != nil {
			return err
		}
		if c.ID == recvID {
			f.arrived++
		} else {
			f.done += f.List
		}
	}
	for f.arrived-f.reposted >= min(len(f.recv), f.Window) {
		k := min(len(f.recv), f.Window)
		if _, err := f.qps[0].PostRecv(f.recv[:k]); err != nil {
			return err
		}
		f.reposted += k
	}
	return nil
}

// bandwidth keeps requests outstanding for the time, and drives the other
// end's until that is done too. Its figure is Gbit/s of payload, of both
// directions where both send.
func (e *end) bandwidth() (samples, error) {
	f := newFlow(e)
	over := make(chan error, 1)
	var theirs hello
	go func() { over <- e.in.Decode(&theirs) }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	var gbits float64
	if e.sends() {
		for open := true; open || f.done < f.posted; {
			now := time.Since(start)
			open = now < e.Time
			for open && f.posted-f.done+f.List <= f.Window {
				if err := f.post(); err != nil {
					return nil, err
				}
			}
			if err := f.poll(); err != nil {
				return nil, err
			}
			if now > e.Time+stuck {
				return nil, fmt.Errorf("%d of %d requests are not finished %v after the end", f.posted-f.done, f.posted, stuck)
			}
		}
		gbits = float64(f.done) * float64(e.Size) * 8 / time.Since(start).Seconds() / 1e9
	}
	took := time.Since(start).Seconds()
	runtime.ReadMemStats(&after)
	if err := e.out.Encode(hello{Gbits: gbits}); err != nil {
		return nil, err
	}
	for waiting := true; waiting; { // the other end may still send
		if e.Op == "write" && e.Socket != "" && !e.sends() { // its daemon moves things
			if err := <-over; err != nil {
				return nil, err
			}
			break
		}
		if err := f.poll(); err != nil {
			return nil, err
		}
		select {
		case err := <-over:
			if err != nil {
				return nil, err
			}
			waiting = false
		default:
		}
	}
	if err := e.intact(f); err != nil {
		return nil, err
	}
	return e.figures(gbits+theirs.Gbits, f, took, after.Mallocs-before.Mallocs)
}

func (e *end) figures(gbits float64, f *flow, took float64, mallocs uint64) (samples, error) {
	c, err := e.dev.Counters()
	if err != nil {
		return nil, err
	}
	s := samples{"": gbits, "repeated": float64(c["repeated_requests"])}
	if e.Size < 4096 {
		s["millions"] = float64(f.done) / took / 1e6
	}
	if n := c["sent_pkts"]; n > 0 {
		s["allocs"] = float64(mallocs) / float64(n)
		s["segments"] = float64(n) / float64(max(c["tx_bursts"], 1))
	}
	if e.perQP > 0 {
		s["octets_per_qp"] = e.perQP
	}
	return s, nil
}

// intact checks what arrived against what the other end has sent.
func (e *end) intact(f *flow) error {
	if e.Op == "read" != !e.Server && !e.Both {
		return nil // nothing arrives here
	}
	for i, b := range e.mr.Bytes()[e.Region : e.Region+e.Size] {
		if b != pattern(i) {
			return errors.New("what arrived is not what was sent")
		}
	}
	return nil
}
