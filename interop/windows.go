package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/verbs"
)

// window is a memory window of a side.
type window interface {
	RKey() uint32
	Dealloc() error
}

// allocMW allocates a window of either side.
func allocMW(s side, t verbs.MWType) (window, error) {
	if k, ok := s.(kernel); ok {
		return k.AllocMW(t)
	}
	return s.(*ours).pd.AllocMW(t)
}

// bindMW posts a bind to n octets of m from off on, which gives the window its
// next key.
func bindMW(q queue, v window, m memory, off, n int, a verbs.Access, id uint64) error {
	if k, ok := q.(kernelQP); ok {
		return k.Bind(v.(*peer.MW), m.(*peer.MR), off, n, a, id)
	}
	o, mw, mr := q.(ourQP), v.(*verbs.MW), m.(ourMR)
	if mw.Type() == verbs.MWType1 {
		return o.BindMW(mw, verbs.MWBind{ID: id, Flags: verbs.SendSignaled, MR: mr.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: a})
	}
	b := mw.Bind(mr.MR, m.Addr()+uint64(off), uint64(n), a)
	_, err := o.PostSend([]verbs.SendWR{{ID: id, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: b}})
	if err == nil {
		mw.SetRKey(b.NewKey)
	}
	return err
}

func localInv(q queue, key uint32, id uint64) error {
	if k, ok := q.(kernelQP); ok {
		return k.LocalInv(key, id)
	}
	_, err := q.(ourQP).PostSend([]verbs.SendWR{{ID: id, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, Imm: key}})
	return err
}

// Where windows of the cases are in their region.
const (
	windowAt  = 64
	windowLen = 5000
)

// ending is how a window comes to an end: afterwards its key opens nothing and
// its region may go.
type ending struct {
	name string
	typ  verbs.MWType
	do   func(w *world, m memory, v window) error
}

var endings = []ending{
	{"bind with length 0", verbs.MWType1, func(w *world, m memory, v window) error {
		return w.rspDoes(func() error { return bindMW(w.rsp.qp, v, m, 0, 0, 0, 50) })
	}},
	{"LOCAL_INV", verbs.MWType2, func(w *world, _ memory, v window) error {
		return w.rspDoes(func() error { return localInv(w.rsp.qp, v.RKey(), 50) })
	}},
	{"SEND with invalidate", verbs.MWType2, func(w *world, _ memory, v window) error { return w.sendInv(v.RKey(), 6000) }},
	{"deallocated, type 1", verbs.MWType1, func(_ *world, _ memory, v window) error { return v.Dealloc() }},
	{"deallocated, type 2", verbs.MWType2, func(_ *world, _ memory, v window) error { return v.Dealloc() }},
}

