package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// orders are what an end is told: one line, then the other end's queue pairs as
// another, and, of the sender, nothing more.
type orders struct {
	Addr, Link, Control string
	Op                  string
	Flows, Size, Depth  int
	Sends               bool // it is the one that posts
	For                 time.Duration
	Begin, End          []time.Duration // of each flow
}

// remote is what the other end has to know of a queue pair.
type remote struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     uint32
}

// sample is what each queue pair has completed, in octets, after some time.
type sample struct {
	At     time.Duration
	Octets []uint64
	Counts map[string]uint64 `json:",omitempty"` // with the last one
}

// every is the time between samples.
const every = 100 * time.Millisecond

// flow is one queue pair.
type flow struct {
	qp         *verbs.QP
	mr         *verbs.MR
	peer       remote
	octets     uint64
	posted     int
	begin, end time.Duration
}

// end is one side.
type end struct {
	orders
	ctx   *verbs.Context
	cq    *verbs.CQ
	flows []*flow
	byQPN map[uint32]*flow
}

// runEnd is a process of its own: it reads orders, says what its queue pairs are,
// reads what the others are, and, when it sends, samples until it is done.
func runEnd(in io.Reader, out io.Writer) error {
	r, w := json.NewDecoder(in), json.NewEncoder(out)
	e := end{byQPN: make(map[uint32]*flow)}
	if err := r.Decode(&e.orders); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	defer e.ctx.Close()
	own := make([]remote, len(e.flows))
	for i, f := range e.flows {
		ep, err := e.endpoint(f)
		if err != nil {
			return err
		}
		own[i] = remote{ep, f.mr.Addr(), f.mr.RKey()}
	}
	if err := w.Encode(own); err != nil {
		return err
	}
	var peers []remote
	if err := r.Decode(&peers); err != nil {
		return err
	}
	for i, f := range e.flows {
		f.peer = peers[i]
		if err := f.qp.Connect(own[i].Endpoint, peers[i].Endpoint, verbs.ConnectOptions{Access: verbs.AccessAll}); err != nil {
			return err
		}
	}
	if err := w.Encode("ready"); err != nil {
		return err
	}
	var start string
	if err := r.Decode(&start); err != nil {
		return err
	}
	if e.Sends {
		return e.send(w)
	}
	return e.receive(r, w)
}

func (e *end) open() (err error) {
	e.ctx, err = gorxe.Open(gorxe.Config{Addr: e.Addr, Link: e.Link, CC: e.Control, Daemon: gorxe.DaemonNever})
	if err != nil {
		return err
	}
	pd, err := e.ctx.AllocPD()
	if err != nil {
		return err
	}
	if e.cq, err = e.ctx.CreateCQ(verbs.CQConfig{Depth: 2 * e.Flows * e.Depth}); err != nil {
		return err
	}
	for i := range e.Flows {
		f := &flow{}
		if len(e.Begin) > i {
			f.begin, f.end = e.Begin[i], e.End[i]
		}
		if f.mr, err = pd.AllocMR(e.Size, verbs.AccessAll); err != nil {
			return err
		}
		typ := verbs.RC
		if e.Op == "uc" {
			typ = verbs.UC
		}
		if f.qp, err = pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendWR: e.Depth, MaxRecvWR: e.Depth}}); err != nil {
			return err
		}
		e.flows = append(e.flows, f)
		e.byQPN[f.qp.QPN()] = f
	}
	return nil
}

func (e *end) endpoint(f *flow) (verbs.Endpoint, error) {
	gids, err := e.ctx.GIDs()
	if err != nil {
		return verbs.Endpoint{}, err
	}
	return f.qp.Endpoint(gids[0].GID.Addr())
}

func (e *end) post(f *flow) error {
	wr := verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{f.mr.SGE(0, e.Size)}, Flags: verbs.SendSignaled, RemoteAddr: f.peer.Addr, RKey: f.peer.RKey}
	switch e.Op {
	case "send":
		wr.Opcode = verbs.WRSend
	case "read":
		wr.Opcode = verbs.WRRead
	}
	_, err := f.qp.PostSend([]verbs.SendWR{wr})
	f.posted++
	return err
}

// send keeps each queue pair busy while it is its time, and samples.
func (e *end) send(w *json.Encoder) error {
	began := time.Now()
	var wc [32]verbs.WC
	next := every
	for {
		now := time.Since(began)
		for _, f := range e.flows {
			if now < f.begin || f.end > 0 && now >= f.end {
				continue
			}
			for f.posted < e.Depth {
				if err := e.post(f); err != nil {
					return err
				}
			}
		}
		n := e.cq.Poll(wc[:])
		for _, c := range wc[:n] {
			if c.Status != verbs.WCSuccess {
				return fmt.Errorf("queue pair %#x: %w", c.QPN, c.Err())
			}
			f := e.byQPN[c.QPN]
			f.posted--
			f.octets += uint64(e.Size)
		}
		if now < next {
			continue
		}
		s := sample{At: now}
		for _, f := range e.flows {
			s.Octets = append(s.Octets, f.octets)
		}
		last := now >= e.For
		if last {
			s.Counts, _ = e.ctx.Counters()
		}
		if err := w.Encode(s); err != nil || last {
			return err
		}
		next += every
	}
}

// receive keeps receive requests posted until it is told to stop.
func (e *end) receive(r *json.Decoder, w *json.Encoder) error {
	over := make(chan error, 1)
	go func() {
		var stop string
		over <- r.Decode(&stop)
	}()
	if e.Op == "send" {
		for _, f := range e.flows {
			for range e.Depth {
				if err := e.offer(f); err != nil {
					return err
				}
			}
		}
	}
	var wc [32]verbs.WC
	for {
		select {
		case err := <-over:
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			c, err := e.ctx.Counters()
			if err != nil {
				return err
			}
			return w.Encode(c)
		default:
		}
		n := e.cq.Poll(wc[:])
		for _, c := range wc[:n] {
			if c.Status == verbs.WCSuccess {
				if err := e.offer(e.byQPN[c.QPN]); err != nil {
					return err
				}
			}
		}
		if n == 0 && e.Op != "send" {
			time.Sleep(time.Millisecond) // the device's own goroutine serves
		}
	}
}

func (e *end) offer(f *flow) error {
	_, err := f.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{f.mr.SGE(0, e.Size)}}})
	return err
}
