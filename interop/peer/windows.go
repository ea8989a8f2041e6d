package peer

import "github.com/gorxe/gorxe/verbs"

// MW is a memory window of the guest.
type MW struct {
	ep    *Endpoint
	index int
	rkey  uint32
}

// AllocMW allocates a memory window.
func (e *Endpoint) AllocMW(t verbs.MWType) (*MW, error) {
	var out struct {
		MW   int
		RKey uint32
	}
	if err := e.call("mw", args{"type": t}, &out); err != nil {
		return nil, err
	}
	return &MW{e, out.MW, out.RKey}, nil
}

// RKey is the key of the last bind that was posted.
func (m *MW) RKey() uint32 { return m.rkey }

// Dealloc frees the window.
func (m *MW) Dealloc() error { return m.ep.call("dealloc", args{"mw": m.index}, nil) }

// Bind posts a bind of a window to n octets of a region from an offset on: of one
// of type 1 by ibv_bind_mw, of one of type 2 by a work request. The window's key is
// the next one then.
func (q *QP) Bind(m *MW, r *MR, off, n int, a verbs.Access, id uint64) error {
	var out struct{ RKey uint32 }
	if err := q.ep.call("bind", args{"qp": q.index, "mw": m.index, "mr": r.index, "off": off, "len": n, "access": a, "id": id}, &out); err != nil {
		return err
	}
	m.rkey = out.RKey
	return nil
}

// LocalInv posts an invalidation of a key of the guest's.
func (q *QP) LocalInv(key uint32, id uint64) error {
	return q.ep.call("local_inv", args{"qp": q.index, "key": key, "id": id}, nil)
}
