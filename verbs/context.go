package verbs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Context is an open device: what a program holds. It is safe for concurrent
// use, as are the objects made from it.
type Context struct {
	p      Provider
	closed atomic.Bool
	bounce bounce
}

// NewContext returns a Context over a provider.
func NewContext(p Provider) *Context { return &Context{p: p} }

// Provider returns what the context works through.
func (c *Context) Provider() Provider { return c.p }

// Device returns the device's attributes.
func (c *Context) Device() (DeviceAttr, error) { return c.p.QueryDevice() }

// Port returns the attributes of the device's port.
func (c *Context) Port() (PortAttr, error) { return c.p.QueryPort() }

// GIDs returns the GID table.
func (c *Context) GIDs() ([]GIDEntry, error) { return c.p.GIDs() }

// Counters returns the device's counters by name, those of rxe and mlx5 where
// one exists.
func (c *Context) Counters() (map[string]uint64, error) { return c.p.Counters() }

// Events returns the channel of asynchronous events. Events are lost when
// nobody reads and its buffer is full.
func (c *Context) Events() <-chan AsyncEvent { return c.p.Events() }

// Close destroys the device or the attachment to it, with every object.
// Waiters return ErrClosed, and so does what is posted afterwards. Closing again
// does nothing.
func (c *Context) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.p.Close()
}

// full says of a queue that takes no more that its device is no more, where that is
// why: it would stay full however long its completions are waited for.
func (c *Context) full(err error) error {
	if err != ErrQueueFull {
		return err
	}
	if p, ok := c.p.(interface{ Err() error }); ok && p.Err() != nil {
		return p.Err()
	}
	return err
}

// AllocPD allocates a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	h, err := c.p.AllocPD()
	if err != nil {
		return nil, err
	}
	return &PD{ctx: c, h: h}, nil
}

// CreateCQ creates a completion queue.
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	if cfg.Depth == 0 {
		cfg.Depth = 256
	}
	if cfg.Depth < 1 || cfg.Depth > MaxCQE {
		return nil, fmt.Errorf("verbs: completion queue depth %d is not in 1..%d", cfg.Depth, MaxCQE)
	}
	info, err := c.p.CreateCQ(cfg)
	if err != nil {
		return nil, err
	}
	q, err := NewCompQueue(info.Ring)
	if err != nil {
		return nil, errors.Join(err, c.p.Destroy(KindCQ, info.Handle))
	}
	return &CQ{ctx: c, h: info.Handle, q: q}, nil
}

// PD is a protection domain: queue pairs use only regions of their own.
type PD struct {
	ctx *Context
	h   Handle
}

// Destroy frees the domain; it must have no objects left.
func (p *PD) Destroy() error { return p.ctx.p.Destroy(KindPD, p.h) }

// RegMR registers memory of the program: the NIC reads and writes it until
// Deregister. Its address is the slice's own. A device of another process works
// on a copy, made when a request is posted or a completion polled, so peers
// cannot be given rights to it there: that takes AllocMR.
func (p *PD) RegMR(mem []byte, a Access) (*MR, error) {
	return p.regMR(MRReq{PD: p.h, Mem: mem, Len: len(mem), Access: a, DefaultIOVA: true})
}

// RegMRIOVA registers memory under an address of the caller's choice.
func (p *PD) RegMRIOVA(mem []byte, iova uint64, a Access) (*MR, error) {
	return p.regMR(MRReq{PD: p.h, Mem: mem, Len: len(mem), Access: a, IOVA: iova})
}

// AllocMR registers n octets of memory that the provider makes: outside the Go
// heap where that is possible.
func (p *PD) AllocMR(n int, a Access) (*MR, error) {
	if n <= 0 {
		return nil, fmt.Errorf("verbs: AllocMR of %d octets", n)
	}
	return p.regMR(MRReq{PD: p.h, Len: n, Access: a, DefaultIOVA: true})
}

