package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/verbs"
)

// refusal is a request that fails, for a reason at either end.
type refusal struct {
	name string
	r    work

	// at the requester
	own        verbs.Access // of its region; 0 all
	ownForeign bool         // its region is of another protection domain
	reads      int          // max_rd_atomic + 1; 0 the usual

	// at the responder
	at      int          // of the request in the responder's region
	remote  uint64       // the address itself instead
	region  verbs.Access // of the responder's region; 0 all
	foreign bool         // its region is of another protection domain
	qp      verbs.Access // of its queue pair; 0 all
	dereg   bool         // the region is deregistered before
	room    int          // of receive requests
	into    int          // where they begin in the region
	twist   uint32       // bits of their local key that are wrong
	mtu     verbs.MTU    // path MTU of the responder; 0 that of the requester

	status  verbs.WCStatus // of the first request; the others are flushed
	recv    verbs.WCStatus // of the first receive request; 0 flushed, as the others
	alone   bool           // the responder does not notice: its queue pair lives on
	written bool           // the first packets of the message are

	unposted bool              // rxe does not even post it
	post     bool              // nobody posts it
	rxe      [2]verbs.WCStatus // what rxe makes of it instead, as responder
	rxeReq   verbs.WCStatus    // as requester
	rxeWaits bool              // as requester it never completes it
}

const (
	regionOctets = 1 << 14
	all          = verbs.AccessAll
	readable     = verbs.AccessRemoteRead
	wrongKey     = 0x5a00
)

// malformed is what rxe makes of whatever a receive request cannot take.
var malformed = [2]verbs.WCStatus{verbs.WCRemOpErr, verbs.WCLocQPOpErr}

// refusals are grouped by what the requester is told.
var refusals = slices.Concat(invalidRequests, accessErrors, operationErrors, localErrors)

var invalidRequests = []refusal{
	{name: "WRITE, queue pair without", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemInvReqErr, qp: all &^ verbs.AccessRemoteWrite},
	{name: "READ, queue pair without", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemInvReqErr, qp: all &^ verbs.AccessRemoteRead},
	{name: "FetchAdd, queue pair without", r: work{op: verbs.WRFetchAdd, len: 8, add: 1}, status: verbs.WCRemInvReqErr, qp: all &^ verbs.AccessRemoteAtomic},
	{name: "CmpSwap, queue pair without", r: work{op: verbs.WRCmpSwap, len: 8}, status: verbs.WCRemInvReqErr, qp: all &^ verbs.AccessRemoteAtomic},
	{name: "FetchAdd unaligned", r: work{op: verbs.WRFetchAdd, len: 8}, status: verbs.WCRemInvReqErr, at: 4, unposted: true},
	{name: "CmpSwap unaligned", r: work{op: verbs.WRCmpSwap, len: 8}, status: verbs.WCRemInvReqErr, at: 1, unposted: true},
	{name: "SEND too long, one packet", r: work{op: verbs.WRSend, len: 101}, status: verbs.WCRemInvReqErr, room: 100, recv: verbs.WCLocLenErr, rxe: malformed},
	{name: "SEND too long, many packets", r: work{op: verbs.WRSend, len: 9000}, status: verbs.WCRemInvReqErr, room: 8999, recv: verbs.WCLocLenErr, rxe: malformed},
	{name: "SEND with immediate data, no room at all", r: work{op: verbs.WRSendImm, len: 1, imm: 1}, status: verbs.WCRemInvReqErr, recv: verbs.WCLocLenErr, rxe: malformed},
	{name: "WRITE, path MTU smaller there, one packet", r: work{op: verbs.WRWrite, len: 1000}, status: verbs.WCRemInvReqErr, mtu: 512},
	{name: "WRITE, path MTU smaller there, many packets", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemInvReqErr, mtu: 512},
	{name: "WRITE, path MTU larger there", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemInvReqErr, mtu: 2048},
	{name: "SEND, path MTU smaller there", r: work{op: verbs.WRSend, len: 5000}, status: verbs.WCRemInvReqErr, room: 5000, mtu: 256, rxe: [2]verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemInvReqErr}},
}