// windows binds windows at the responder and has the requester use them, end
// them and abuse them.
func (w *world) windows() error {
	w.tune = func(_ *end, o *verbs.ConnectOptions) { o.RetryCnt = 1 }
	if err := w.setUp(1 << 15); err != nil {
		return err
	}
	for _, e := range endings {
		if err := w.windowEnds(&e); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	for i := range abuses {
		if err := w.windowAbused(&abuses[i]); err != nil {
			return fmt.Errorf("%s: %w", abuses[i].name, err)
		}
	}
	for i := range badKeys {
		if err := w.invalidationFails(&badKeys[i]); err != nil {
			return fmt.Errorf("SEND with invalidate of %s: %w", badKeys[i].name, err)
		}
	}
	if err := w.bindFails(); err != nil {
		return fmt.Errorf("bind beyond the region: %w", err)
	}
	w.note = fmt.Sprintf("%d ways to end a window, %d to abuse one, %d keys that are not invalidated", len(endings), len(abuses), len(badKeys))
	return nil
}

// rspDoes posts a local operation with id 50 at the responder and sees it done.
func (w *world) rspDoes(post func() error) error {
	if err := post(); err != nil {
		return err
	}
	_, err := w.rsp.done(50)
	return err
}

// bound makes a connection, and at the responder a region without remote rights
// and a window of it.
func (w *world) bound(t verbs.MWType, a verbs.Access) (m memory, v window, err error) {
	if err = w.connect(w.rng.Uint32() & 0xffffff); err != nil {
		return nil, nil, err
	}
	if m, err = w.rsp.side.regMR(1<<14, verbs.AccessLocalWrite|verbs.AccessMWBind); err != nil {
		return nil, nil, err
	}
	if v, err = allocMW(w.rsp.side, t); err != nil {
		return nil, nil, err
	}
	old := v.RKey()
	if err = w.rspDoes(func() error { return bindMW(w.rsp.qp, v, m, windowAt, windowLen, a, 50) }); err != nil {
		return nil, nil, err
	}
	if v.RKey() == old || v.RKey()>>8 != old>>8 {
		return nil, nil, fmt.Errorf("the key was %#x and is %#x", old, v.RKey())
	}
	return m, v, nil
}

// sendInv sends n octets with a key to invalidate, which the responder is told.
func (w *world) sendInv(key uint32, n int) error {
	if err := w.postRecv(work{id: 51, off: 1 << 14, len: 8000}); err != nil {
		return err
	}
	if err := w.post(work{id: 52, op: verbs.WRSendInv, len: n, imm: key}); err != nil {
		return err
	}
	if _, err := w.req.done(52); err != nil {
		return err
	}
	wc, err := w.rsp.done(51)
	flag := verbs.WCWithInv
	if _, ok := w.rsp.side.(kernel); ok {
		flag |= 1 << 2 // so rxe says it: the kernel's number, not that of verbs
	}
	if err == nil && (wc[0].Flags&flag == 0 || wc[0].Imm != key || int(wc[0].ByteLen) != n) {
		err = fmt.Errorf("responder: %+v, not of %d octets and key %#x", wc[0], n, key)
	}
	return err
}

// windowEnds writes and reads through a window, ends it, and finds that it does
// so.
func (w *world) windowEnds(e *ending) error {
	m, v, err := w.bound(e.typ, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	data := w.bytes(windowLen)
	if err := w.req.mem.Write(0, data); err != nil {
		return err
	}
	remote := m.Addr() + windowAt
	if err := w.post(work{id: 1, op: verbs.WRWrite, len: windowLen, remote: remote, rkey: v.RKey()}); err != nil {
		return err
	}
	if err := w.post(work{id: 2, op: verbs.WRRead, off: 1 << 14, len: windowLen, remote: remote, rkey: v.RKey()}); err != nil {
		return err
	}
	if _, err := w.req.done(1, 2); err != nil {
		return err
	}
	want := make([]byte, 1<<14)
	copy(want[windowAt:], data)
	got, err := m.Read(0, len(want))
	back, err2 := w.req.mem.Read(1<<14, windowLen)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if !bytes.Equal(got, want) || !bytes.Equal(back, data) {
		return fmt.Errorf("memory differs, the region's %v, what was read back %v", !bytes.Equal(got, want), !bytes.Equal(back, data))
	}
	if m.Deregister() == nil {
		return errors.New("the region was deregistered under its window")
	}
	if err := e.do(w, m, v); err != nil {
		return err
	}
	if err := w.post(work{id: 3, op: verbs.WRWrite, len: 8, remote: remote, rkey: v.RKey()}); err != nil {
		return err
	}
	if err := w.req.fails(verbs.WCRemAccessErr, 3); err != nil {
		return err
	}
	if err := m.Deregister(); err != nil {
		return fmt.Errorf("deregister: %w", err)
	}
	return nil
}

// abuse is a request that a window does not allow.
type abuse struct {
	name   string
	access verbs.Access
	r      work // remote counts from the window
	rxe    bool // does as it asks: Soft-RoCE looks at the region's range, not at the window's
}

var abuses = []abuse{
	{name: "an octet beyond", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRWrite, len: 100, remote: windowLen - 99}, rxe: true},
	{name: "an octet below", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRWrite, len: 100, remote: ^uint64(0)}, rxe: true},
	{name: "a long WRITE beyond", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRWrite, len: windowLen, remote: 1}, rxe: true},
	{name: "READ beyond", access: verbs.AccessRemoteRead, r: work{op: verbs.WRRead, len: windowLen, remote: 1}, rxe: true},
	{name: "beyond the region", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRWrite, len: windowLen, remote: 1<<14 - windowAt - windowLen + 1}},
	{name: "WRITE without the right", access: verbs.AccessRemoteRead, r: work{op: verbs.WRWrite, len: 100}},
	{name: "READ without the right", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRRead, len: 100}},
	{name: "FetchAdd without the right", access: verbs.AccessRemoteWrite, r: work{op: verbs.WRFetchAdd, len: 8, add: 1}},
}

