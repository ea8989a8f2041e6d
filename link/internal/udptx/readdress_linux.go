package udptx

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/internal/sys"
)

// SetAddrs changes the local addresses, as link.Readdresser describes. Do not call
// it from within Config.In, whose thread a Send that it waits for may need.
func (s *Sender) SetAddrs(addrs []netip.Addr) (serving []netip.Addr, err error) {
	old := *s.pools.Load()
	var next []*pool
	err = s.cfg.In(func() (err error) {
		for _, a := range addrs {
			p, perr := s.poolFor(old, a)
			if perr != nil {
				err = errors.Join(err, perr)
				continue
			}
			next = append(next, p)
			serving = append(serving, a)
		}
		return err
	})
	s.pools.Store(&next)
	for _, p := range old {
		if !slices.Contains(next, p) {
			s.retire(p)
		}
	}
	return serving, err
}

// poolFor returns the pool of an address: the one it has, or a new one.
func (s *Sender) poolFor(old []*pool, a netip.Addr) (*pool, error) {
	p, err := newPool(a, &s.cfg)
	if err != nil {
		return nil, err
	}
	for _, o := range old {
		if o.local == p.local && o.scope == p.scope && o.out == p.out {
			return o, nil
		}
	}
	if s.gso {
		// What bursts look like was settled when the link was opened.
		switch n, err := sys.ProbeSegmentation(p.local, p.scope); {
		case err != nil:
			return nil, fmt.Errorf("UDP segmentation offload from %v, which the link's other addresses have: %w", a, err)
		case n < s.maxSegs:
			return nil, fmt.Errorf("UDP segmentation offload from %v takes %d segments, the link's other addresses %d", a, n, s.maxSegs)
		}
	}
	p.before = s.ports[p.local]
	for _, o := range old { // the same address of another interface
		if o.local == p.local {
			p.before = o.ports()
		}
	}
	return p, nil
}

// retire closes the pool of an address that has gone, once nobody sends from it,
// and remembers its ports: the packets of connections that go on if the address
// comes back are to leave from them again.
func (s *Sender) retire(p *pool) {
	if s.ports == nil {
		s.ports = make(map[netip.Addr][PoolSize]uint16)
	}
	s.ports[p.local] = p.ports()
	s.sending.Lock()
	defer s.sending.Unlock()
	blocked := s.blocked.Load()
	for i := range p.socks {
		if k := p.socks[i].Load(); k != nil && int64(k.fd) == blocked {
			s.blocked.Store(-1)
		}
	}
	p.close()
}

// ports returns the port of each socket, or the one it had before.
func (p *pool) ports() [PoolSize]uint16 {
	ports := p.before
	for i := range p.socks {
		if k := p.socks[i].Load(); k != nil {
			ports[i] = k.port
		}
	}
	return ports
}
