package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// MWType is the type of a memory window; values as ibv_mw_type.
type MWType uint8

const (
	// MWType1 is bound by QP.BindMW, again and again, and used by any queue
	// pair of its protection domain.
	MWType1 MWType = 1
	// MWType2 is bound by a BIND_MW work request, used by that queue pair
	// alone (2B of the specification), and bound anew after an invalidation.
	MWType2 MWType = 2
)

// Bind is what a BIND_MW work request asks for.
type Bind struct {
	Key    uint32 // of the window, as it is
	NewKey uint32 // as it will be; only the low 8 bits may differ
	LKey   uint32 // of the region, which needs AccessMWBind
	Addr   uint64 // of the window's first octet, in the region
	Length uint64 // in octets; 0 unbinds a window of type 1
	Access Access // remote rights, and AccessZeroBased
}

// MW is a memory window: a key to a part of a region, with rights of its own,
// which costs a work request to give and to take back instead of a
// registration. IBA 10.6.7.
type MW struct {
	pd  *PD
	h   Handle
	typ MWType
	key atomic.Uint32
	mu  sync.Mutex // one BindMW at a time: the next key follows from the last
}

// AllocMW allocates a memory window. Until it is bound its key gives access to
// nothing.
func (p *PD) AllocMW(t MWType) (*MW, error) {
	if t != MWType1 && t != MWType2 {
		return nil, fmt.Errorf("verbs: there is no memory window of type %d, but MWType1 and MWType2", t)
	}
	info, err := p.ctx.p.AllocMW(MWReq{PD: p.h, Type: t})
	if err != nil {
		return nil, err
	}
	m := &MW{pd: p, h: info.Handle, typ: t}
	m.key.Store(info.RKey)
	return m, nil
}

// Type returns the type.
func (m *MW) Type() MWType { return m.typ }

// RKey returns the key for peers: that of the last BindMW, or what SetRKey
// said. When a bind fails the key is the one before it.
func (m *MW) RKey() uint32 { return m.key.Load() }

// SetRKey notes the key that a BIND_MW work request gave the window, as a
// program of ibv sets mw->rkey.
func (m *MW) SetRKey(k uint32) { m.key.Store(k) }

// NextRKey returns the key with its low 8 bits counted up, as ibv_inc_rkey: who
// holds the old one cannot use what the new one opens, until 256 binds later.
func NextRKey(k uint32) uint32 { return k&^0xff | (k+1)&0xff }

// Bind returns what SendWR.Bind takes to bind the window, under its next key, to
// length octets of a region from addr on. Once that is posted SetRKey(NewKey)
// says so.
func (m *MW) Bind(r *MR, addr, length uint64, a Access) Bind {
	k := m.RKey()
	return Bind{Key: k, NewKey: NextRKey(k), LKey: r.info.LKey, Addr: addr, Length: length, Access: a}
}

// Dealloc frees the window, also while it is bound. When it returns, nobody
// reads or writes through it any more.
func (m *MW) Dealloc() error { return m.pd.ctx.p.Destroy(KindMW, m.h) }

// MWBind is what BindMW does.
type MWBind struct {
	ID     uint64
	Flags  SendFlags
	MR     *MR    // of the window's protection domain, with AccessMWBind; nil unbinds
	Addr   uint64 // of the window's first octet, in the region
	Length uint64 // in octets; 0 unbinds
	Access Access // AccessRemoteRead, AccessRemoteWrite, AccessRemoteAtomic
}

// BindMW posts a request that binds a window of type 1, replaces what it was
// bound to, or unbinds it. Each gives it another key, which RKey returns at once;
// peers may use it when the request is complete, and requests posted behind it,
// such as a SEND that tells them, run after it. What the window was bound to before
// is the program's own again then, but for one packet through the old key that
// another shard of the device may be placing or reading at that instant; after
// Dealloc there is none.
func (q *QP) BindMW(m *MW, b MWBind) error {
	w := SendWR{ID: b.ID, Opcode: WRBindMW, Flags: b.Flags}
	switch {
	case m.typ != MWType1:
		return fmt.Errorf("%w: BindMW is for windows of type 1; post a WRBindMW with MW.Bind for one of type 2", ErrInvalidWR)
	case m.pd != q.pd:
		return fmt.Errorf("%w: the memory window is of another protection domain than the queue pair", ErrInvalidWR)
	case b.Length > 0 && b.MR == nil:
		return fmt.Errorf("%w: %d octets of no memory region; Length 0 unbinds", ErrInvalidWR, b.Length)
	case b.Access&AccessZeroBased != 0:
		return fmt.Errorf("%w: a memory window of type 1 is never zero-based (IBA o10-36.2.2)", ErrInvalidWR)
	case b.MR != nil && b.MR.pd != m.pd:
		return fmt.Errorf("%w: the memory region is of another protection domain than the window", ErrInvalidWR)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.RKey()
	w.Bind = Bind{Key: k, NewKey: NextRKey(k), Addr: b.Addr, Length: b.Length, Access: b.Access}
	if b.MR != nil {
		w.Bind.LKey = b.MR.info.LKey
	}
	if _, err := q.PostSend([]SendWR{w}); err != nil {
		return err
	}
	m.key.Store(w.Bind.NewKey)
	return nil
}

// checkLocal refuses local operations that no queue pair can carry out.
func (q *QP) checkLocal(w *SendWR) error {
	switch {
	case q.typ != RC:
		return fmt.Errorf("%w: %v needs an RC queue pair, this is %v", ErrInvalidWR, w.Opcode, q.typ)
	case len(w.SGL) > 0 || w.Flags&SendInline != 0:
		return fmt.Errorf("%w: %v carries no data", ErrInvalidWR, w.Opcode)
	case w.Opcode == WRBindMW && (w.Bind.Key^w.Bind.NewKey)>>8 != 0:
		return fmt.Errorf("%w: a bind changes the low 8 bits of a key, not all of %#x to %#x (NextRKey)", ErrInvalidWR, w.Bind.Key, w.Bind.NewKey)
	}
	return nil
}
