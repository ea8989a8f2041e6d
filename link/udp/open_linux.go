package udp

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// Open opens UDP port 4791 of each address and returns one link per shard. If
// somebody else has the port the error is syscall.EADDRINUSE to errors.Is and
// says who and what to do.
func Open(cfg Config) ([]link.Link, error) { return openAt(cfg, wire.Port) }

// Probe describes the links that Open would return, without the port: it needs
// nobody to let go of it, and receives nothing.
func Probe(cfg Config) (link.Info, error) {
	cfg.Shards = 1
	links, err := openAt(cfg, 0) // any port that is free
	if err != nil {
		return link.Info{}, err
	}
	defer links[0].Close()
	return links[0].Info(), nil
}

func openAt(cfg Config, port uint16) (links []link.Link, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ls := make([]*Link, cfg.Shards)
	set := &siblings{cfg: cfg, port: port, links: ls}
	for i := range ls {
		ls[i] = &Link{set: set, rx: sys.NewRxBatch(rxBuffers, rxSize), merged: !cfg.Options.NoGRO}
	}
	defer func() {
		if err != nil {
			for _, l := range ls {
				l.release()
			}
		}
	}()
	info := link.Info{Name: "udp", Exact6: true, MaxBytes: wire.MaxBurstBytes, MaxBursts: udptx.MaxBursts, Window: windowMax}
	ifaces, err := interfaces(cfg.Addrs)
	if err != nil {
		return nil, fmt.Errorf("udp: %w", err)
	}
	info.MTU = mtu(ifaces)
	var missing []string
	for _, a := range cfg.Addrs {
		got, m, err := openAddr(ls, netip.AddrPortFrom(a, port), &cfg)
		if err != nil {
			return nil, fmt.Errorf("udp: %w", err)
		}
		for i, l := range ls {
			l.socks = append(l.socks, got.socks[i])
		}
		if w := window(got.buf); w < info.Window {
			info.Window = w
			m = append(m, fmt.Sprintf("receive buffer of %d KiB bears %d packets in flight, not %d; allow more with `sysctl -w net.core.rmem_max=%d` or CAP_NET_ADMIN", got.buf>>10, w, windowMax, DefaultRcvBuf))
		}
		if missing == nil {
			missing = m
		}
	}
	for i, l := range ls {
		if err := l.finish(&cfg, ifaces); err != nil {
			return nil, fmt.Errorf("udp: %w", err)
		}
		l.info = info
		l.info.IDs, l.info.MaxSegments = l.tx.IDs(), l.tx.MaxSegments()
		l.info.Missing = append(l.tx.Missing(), missing...)
		links = append(links, ls[i])
	}
	return links, nil
}

// addrSocks are the receiving sockets of one address, one per link, and the size
// of the buffer of each.
type addrSocks struct {
	socks []rxSock
	buf   int
}

// openAddr opens the receiving sockets of one address and returns what they lack.
func openAddr(ls []*Link, ap netip.AddrPort, cfg *Config) (got addrSocks, missing []string, err error) {
	a := ap.Addr()
	scope, err := udptx.Scope(a)
	if err != nil {
		return got, nil, err
	}
	defer func() {
		if err != nil {
			closeAll(got.socks)
		}
	}()
	for i, l := range ls {
		fd, err := sys.UDPSocket(a)
		if err != nil {
			return got, nil, err
		}
		got.socks = append(got.socks, rxSock{fd: fd, local: a.WithZone(""), scope: scope})
		if err := sys.SetReceiveMeta(fd, a); err != nil {
			return got, nil, err
		}
		if !cfg.Options.NoGRO {
			if err := sys.SetGRO(fd); err != nil {
				l.merged = false
				missing = []string{fmt.Sprintf("no UDP receive offload: %v; every packet is received by itself, several times slower; Linux 5.0 has it", err)}
			}
		}
		if got.buf, err = sys.SetReceiveBuffer(fd, cfg.RcvBuf); err != nil {
			return got, nil, err
		}
		// The first bind is exclusive; the others join it.
		if i > 0 {
			if err := sys.SetReusePort(fd); err != nil {
				return got, nil, err
			}
		}
		if err := sys.Bind(fd, ap, scope); err != nil {
			return got, nil, udptx.BindError(a, ap.Port(), err)
		}
		if i == 0 && len(ls) > 1 {
			if err := sys.SetReusePort(fd); err != nil {
				return got, nil, err
			}
		}
	}
	if len(ls) > 1 {
		if err := sys.AttachReuseportFilter(got.socks[0].fd, steering(len(ls))); err != nil {
			return got, nil, err
		}
	}
	return got, missing, nil
}

// steering picks a shard from the UDP payload: the low 4 bits of the BTH's
// destination queue pair number (octets 5 to 7), modulo the number of shards.
func steering(shards int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 7, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: MaxShards - 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(shards)},
		bpf.RetA{},
	}
}

// finish adds what a link needs beside its receiving sockets.
func (l *Link) finish(cfg *Config, ifaces []hostnet.Iface) (err error) {
	l.rcvBuf, l.ifaces = cfg.RcvBuf, indexes(ifaces)
	if l.poll, err = sys.NewPoller(l.fds()); err != nil {
		return err
	}
	l.tx, err = udptx.New(udptx.Config{Addrs: cfg.Addrs, SndBuf: cfg.SndBuf, NoGSO: cfg.Options.NoGSO, In: cfg.In})
	return err
}

// interfaces returns the interface of each address.
func interfaces(addrs []netip.Addr) (ifaces []hostnet.Iface, err error) {
	for _, a := range addrs {
		ifc, err := hostnet.InterfaceWith(a)
		if err != nil {
			return nil, err
		}
		ifaces = append(ifaces, ifc)
	}
	return ifaces, nil
}

// indexes returns those of interfaces, each once.
func indexes(ifaces []hostnet.Iface) (out []int) {
	for _, ifc := range ifaces {
		if !slices.Contains(out, ifc.Index) {
			out = append(out, ifc.Index)
		}
	}
	return out
}

// mtu returns the smallest MTU of the interfaces.
func mtu(ifaces []hostnet.Iface) int {
	m := 1 << 16
	for _, ifc := range ifaces {
		m = min(m, ifc.MTU)
	}
	return m
}
