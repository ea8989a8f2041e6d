package udptx

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// Config says what a Sender is for.
type Config struct {
	Addrs  []netip.Addr // local; a link-local IPv6 address with its zone
	SndBuf int          // octets asked for; 0 means DefaultSndBuf
	NoGSO  bool         // send single datagrams only

	// In runs a function in the network namespace of the sockets, where a
	// thread needs one more. (In the thread itself.)
	In func(func() error) error
}

// Sender sends bursts through a pool of UDP sockets. One goroutine at a time
// may call Send, and one SetAddrs; ResolvePort, Blocked, Stats and Errors may be
// called beside both. Nothing may be called during or after Close.
type Sender struct {
	pools   atomic.Pointer[[]*pool]
	cfg     Config
	ports   map[netip.Addr][PoolSize]uint16 // of addresses that have gone; SetAddrs' own
	sending sync.Mutex                      // held by Send: its sockets stay open

	gso     bool
	maxSegs int
	missing []string

	batch   *sys.TxBatch // super-packets
	singles *sys.TxBatch // single datagrams
	blocked atomic.Int64 // descriptor that had no room, or -1

	packets, bytes, refused, short, resealed atomic.Uint64
	errnos                                   [maxErrno]atomic.Uint64
}

// maxErrno bounds the table of refusals; Linux's last errno is 133.
const maxErrno = 134

// New returns a Sender. It opens no socket yet, but asks the kernel whether it
// segments.
func New(cfg Config) (*Sender, error) {
	if cfg.SndBuf == 0 {
		cfg.SndBuf = DefaultSndBuf
	}
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	s := &Sender{cfg: cfg, maxSegs: wire.MaxSegments, gso: !cfg.NoGSO, singles: sys.NewTxBatch(maxSingles, maxPieces)}
	s.blocked.Store(-1)
	var pools []*pool
	for _, a := range cfg.Addrs {
		p, err := newPool(a, &s.cfg)
		if err != nil {
			return nil, err
		}
		pools = append(pools, p)
	}
	s.pools.Store(&pools)
	if cfg.NoGSO {
		s.missing = append(s.missing, "UDP segmentation offload is switched off by configuration (NoGSO); every packet is a datagram of its own, several times slower")
	}
	for _, p := range pools {
		if !s.gso {
			break
		}
		n, err := sys.ProbeSegmentation(p.local, p.scope)
		if err != nil {
			s.gso = false
			s.missing = append(s.missing, fmt.Sprintf("no UDP segmentation offload: %v; every packet is a datagram of its own, several times slower; Linux 4.18 has it, on interfaces that checksum", err))
			break
		}
		s.maxSegs = min(s.maxSegs, n)
	}
	if s.gso {
		s.batch = sys.NewTxBatch(MaxBursts, maxPieces)
		s.missing = append(s.missing, hardwareNotes(cfg.Addrs)...)
	}
	return s, nil
}

// IDs returns what bursts must be sealed for.
func (s *Sender) IDs() wire.IDPolicy {
	if s.gso {
		return wire.IDCount
	}
	return wire.IDZero
}

// MaxSegments returns how many segments a burst may have.
func (s *Sender) MaxSegments() int { return s.maxSegs }

// Missing returns what the Sender does without; one sentence each.
func (s *Sender) Missing() []string { return slices.Clone(s.missing) }

// Blocked returns the descriptor to wait on until it can be written to after a
// short Send; negative when there is none.
func (s *Sender) Blocked() int { return int(s.blocked.Load()) }

// Stats returns the sending half of a link's counters.
func (s *Sender) Stats() link.Stats {
	return link.Stats{
		TxPackets: s.packets.Load(), TxBytes: s.bytes.Load(),
		TxErrors: s.refused.Load(), TxShort: s.short.Load(),
	}
}

// Resealed returns how many bursts were sealed again because their route does
// not segment.
func (s *Sender) Resealed() uint64 { return s.resealed.Load() }

// Errors returns how many bursts were refused, by errno.
func (s *Sender) Errors() map[syscall.Errno]uint64 {
	m := make(map[syscall.Errno]uint64)
	for e := range s.errnos {
		if n := s.errnos[e].Load(); n != 0 {
			m[syscall.Errno(e)] = n
		}
	}
	return m
}