var accessErrors = []refusal{
	{name: "WRITE, region without", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemAccessErr, region: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic},
	{name: "READ, region without", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemAccessErr, region: all &^ verbs.AccessRemoteRead},
	{name: "CmpSwap, region without", r: work{op: verbs.WRCmpSwap, len: 8}, status: verbs.WCRemAccessErr, region: all &^ verbs.AccessRemoteAtomic},
	{name: "WRITE, region of another domain", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemAccessErr, foreign: true},
	{name: "READ, region of another domain", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemAccessErr, foreign: true},
	{name: "FetchAdd, region of another domain", r: work{op: verbs.WRFetchAdd, len: 8}, status: verbs.WCRemAccessErr, foreign: true},
	{name: "WRITE beyond", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemAccessErr, at: regionOctets - 4999},
	{name: "WRITE with immediate data beyond", r: work{op: verbs.WRWriteImm, len: 5000, imm: 1}, status: verbs.WCRemAccessErr, at: regionOctets - 4999},
	{name: "READ beyond", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemAccessErr, at: regionOctets - 4999},
	{name: "READ before", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemAccessErr, at: -1},
	{name: "FetchAdd beyond", r: work{op: verbs.WRFetchAdd, len: 8}, status: verbs.WCRemAccessErr, at: regionOctets},
	{name: "WRITE around the end of addresses", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemAccessErr, remote: ^uint64(0) - 4095},
	{name: "READ around the end of addresses", r: work{op: verbs.WRRead, len: 5000}, status: verbs.WCRemAccessErr, remote: ^uint64(0) - 4095},
	{name: "WRITE deregistered", r: work{op: verbs.WRWrite, len: 5000}, status: verbs.WCRemAccessErr, dereg: true},
	{name: "READ deregistered", r: work{op: verbs.WRRead, len: 1}, status: verbs.WCRemAccessErr, dereg: true},
}

var operationErrors = []refusal{
	{name: "SEND to a region that may not be written", r: work{op: verbs.WRSend, len: 3000}, status: verbs.WCRemOpErr, region: readable, room: 8999, recv: verbs.WCLocProtErr, rxe: malformed},
	{name: "SEND to a region of another domain", r: work{op: verbs.WRSend, len: 3000}, status: verbs.WCRemOpErr, foreign: true, room: 8999, recv: verbs.WCLocProtErr, rxe: malformed},
	{name: "SEND to a wrong local key", r: work{op: verbs.WRSend, len: 100}, status: verbs.WCRemOpErr, twist: wrongKey, room: 8999, recv: verbs.WCLocProtErr, rxe: malformed},
	{name: "SEND beyond the region of a receive request", r: work{op: verbs.WRSend, len: 3000}, status: verbs.WCRemOpErr, into: regionOctets - 100, room: 5000, recv: verbs.WCLocProtErr, rxe: malformed},
}

// localErrors are the requester's own; the responder hears of none. rxe flushes what
// it cannot read the data of, and does not tell which request was to blame.
var localErrors = []refusal{
	{name: "SEND from a wrong local key", r: work{op: verbs.WRSend, len: 100, twist: wrongKey}, status: verbs.WCLocProtErr, alone: true, room: 5000, rxeReq: verbs.WCWRFlushErr},
	{name: "WRITE from beyond the region", r: work{op: verbs.WRWrite, off: regionOctets - 99, len: 100}, status: verbs.WCLocProtErr, alone: true, rxeReq: verbs.WCWRFlushErr},
	{name: "WRITE of many packets from beyond the region", r: work{op: verbs.WRWrite, off: regionOctets - 4999, len: 5000}, status: verbs.WCLocProtErr, alone: true, written: true, rxeReq: verbs.WCWRFlushErr},
	{name: "SEND from a region of another domain", r: work{op: verbs.WRSend, len: 100}, ownForeign: true, status: verbs.WCLocProtErr, alone: true, room: 5000, rxeReq: verbs.WCWRFlushErr},
	{name: "READ to a wrong local key", r: work{op: verbs.WRRead, len: 100, twist: wrongKey}, status: verbs.WCLocProtErr, alone: true},
	{name: "READ to beyond the region", r: work{op: verbs.WRRead, off: regionOctets - 99, len: 100}, status: verbs.WCLocProtErr, alone: true},
	{name: "READ to a region that may not be written", r: work{op: verbs.WRRead, len: 5000}, own: readable, status: verbs.WCLocProtErr, alone: true},
	{name: "READ to a region of another domain", r: work{op: verbs.WRRead, len: 5000}, ownForeign: true, status: verbs.WCLocProtErr, alone: true},
	{name: "FetchAdd to a region that may not be written", r: work{op: verbs.WRFetchAdd, len: 8}, own: readable, status: verbs.WCLocProtErr, alone: true},
	{name: "FetchAdd of 4 octets", r: work{op: verbs.WRFetchAdd, len: 4}, status: verbs.WCLocLenErr, alone: true, unposted: true},
	{name: "SEND of more than 2^31 octets", r: work{op: verbs.WRSend, len: 1<<31 + 1}, status: verbs.WCLocLenErr, alone: true, room: 100, rxeReq: verbs.WCWRFlushErr},
	{name: "READ with no READs allowed", r: work{op: verbs.WRRead, len: 100}, reads: 1, status: verbs.WCLocQPOpErr, alone: true, rxeWaits: true},
	{name: "SEND of more pieces than agreed", r: work{op: verbs.WRSend, pieces: make([][2]int, 33)}, alone: true, post: true},
}

// refused asks for what it may not have, and looks at what both ends make of
// it: the requester's status, the responder's receive completion, the states,
// the asynchronous events, and that memory is as it was.
func (w *world) refused() error {
	return w.refuseAll(slices.Concat(invalidRequests, accessErrors, operationErrors))
}

// refusedHere asks for what the requester's own end refuses.
func (w *world) refusedHere() error { return w.refuseAll(localErrors) }

