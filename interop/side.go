package main

import (
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/verbs"
)

// side is one end of a case: gorxe, or the kernel through verbs_peer.
type side interface {
	regMR(size int, a verbs.Access) (memory, error)
	regForeign(size int, a verbs.Access) (memory, error) // in another protection domain
	createSRQ() (shared, error)
	createQP(verbs.QPType, shared) (queue, error) // shared may be nil
	// poll returns n completions, or fewer after wait.
	poll(n int, wait time.Duration) ([]verbs.WC, error)
	counters() (map[string]uint64, error)
	useCQ(depth int) error               // a new one, for the queue pairs to come and for poll
	events() ([]verbs.AsyncEvent, error) // since the last call
}

// shared is a shared receive queue of a side.
type shared interface {
	recv(*work) error
	SetLimit(int) error
}

// memory is a registered region of a side.
type memory interface {
	Addr() uint64
	RKey() uint32
	Write(off int, b []byte) error
	Read(off, n int) ([]byte, error)
	Deregister() error
}

// queue is a queue pair of a side.
type queue interface {
	local(peer netip.Addr, psn uint32) (verbs.Endpoint, error)
	Connect(local, remote verbs.Endpoint, o verbs.ConnectOptions) error
	listen(local, remote verbs.Endpoint, o verbs.ConnectOptions) error // to RTR alone
	Activate(verbs.DatagramOptions) error                              // UD
	attach(group verbs.GID) error                                      // UD
	detach(group verbs.GID) error
	reply(w *work, to verbs.WC, off int) error // to a datagram that w.mem has at an offset
	State() (verbs.QPState, error)
	MoveTo(verbs.QPState) error
	Destroy() error
	send(...*work) error // together
	recv(*work) error
}

// work is a work request of either side.
type work struct {
	id       uint64
	op       verbs.WROpcode
	mem      memory
	off, len int
	pieces   [][2]int        // offsets and lengths, instead of off and len
	twist    uint32          // bits of the local key that are wrong
	flags    verbs.SendFlags // but SendSignaled
	quiet    bool            // not signaled

	remote    uint64
	rkey      uint32
	imm       uint32
	add, swap uint64 // add is also what CmpSwap compares with

	to        verbs.AV // UD: where to; the guest uses its endpoint's GID
	qpn, qkey uint32   // UD
}

// kernel is a side in a guest.
type kernel struct{ *peer.Endpoint }

type kernelQP struct {
	*peer.QP
	gid verbs.GID
}

type kernelSRQ struct{ *peer.SRQ }

func (k kernel) regMR(size int, a verbs.Access) (memory, error) { return k.RegMR(size, a) }

func (k kernel) regForeign(size int, a verbs.Access) (memory, error) { return k.RegForeignMR(size, a) }

func (k kernel) useCQ(depth int) error { return k.UseCQ(depth) }

func (k kernel) events() ([]verbs.AsyncEvent, error) { return k.Events() }

func (k kernel) createSRQ() (shared, error) {
	s, err := k.CreateSRQ(256)
	return kernelSRQ{s}, err
}

func (k kernel) createQP(t verbs.QPType, s shared) (queue, error) {
	var srq *peer.SRQ
	if s != nil {
		srq = s.(kernelSRQ).SRQ
	}
	q, err := k.CreateQP(t, srq)
	if err != nil {
		return nil, err
	}
	return kernelQP{q, k.GID()}, nil
}

func (k kernel) counters() (map[string]uint64, error) { return k.Counters() }

func (k kernel) poll(n int, wait time.Duration) ([]verbs.WC, error) { return k.Poll(n, wait) }

func (q kernelQP) local(_ netip.Addr, psn uint32) (verbs.Endpoint, error) {
	return verbs.Endpoint{QPN: q.QPN(), PSN: psn, GID: q.gid}, nil
}

func (q kernelQP) listen(local, remote verbs.Endpoint, o verbs.ConnectOptions) error {
	return q.Listen(local, remote, o)
}

func (q kernelQP) send(ws ...*work) error {
	var l []*peer.Work
	for _, w := range ws {
		l = append(l, w.peer())
	}
	return q.Send(l...)
}

func (q kernelQP) recv(w *work) error { return q.Recv(w.peer()) }

func (q kernelQP) attach(group verbs.GID) error { return q.Attach(group) }

func (q kernelQP) detach(group verbs.GID) error { return q.Detach(group) }

func (q kernelQP) reply(w *work, to verbs.WC, off int) error {
	p := w.peer()
	return q.Reply(p, to.ID, p.MR, off)
}

func (s kernelSRQ) recv(w *work) error { return s.Recv(w.peer()) }

func (w *work) sendFlags() verbs.SendFlags {
	if w.quiet {
		return w.flags
	}
	return w.flags | verbs.SendSignaled
}

func (w *work) peer() *peer.Work {
	return &peer.Work{
		ID: w.id, Code: w.op, MR: w.mem.(*peer.MR), Off: w.off, Len: w.len, Pieces: w.pieces, Twist: w.twist, Flags: w.sendFlags(),
		RemoteAddr: w.remote, RKey: w.rkey, Imm: w.imm, CompareAdd: w.add, Swap: w.swap,
		To: w.to, QPN: w.qpn, QKey: w.qkey,
	}
}