// ResolvePort implements link.PortResolver: it opens the socket that packets
// from src with source port want will use, and returns its port.
func (s *Sender) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	p := s.pool(src, 0)
	if p == nil {
		return 0, notOurs(src)
	}
	k, err := p.open(want)
	if err != nil {
		return 0, err
	}
	return k.port, nil
}

// Close releases the sockets.
func (s *Sender) Close() {
	for _, p := range *s.pools.Load() {
		p.close()
	}
}

func notOurs(src netip.Addr) error { return fmt.Errorf("%v is not an address of this link", src) }

// Send sends bursts as link.Link describes, and as the package comment says of
// errors.
//
//gorxe:hot
func (s *Sender) Send(bs []*wire.Burst) (int, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	var refused error
	segs := 0
	for len(bs) > 0 {
		n, k, errno := s.step(bs)
		segs += k
		bs = bs[n:]
		switch {
		case errno == 0:
		case noRoom(errno):
			return segs, refused
		default:
			rest := bs[0].Len()
			if n == 0 {
				rest -= k // single datagrams of it that left
			}
			segs += rest
			if err := s.refuse(bs[0], rest, errno); refused == nil {
				refused = err
			}
			bs = bs[1:]
		}
	}
	if s.blocked.Load() >= 0 {
		s.blocked.Store(-1)
	}
	return segs, refused
}

// step sends what one system call takes. It returns how many bursts have left
// altogether, and how many segments (0 bursts and some segments: part of the
// first); an errno concerns the burst after those.
func (s *Sender) step(bs []*wire.Burst) (bursts, segs int, errno syscall.Errno) {
	if bs[0].Len() == 0 {
		return 1, 0, 0
	}
	k := s.socket(bs[0].Flow)
	if k == nil {
		return 0, 0, syscall.EADDRNOTAVAIL
	}
	if !k.has(bs[0].Flow) {
		if errno := k.setMark(bs[0].Flow); errno != 0 {
			return 0, 0, errno
		}
	}
	if s.gso {
		bursts, errno = s.sendBursts(k, bs)
		if errno != syscall.EIO {
			for _, b := range bs[:bursts] {
				segs += b.Len()
				s.count(b.Len(), b.Bytes())
			}
			return bursts, segs, s.full(k, errno)
		}
		segs, errno = s.sendResealed(k, bs[0])
	} else {
		segs, errno = s.sendSingles(k, bs[0])
	}
	if segs == bs[0].Len() {
		bursts = 1
	}
	return bursts, segs, s.full(k, errno)
}

// sendResealed sends a burst on a route that does not segment: the burst was
// sealed for counted identifications, and single datagrams have 0.
func (s *Sender) sendResealed(k *sock, b *wire.Burst) (int, syscall.Errno) {
	b.Seal(wire.IDZero)
	s.resealed.Add(1)
	return s.sendSingles(k, b)
}

func (s *Sender) count(segs, bytes int) {
	s.packets.Add(uint64(segs))
	s.bytes.Add(uint64(bytes))
}

// send offers the messages of t from the first'th on to the socket. A pending
// error of the socket has nothing to do with the message that meets it, and
// is reported once: the second try tells.
func send(k *sock, t *sys.TxBatch, first int) (int, syscall.Errno) {
	n, errno := t.SendFrom(k.fd, first)
	if errno != 0 && !noRoom(errno) {
		n, errno = t.SendFrom(k.fd, first)
	}
	return n, errno
}

func noRoom(errno syscall.Errno) bool {
	return errno == syscall.EAGAIN || errno == syscall.ENOBUFS || errno == syscall.ENOMEM
}

// full notes the socket to wait for.
func (s *Sender) full(k *sock, errno syscall.Errno) syscall.Errno {
	if noRoom(errno) {
		s.short.Add(1)
		s.blocked.Store(int64(k.fd))
	}
	return errno
}