func (w *world) refuseAll(cs []refusal) error {
	var errs []error
	for _, c := range cs {
		if err := w.refuse(&c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// region registers a region of an end.
func (e *end) region(size int, a verbs.Access, foreign bool) (memory, error) {
	register := e.side.regMR
	if foreign {
		register = e.side.regForeign
	}
	m, err := register(size, cmp.Or(a, all))
	if err != nil {
		err = fmt.Errorf("%s: region: %w", e.name, err)
	}
	return m, err
}

func (w *world) refuse(c *refusal) (err error) {
	if w.req.mem, err = w.req.region(regionOctets, c.own, c.ownForeign); err != nil {
		return err
	}
	if w.rsp.mem, err = w.rsp.region(regionOctets, c.region, c.foreign); err != nil {
		return err
	}
	before := w.bytes(regionOctets)
	if err := w.rsp.fill(before); err != nil {
		return err
	}
	w.tune = func(e *end, o *verbs.ConnectOptions) {
		if e.name == w.rsp.name {
			o.Access, o.PathMTU = cmp.Or(c.qp, all), cmp.Or(c.mtu, o.PathMTU)
		} else if c.reads != 0 {
			o.MaxRdAtomic = c.reads - 1
		}
	}
	if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
		return err
	}
	for id := range uint64(2) {
		if err := w.postRecv(work{id: id, off: c.into, len: c.room, twist: c.twist}); err != nil {
			return err
		}
	}
	for _, e := range []*end{w.req, w.rsp} {
		if _, err := e.side.events(); err != nil {
			return err
		}
	}
	r := c.r
	r.id, r.remote, r.rkey = 7, cmp.Or(c.remote, w.rsp.mem.Addr()+uint64(c.at)), w.rsp.mem.RKey()
	if c.dereg {
		if err := w.rsp.mem.Deregister(); err != nil {
			return err
		}
	}
	posted, err := w.postThree(c, r)
	if err != nil || !posted {
		return err
	}
	if err := w.blamed(c); err != nil {
		return err
	}
	if c.dereg || c.written || c.r.op == verbs.WRSend || c.r.op == verbs.WRSendImm {
		return nil
	}
	return w.rsp.check(before, 0, regionOctets)
}

// postThree posts a request and two more, and reports whether they are posted, as
// they are to be.
func (w *world) postThree(c *refusal, r work) (bool, error) {
	_, rxe := w.req.side.(kernel)
	for range 3 {
		err := w.post(r)
		refused := new(peer.Error)
		switch no := err != nil && (!rxe || errors.As(err, &refused)); {
		case no && (c.post || c.unposted && rxe):
			return false, w.req.idle()
		case err != nil:
			return false, err
		case c.post:
			return false, errors.New("it is posted")
		}
		r.id++
	}
	return true, nil
}

// blamed looks at what both ends say of a refusal.
func (w *world) blamed(c *refusal) error {
	status, recv, rspState := c.status, cmp.Or(c.recv, verbs.WCWRFlushErr), verbs.StateErr
	_, rxe := w.rsp.side.(kernel)
	if rxe && c.rxe != [2]verbs.WCStatus{} {
		status, recv = c.rxe[0], c.rxe[1]
	}
	if _, rxe := w.req.side.(kernel); rxe {
		if c.rxeWaits {
			if wc, err := w.req.side.poll(1, w.silence/4); err != nil || len(wc) > 0 {
				return fmt.Errorf("requester: it was to wait for ever: %+v, %w", wc, err)
			}
			return w.states(verbs.StateRTS, verbs.StateRTS)
		}
		status = cmp.Or(c.rxeReq, status)
	}
	if err := w.req.fails(status, 7, 8, 9); err != nil {
		return err
	}
	if c.alone {
		rspState = verbs.StateRTS
		if err := w.rsp.idle(); err != nil {
			return err
		}
	} else if err := w.rsp.fails(recv, 0, 1); err != nil {
		return err
	}
	if err := w.states(verbs.StateErr, rspState); err != nil {
		return err
	}
	return w.said(c)
}

// said looks at asynchronous events: of ours there is one at a responder that
// refused a request, by what the requester was told. rxe raises none for an error.
func (w *world) said(c *refusal) error {
	for _, e := range []*end{w.req, w.rsp} {
		es, err := e.side.events()
		if err != nil {
			return err
		}
		var want []verbs.EventType
		if _, rxe := e.side.(kernel); !rxe && e == w.rsp && !c.alone {
			want = refusalEvents[c.status]
		}
		var got []verbs.EventType
		for _, v := range es {
			got = append(got, v.Type)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: events are %v, not %v", e.name, got, want)
		}
	}
	return nil
}

// refusalEvents are a responder's, by what it tells the requester. IBA 11.6.3.
var refusalEvents = map[verbs.WCStatus][]verbs.EventType{
	verbs.WCRemInvReqErr: {verbs.EventQPReqErr},
	verbs.WCRemAccessErr: {verbs.EventQPAccessErr},
	verbs.WCRemOpErr:     {verbs.EventQPFatal},
}