func (w *world) windowAbused(a *abuse) error {
	m, v, err := w.bound(verbs.MWType2, a.access)
	if err != nil {
		return err
	}
	r := a.r
	r.id, r.remote, r.rkey = 7, r.remote+m.Addr()+windowAt, v.RKey()
	if err := w.post(r); err != nil {
		return err
	}
	if _, ok := w.rsp.side.(kernel); ok && a.rxe {
		_, err := w.req.done(7)
		return errors.Join(err, v.Dealloc(), m.Deregister())
	}
	if err := w.req.fails(verbs.WCRemAccessErr, 7); err != nil {
		return err
	}
	got, err := m.Read(0, 1<<14)
	if err == nil && !bytes.Equal(got, make([]byte, 1<<14)) {
		err = errors.New("memory was written")
	}
	return errors.Join(err, v.Dealloc(), m.Deregister())
}

// badKey is a key that is not invalidated.
type badKey struct {
	name string
	typ  verbs.MWType
	key  func(m memory, v window) uint32
}

var badKeys = []badKey{
	{"a region", verbs.MWType2, func(m memory, _ window) uint32 { return m.RKey() }},
	{"a window of type 1", verbs.MWType1, func(_ memory, v window) uint32 { return v.RKey() }},
	{"the key before", verbs.MWType2, func(_ memory, v window) uint32 { return v.RKey()&^0xff | (v.RKey()-1)&0xff }},
	{"nothing", verbs.MWType2, func(memory, window) uint32 { return 0xbad }},
}

// invalidationFails sends a key that is not to be invalidated: the message is
// acknowledged, the responder's receive request tells, and its queue pair is in
// ERR, as the requester finds out by itself.
func (w *world) invalidationFails(b *badKey) error {
	m, v, err := w.bound(b.typ, verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	for id := range uint64(2) {
		if err := w.postRecv(work{id: 60 + id, off: 1 << 14, len: 100}); err != nil {
			return err
		}
	}
	if err := w.post(work{id: 8, op: verbs.WRSendInv, len: 5, imm: b.key(m, v)}); err != nil {
		return err
	}
	if err := w.rsp.fails(verbs.WCRemInvReqErr, 60, 61); err != nil {
		return err
	}
	if _, err := w.req.done(8); err != nil {
		return err
	}
	if err := w.states(verbs.StateRTS, verbs.StateErr); err != nil {
		return err
	}
	return errors.Join(v.Dealloc(), m.Deregister())
}

// bindFails binds a window beyond its region, which ends the queue pair that
// should have done so.
func (w *world) bindFails() error {
	m, v, err := w.bound(verbs.MWType1, verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if err := bindMW(w.rsp.qp, v, m, 1<<14-99, 100, verbs.AccessRemoteWrite, 9); err != nil {
		return err
	}
	status := verbs.WCMWBindErr
	if _, ok := w.rsp.side.(kernel); ok {
		status = verbs.WCWRFlushErr // rxe has the right one, and flushes over it
	}
	if err := w.rsp.fails(status, 9); err != nil {
		return err
	}
	return errors.Join(v.Dealloc(), m.Deregister())
}