// sendBursts sends the leading bursts that leave from socket k, each as one
// message.
func (s *Sender) sendBursts(k *sock, bs []*wire.Burst) (int, syscall.Errno) {
	t := s.batch
	for i, b := range bs {
		vec := b.Vec()
		if b.Len() == 0 || !t.Fits(len(vec)) || i > 0 && b.Flow != bs[0].Flow && (s.socket(b.Flow) != k || !k.has(b.Flow)) {
			break
		}
		m := k.meta(b.Flow)
		if b.Len() > 1 {
			m.Segment = uint16(b.SegLen())
		}
		t.Add(&m)
		for _, p := range vec {
			t.Piece(p)
		}
	}
	n, errno := send(k, t, 0)
	t.Reset()
	return n, errno
}

// sendSingles sends each segment of a burst as a message of its own.
func (s *Sender) sendSingles(k *sock, b *wire.Burst) (int, syscall.Errno) {
	t := s.singles
	m := k.meta(b.Flow)
	vec := b.Vec()
	var rest []byte // of vec[0], what the last segment left
	for i := range b.Segs {
		t.Add(&m)
		for n := b.Segs[i].Len; n > 0; {
			if len(rest) == 0 {
				rest, vec = vec[0], vec[1:]
			}
			p := rest[:min(n, len(rest))]
			t.Piece(p)
			n -= len(p)
			rest = rest[len(p):]
		}
	}
	done, bytes := 0, 0
	var errno syscall.Errno
	for done < t.Len() && errno == 0 {
		var n int
		n, errno = send(k, t, done)
		for i := range b.Segs[done : done+n] {
			bytes += b.Segs[done+i].Len
		}
		done += n
	}
	t.Reset()
	s.count(done, bytes)
	return done, errno
}

// refuse counts the last segs segments of a burst that the system will not
// take, and says why.
func (s *Sender) refuse(b *wire.Burst, segs int, errno syscall.Errno) error {
	s.refused.Add(uint64(segs))
	f := b.Flow
	e := &link.SendError{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, Err: errno}
	p := s.pool(f.Src, f.Scope)
	if p == nil {
		e.Err = fmt.Errorf("%w (%w)", notOurs(f.Src), errno)
	} else if k, err := p.open(f.SrcPort); err != nil {
		e.Err = err
	} else if k.port != f.SrcPort {
		e.Err = fmt.Errorf("source port %d was not asked for with ResolvePort, which gives %d: %w", f.SrcPort, k.port, errno)
	} else if errno == syscall.EPERM && !k.has(f) {
		e.Err = fmt.Errorf("service level %d: setsockopt SO_PRIORITY: %w; levels above 6 need CAP_NET_ADMIN or CAP_NET_RAW", f.Priority, errno)
	} else if errno == syscall.EMSGSIZE || errno == syscall.EINVAL {
		e.Size = b.SegLen() + headers(f.Dst)
		_ = s.cfg.In(func() error {
			if mtu, err := sys.PathMTU(f.Src, f.Dst, p.scopeOf(f)); err == nil && mtu < e.Size {
				e.MTU, errno = mtu, syscall.EMSGSIZE
				e.Err = errno
			}
			return nil
		})
	}
	if int(errno) < maxErrno {
		s.errnos[errno].Add(1)
	}
	return e
}

func headers(a netip.Addr) int {
	if a.Is4() {
		return wire.IPv4Len + wire.UDPLen
	}
	return wire.IPv6Len + wire.UDPLen
}

// socket returns the socket a flow leaves from, or nil when it may not: a
// wrong source port would make every ICRC wrong.
func (s *Sender) socket(f *wire.Flow) *sock {
	p := s.pool(f.Src, f.Scope)
	if p == nil {
		return nil
	}
	k := p.socks[f.SrcPort%PoolSize].Load()
	if k == nil {
		var err error
		if k, err = p.open(f.SrcPort); err != nil {
			return nil
		}
	}
	if k.port != f.SrcPort {
		return nil
	}
	return k
}

// pool returns the pool of a local address; scope tells interfaces apart that
// share a link-local one.
func (s *Sender) pool(src netip.Addr, scope uint32) *pool {
	for _, p := range *s.pools.Load() {
		if p.local == src && (scope == 0 || p.scope == 0 || p.scope == scope) {
			return p
		}
	}
	return nil
}

var errNoPort = errors.New("no free source port")