func (p *PD) regMR(r MRReq) (*MR, error) {
	if r.Access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && r.Access&AccessLocalWrite == 0 {
		return nil, errors.New("verbs: remote write and remote atomic access need local write access too (IBA 10.6.3.1)")
	}
	info, err := p.ctx.p.RegMR(r)
	if err != nil {
		return nil, err
	}
	m := &MR{pd: p, info: info}
	m.info.Shadow = nil
	if m.shadowed, err = p.ctx.bounce.add(&info, r.Access); err != nil {
		return nil, errors.Join(err, p.ctx.p.Destroy(KindMR, info.Handle))
	}
	return m, nil
}

// CreateQP creates a queue pair in state RESET.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	if cfg.Type == 0 {
		cfg.Type = RC
	}
	if cfg.SendCQ == nil || cfg.RecvCQ == nil {
		return nil, errors.New("verbs: a queue pair needs SendCQ and RecvCQ (they may be the same)")
	}
	if cfg.SendCQ.ctx != p.ctx || cfg.RecvCQ.ctx != p.ctx {
		return nil, errors.New("verbs: a completion queue of another device")
	}
	req := QPReq{PD: p.h, SendCQ: cfg.SendCQ.h, RecvCQ: cfg.RecvCQ.h, Type: cfg.Type, SigAll: cfg.SignalAll}
	if cfg.SRQ != nil {
		if cfg.SRQ.pd.ctx != p.ctx {
			return nil, errors.New("verbs: a shared receive queue of another device")
		}
		req.SRQ = cfg.SRQ.info.Handle
	}
	c, err := cfg.Cap.WithDefaults()
	if err != nil {
		return nil, err
	}
	req.Cap = c
	b := &p.ctx.bounce
	b.life.Lock()
	defer b.life.Unlock()
	info, err := p.ctx.p.CreateQP(req)
	if err != nil {
		return nil, err
	}
	q := &QP{
		pd: p, info: info, typ: cfg.Type, cap: c, srq: cfg.SRQ, sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ,
		sends: sendTrack{limit: c.MaxSendWR, maxSGE: c.MaxSendSGE}, recvs: recvTrack{maxSGE: c.MaxRecvSGE},
	}
	if q.sq, err = NewSendQueue(info.SendRing, c); err == nil && q.srq == nil {
		q.rq, err = NewRecvQueue(info.RecvRing, c.MaxRecvWR, c.MaxRecvSGE)
	}
	if err != nil {
		return nil, errors.Join(err, p.ctx.p.Destroy(KindQP, info.Handle))
	}
	b.addQP(q)
	if q.srq != nil {
		q.srq.recvs.join()
	}
	return q, nil
}

// MR is a registered memory region.
type MR struct {
	pd       *PD
	info     MRInfo
	shadowed *shadowed // or nil
}

// Addr returns the address of the region's first octet.
func (m *MR) Addr() uint64 { return m.info.IOVA }

// LKey returns the key for scatter/gather entries.
func (m *MR) LKey() uint32 { return m.info.LKey }

// RKey returns the key for peers.
func (m *MR) RKey() uint32 { return m.info.RKey }

// Bytes returns the region's memory.
func (m *MR) Bytes() []byte { return m.info.Mem }

// SGE returns the scatter/gather entry of n octets from offset off on. It does
// not check them: the NIC does. An n that an entry cannot hold becomes the
// longest there is, which is more than a message may have.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.info.IOVA + uint64(off), Length: uint32(min(uint64(n), math.MaxUint32)), LKey: m.info.LKey}
}

// Uint64 loads the word at offset off, which must be aligned to 8, atomically
// and in host order: where an atomic's result lands.
func (m *MR) Uint64(off int) uint64 { return atomic.LoadUint64(m.word(off)) }

// SetUint64 stores a word atomically.
func (m *MR) SetUint64(off int, v uint64) { atomic.StoreUint64(m.word(off), v) }

func (m *MR) word(off int) *uint64 {
	p, _ := unsafe.Pointer(&m.info.Mem[off]), m.info.Mem[off+7]
	if uintptr(p)&7 != 0 {
		panic("verbs: atomic word is not aligned to 8 octets")
	}
	return (*uint64)(p)
}

