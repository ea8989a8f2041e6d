package udptx

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/wire"
)

// pool is the sending sockets of one local address.
type pool struct {
	local  netip.Addr // without zone
	scope  uint32
	out    uint32 // index of the interface that has local, for multicast; 0 when not known
	cfg    *Config
	before [PoolSize]uint16 // ports that the address had when it was the link's before; 0 none

	mu    sync.Mutex // opening
	gone  bool       // closed
	socks [PoolSize]atomic.Pointer[sock]
}

// sock is one sending socket.
type sock struct {
	fd    int
	port  uint16
	scope uint32 // of a link-local local address
	mark  mark   // what it has; Send's own
}

// mark is what a socket has to be told before it sends a flow's packets,
// because it cannot travel with a message. The zero value is that of a new
// socket.
type mark struct{ tos, priority uint8 }

// markOf returns the mark a flow needs. An IPv4 flow without a priority needs
// none: its traffic class travels with the message and overrides the socket's.
func markOf(f *wire.Flow) (m mark, needed bool) {
	if f.Dst.Is4() {
		return mark{f.TOS, f.Priority}, f.Priority != 0
	}
	return mark{0, f.Priority}, true
}

// has reports whether the socket can send a flow's packets as it is.
func (k *sock) has(f *wire.Flow) bool {
	m, needed := markOf(f)
	return !needed || m == k.mark
}

// setMark makes the socket ready for a flow.
func (k *sock) setMark(f *wire.Flow) (errno syscall.Errno) {
	m, _ := markOf(f)
	if f.Dst.Is4() {
		errno = sys.MarkPriority4(k.fd, m.tos, m.priority)
	} else {
		errno = sys.MarkPriority6(k.fd, m.priority)
	}
	if errno != 0 {
		m = mark{priority: unknown}
	}
	k.mark = m
	return errno
}

// unknown is no flow's priority.
const unknown = 0xff

func newPool(a netip.Addr, cfg *Config) (*pool, error) {
	scope, err := Scope(a)
	p := &pool{local: a.WithZone(""), scope: scope, cfg: cfg}
	if ifc, err := hostnet.InterfaceWith(a); err == nil {
		p.out = uint32(ifc.Index)
	}
	return p, err
}

// Scope returns the interface index that an address's zone names; 0 without a
// zone.
func Scope(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		return uint32(n), nil
	}
	ifc, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("%v: no interface %s (see `ip link`): %w", a, a.Zone(), err)
	}
	return uint32(ifc.Index), nil
}

// open returns the socket for a source port, opening it the first time.
func (p *pool) open(want uint16) (*sock, error) {
	slot := &p.socks[want%PoolSize]
	if k := slot.Load(); k != nil {
		return k, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := slot.Load(); k != nil {
		return k, nil
	}
	if p.gone {
		return nil, notOurs(p.local)
	}
	if b := p.before[want%PoolSize]; b != 0 {
		want = b
	}
	var k *sock
	err := p.cfg.In(func() (err error) {
		k, err = p.socket(want)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sending socket on %v: %w", p.local, err)
	}
	slot.Store(k)
	return k, nil
}

func (p *pool) socket(want uint16) (*sock, error) {
	fd, err := sys.UDPSocket(p.local)
	if err != nil {
		return nil, err
	}
	port, err := p.prepare(fd, want)
	if err != nil {
		sys.Close(fd)
		return nil, err
	}
	return &sock{fd: fd, port: port, scope: p.scope}, nil
}

func (p *pool) prepare(fd int, want uint16) (uint16, error) {
	if err := sys.AttachFilter(fd, sys.DropAll); err != nil { // it only sends
		return 0, err
	}
	if err := sys.SetDontFragment(fd, p.local); err != nil {
		return 0, err
	}
	if err := sys.SetHopLimit(fd, p.local, usualTTL); err != nil {
		return 0, err
	}
	if p.local.Is6() && p.out != 0 {
		if err := sys.SetMulticastInterface(fd, int(p.out)); err != nil {
			return 0, err
		}
	}
	if _, err := sys.SetSendBuffer(fd, p.cfg.SndBuf); err != nil {
		return 0, err
	}
	port := want
	for range (1<<16-portBase)/PoolSize + 1 {
		err := sys.Bind(fd, netip.AddrPortFrom(p.local, port), p.scope)
		if err == nil {
			return port, nil
		}
		if err != syscall.EADDRINUSE && err != syscall.EACCES { // below 1024
			return 0, BindError(p.local, port, err)
		}
		port = (port + PoolSize) | portBase
	}
	return 0, errNoPort
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for i := range p.socks {
		if k := p.socks[i].Swap(nil); k != nil {
			sys.Close(k.fd)
		}
	}
}

// scopeOf returns the interface index for a flow's destination, if one is
// needed.
func (p *pool) scopeOf(f *wire.Flow) uint32 {
	if s := scopeOf(p.scope, f); s != 0 || !f.Dst.IsMulticast() {
		return s
	}
	return p.out
}

func scopeOf(local uint32, f *wire.Flow) uint32 {
	if f.Scope != 0 || !f.Dst.IsLinkLocalUnicast() && !f.Dst.IsLinkLocalMulticast() {
		return f.Scope
	}
	return local
}

// usualTTL is what the sockets send with: a message that says so costs more.
const usualTTL = 64

// meta says where and how a flow's packets go.
func (k *sock) meta(f *wire.Flow) sys.TxMeta {
	m := sys.TxMeta{To: netip.AddrPortFrom(f.Dst, wire.Port), Scope: scopeOf(k.scope, f), TOS: f.TOS, TTL: f.TTL}
	if f.Dst.Is4() {
		m.Marked = f.Priority != 0 || f.TOS == 0 && k.mark == mark{}
	} else {
		m.Marked = f.TOS == 0
	}
	if m.TTL == usualTTL && !f.Dst.IsMulticast() {
		m.TTL = 0
	}
	return m
}