// Deregister ends the NIC's use of the memory. When it returns, nothing reads
// or writes it any more: poll the completions of what went into it before.
func (m *MR) Deregister() error {
	b, r := &m.pd.ctx.bounce, m.shadowed
	if r == nil {
		return m.pd.ctx.p.Destroy(KindMR, m.info.Handle)
	}
	r.end(true) // the shadow may go with the region
	if err := m.pd.ctx.p.Destroy(KindMR, m.info.Handle); err != nil {
		r.end(false)
		return err
	}
	b.remove(m.info.LKey, r)
	return nil
}

// CQ is a completion queue.
type CQ struct {
	ctx *Context
	h   Handle
	mu  sync.Mutex
	q   *CompQueue
}

// Poll drives the NIC and moves completions to wc, oldest first. It returns
// how many, never blocks and never allocates.
func (c *CQ) Poll(wc []WC) int {
	n := c.take(wc)
	if n > 0 || len(wc) == 0 {
		return n
	}
	c.ctx.p.Progress(c.h)
	return c.take(wc)
}

//gorxe:hot
func (c *CQ) take(wc []WC) int {
	c.mu.Lock()
	n := c.q.Take(wc)
	if n > 0 && c.ctx.bounce.on.Load() {
		c.settle(wc[:n])
	}
	c.mu.Unlock()
	return n
}

// Wait is Poll that waits for at least one completion. It returns ctx's error
// when that ends first, ErrClosed when the device is closed, and an error
// when the queue has overflown and lost completions.
func (c *CQ) Wait(ctx context.Context, wc []WC) (int, error) {
	return c.wait(ctx, wc, false)
}

// WaitSolicited is Wait that sleeps until a solicited or failed completion
// arrives; it returns every completion there is then.
func (c *CQ) WaitSolicited(ctx context.Context, wc []WC) (int, error) {
	return c.wait(ctx, wc, true)
}

func (c *CQ) wait(ctx context.Context, wc []WC, solicited bool) (int, error) {
	if len(wc) == 0 {
		return 0, errors.New("verbs: Wait needs room for a completion")
	}
	for {
		if n := c.Poll(wc); n > 0 {
			return n, nil
		}
		q, lost := c.ring()
		if lost {
			return 0, errors.New("verbs: completion queue overflown: completions were lost; make it deeper or poll more often")
		}
		if err := c.ctx.p.WaitCQ(ctx, c.h, q, solicited); err != nil {
			// What completed before the end is not lost.
			if n := c.Poll(wc); n > 0 {
				return n, nil
			}
			return 0, err
		}
	}
}

// ring returns the queue's ring, an empty one when it was destroyed, and whether
// it has overflown.
func (c *CQ) ring() (q *CompQueue, overflown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q, c.q.Overflown()
}

// Destroy frees the queue; no queue pair may use it any more. Completions that are
// in it are lost.
func (c *CQ) Destroy() error {
	c.mu.Lock() // polls under way end first: the ring may go
	defer c.mu.Unlock()
	if err := c.ctx.p.Destroy(KindCQ, c.h); err != nil {
		return err
	}
	q, err := NewCompQueue(NewRingMem(1))
	c.q = q
	return err
}

// Endpoint is what a peer must know of a queue pair to connect to it.
type Endpoint struct {
	QPN      uint32
	PSN      uint32
	GID      GID
	GIDIndex int // of the local GID table; means nothing to the peer
	LID      uint16
}

// ChooseGID returns the index and value of the GID to use with a peer address.
func (c *Context) ChooseGID(peer netip.Addr) (GIDEntry, error) {
	i, err := c.p.ChooseGID(peer)
	if err != nil {
		return GIDEntry{}, err
	}
	gids, err := c.p.GIDs()
	if err != nil {
		return GIDEntry{}, err
	}
	for _, g := range gids {
		if g.Index == i {
			return g, nil
		}
	}
	return GIDEntry{}, fmt.Errorf("verbs: GID index %d is not in the table", i)
}
