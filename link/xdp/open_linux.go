package xdp

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// Open returns one link per shard. Errors: hostnet.ErrNoInterface, an address
// that is not the interface's, ErrPrivilege, ErrOccupied, and udptx's error for
// a port 4791 that somebody has (syscall.EADDRINUSE), each wrapped in what to
// do.
func Open(cfg Config) ([]link.Link, error) {
	links, err := open(&cfg)
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", explain(err))
	}
	return links, nil
}

// Probe describes the links that Open would return, without the port, and
// without touching the interface: whether its driver runs the program and
// shares memory is known only once the program is attached, and is not told.
func Probe(cfg Config) (link.Info, error) {
	info, err := probe(&cfg)
	if err != nil {
		return link.Info{}, fmt.Errorf("xdp: %w", explain(err))
	}
	return info, nil
}

func probe(cfg *Config) (info link.Info, err error) {
	d, err := newDevice(cfg)
	if err != nil {
		return info, err
	}
	if d.prog, err = loadProgram(1, 1); err != nil {
		return info, err
	}
	defer d.prog.close()
	x, err := sys.NewXSK(socketSize(minRxChunks, true))
	if err != nil {
		return info, err
	}
	x.Close()
	stack, err := udptx.New(udptx.Config{Addrs: d.addrs})
	if err != nil {
		return info, err
	}
	defer stack.Close()
	d.mtu = d.ifc.MTU
	return d.info(stack), nil
}

// newDevice checks what can be checked without opening anything.
func newDevice(cfg *Config) (*device, error) {
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Shards < 0 || cfg.Shards > maxShards {
		return nil, fmt.Errorf("%d shards: 1 to %d are possible", cfg.Shards, maxShards)
	}
	if n := cfg.RxChunks; n != 0 && (n < minRxChunks || n > maxRxChunks || n&(n-1) != 0) {
		return nil, fmt.Errorf("%d chunks for arriving packets: a power of two from %d to %d is possible", n, minRxChunks, maxRxChunks)
	}
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	ifc, err := hostnet.Interface(cfg.Interface)
	if err != nil {
		return nil, err
	}
	if ifc.MAC == [6]byte{} && !ifc.Loopback {
		return nil, fmt.Errorf("interface %s is no Ethernet: it has no MAC address; use --link udp", ifc.Name)
	}
	addrs, err := udptx.ChooseAddrs(&ifc, cfg.Addrs)
	if err != nil {
		return nil, err
	}
	if err := Privileged(); err != nil {
		return nil, err
	}
	if err := occupied(&ifc); err != nil {
		return nil, err
	}
	return &device{ifc: ifc, in: cfg.In, addrs: addrs, groups: groups{members: make(map[netip.Addr]member)}}, nil
}

// Privileged returns nil, or an error that wraps ErrPrivilege and names the
// capabilities that this process lacks.
func Privileged() error {
	c, err := hostnet.Capabilities()
	if err != nil {
		return err
	}
	var missing []string
	for _, x := range []struct {
		have bool
		name string
	}{{c.BPF, "CAP_BPF"}, {c.NetAdmin, "CAP_NET_ADMIN"}, {c.NetRaw, "CAP_NET_RAW"}} {
		if !x.have {
			missing = append(missing, x.name)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: AF_XDP also needs %s: run as root, grant them with 'setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep %s', or use --link udp, which needs none",
		ErrPrivilege, strings.Join(missing, ", "), self())
}

func self() string {
	if s, err := os.Executable(); err == nil {
		return s
	}
	return "PROGRAM"
}

// explain puts a refusal for a process that has the capabilities in words: they
// do not count where the kernel looks, or something else forbids it.
func explain(err error) error {
	if errors.Is(err, ErrPrivilege) || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	var errno unix.Errno
	errors.As(err, &errno) // and not all of err, which guesses at locked memory
	remedy := "a security module or a sandbox (seccomp) forbids it: allow it there (for a container, --privileged)"
	if hostnet.InUserNamespace() {
		remedy = "this process is in a user namespace, where BPF cannot be had: run it as root of the host"
	}
	return fmt.Errorf("%w: the kernel refuses BPF or AF_XDP (%w) although this process has the capabilities; %s, or use --link udp, which needs no privilege", ErrPrivilege, errno, remedy)
}

// open opens the links of a device: the program first, which passes everything
// on, then the sockets, then the port, and at last what the program takes.
func open(cfg *Config) (links []link.Link, err error) {
	d, err := newDevice(cfg)
	if err != nil {
		return nil, err
	}
	queues, err := queueCount(&d.ifc, cfg.Shards)
	if err != nil {
		return nil, err
	}
	d.chunks = chunksFor(cfg.RxChunks, queues)
	if d.prog, err = loadProgram(len(d.addrs)+moreAddrs+maxGroups, queues); err != nil {
		return nil, err
	}
	native, why, err := d.prog.attach(&d.ifc, cfg.Generic)
	if err != nil {
		d.prog.close()
		return nil, err
	}
	d.native = native
	if d.driver, err = hostnet.XDP(d.ifc.Index); err != nil {
		d.prog.close()
		return nil, err
	}
	if d.hops, err = newHops(&d.ifc); err != nil {
		d.prog.close()
		return nil, err
	}
	if d.hold, err = udptx.HoldPort(d.addrs, wire.Port, cfg.Shards, false); err != nil {
		d.hops.close()
		d.prog.close()
		return nil, err
	}
	d.users.Store(int32(cfg.Shards))
	defer func() {
		if err == nil {
			return
		}
		for _, l := range links {
			_ = l.Close()
		}
		for range cfg.Shards - len(links) {
			d.release()
		}
		links = nil
	}()
	for i := range cfg.Shards {
		l, err := d.newLink(i, cfg.Shards, queues, why)
		if err != nil {
			return links, err
		}
		links = append(links, l)
		d.links = append(d.links, l)
	}
	for _, a := range d.addrs {
		if err := d.prog.serve(a, d.ifc.MAC); err != nil {
			return links, err
		}
	}
	return links, nil
}

// queueCount returns how many queues an interface receives by.
func queueCount(ifc *hostnet.Iface, shards int) (int, error) {
	rx, tx, err := sys.Channels(ifc.Name)
	if err != nil {
		return 0, err
	}
	if n := min(rx, tx); shards > n {
		return 0, fmt.Errorf("%d shards need as many queues, and %s has %d: more with 'ethtool -L %s combined %d' (veth: rx %[5]d tx %[5]d), where it can, or fewer shards", shards, ifc.Name, n, ifc.Name, shards)
	}
	return rx, nil
}

// chunksFor returns how many chunks each queue gets.
func chunksFor(want, queues int) int {
	if want == 0 {
		want = max(minRxChunks, min(defRxChunks, 1<<(bits.Len(uint(sumRxChunks/queues))-1)))
	}
	return want
}

// socketSize is for a socket with so many chunks for arriving packets.
func socketSize(chunks int, sends bool) sys.XSKSize {
	s := sys.XSKSize{Chunks: chunks, Fill: chunks, Rx: chunks, Comp: minRxChunks}
	if sends {
		s.Chunks += txSlots * slotChunks
		s.Comp, s.Tx = txSlots*slotChunks, txSlots*slotChunks
	}
	return s
}

// newLink opens link i of n: every n-th queue from i on, of which the first
// also sends.
func (d *device) newLink(i, n, queues int, generic error) (_ *Link, err error) {
	l := &Link{dev: d, first: i == 0}
	var fds []int
	defer func() {
		if err != nil {
			for _, x := range l.socks {
				x.Close()
			}
		}
	}()
	for q := i; q < queues; q += n {
		x, err := sys.NewXSK(socketSize(d.chunks, q == i))
		if err != nil {
			return nil, err
		}
		l.socks = append(l.socks, x)
		fds = append(fds, x.FD)
		l.rx.queues = append(l.rx.queues, newQueue(x, d.chunks))
		if err := d.bind(x, q); err != nil {
			return nil, err
		}
		if err := d.prog.listen(q, x.FD); err != nil {
			return nil, err
		}
	}
	l.rx.join = make([]byte, joinLen)
	if !d.native {
		l.rx.runs = newRuns()
	}
	stack, err := udptx.New(udptx.Config{Addrs: d.addrs, In: d.in})
	if err != nil {
		return nil, err
	}
	if l.poll, err = sys.NewPoller(fds); err != nil {
		stack.Close()
		return nil, err
	}
	if err := l.socks[0].SetSendBuffer(sndBuf); err != nil {
		stack.Close()
		l.poll.Close()
		return nil, err
	}
	l.tx = newSender(d, l.socks[0], d.chunks*sys.ChunkLen, stack)
	l.info = d.info(stack)
	l.info.Missing = append(d.missing(generic, l.socks[0].ZeroCopy()), stack.Missing()...)
	return l, nil
}

// room is how long a packet may be, from its IP header on, that comes in one
// piece.
const room = sys.RxRoom - wire.EthernetLen - wire.VLANLen

// singleMTU is an MTU for a path MTU of 2048 whose packets come in one piece from
// any driver: some put more before a packet than the kernel does (virtio_net).
const singleMTU = 2200

// ways returns the flags to bind a socket with, the best first: packets in several
// pieces where the interface has longer ones than a piece takes (generic mode makes
// pieces of shorter ones too), then zero copy. A driver that has said what it can
// do is not asked for more; of an older kernel one is asked for both.
func (d *device) ways() (flags []uint16) {
	const base = unix.XDP_USE_NEED_WAKEUP
	f := &d.driver
	pieces := d.prog.frags && (!d.native || d.ifc.MTU > room && (f.Pieces || !f.Known))
	for _, sg := range []uint16{unix.XDP_USE_SG, 0} {
		if sg != 0 && !pieces {
			continue
		}
		switch {
		case !d.native:
		case !f.Known:
			flags = append(flags, base|sg) // zero copy, or else not
		case f.ZeroCopy && (sg == 0 || f.ZCPieces != 1):
			flags = append(flags, base|sg|unix.XDP_ZEROCOPY)
		}
		flags = append(flags, base|sg|unix.XDP_COPY)
	}
	return flags
}

// bind binds a socket to a queue, in the best way that kernel and driver have.
func (d *device) bind(x *sys.XSK, queue int) (err error) {
	for _, flags := range d.ways() {
		err = bindQueue(x, d.ifc.Index, queue, flags)
		if err == nil {
			d.bound(flags)
			return nil
		}
		if flags&unix.XDP_ZEROCOPY != 0 {
			d.refused = err
		}
		if errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return d.bindError(queue, err)
}

// bound notes what a socket that was bound with flags receives.
func (d *device) bound(flags uint16) {
	d.sg, d.mtu = flags&unix.XDP_USE_SG != 0, d.ifc.MTU
	if !d.sg {
		d.mtu = min(d.mtu, room)
	}
}

// bindQueue binds a socket. The kernel gives a queue back some time after the
// socket that had it was closed, so it is tried for a while.
func bindQueue(x *sys.XSK, ifindex, queue int, flags uint16) error {
	const patience, pause = time.Second, time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if err := x.Bind(ifindex, queue, flags); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

func (d *device) bindError(queue int, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("queue %d of %s is taken by another AF_XDP socket ('ss --xdp -p' tells whose); end that program, or use --link udp: %w", queue, d.ifc.Name, err)
	}
	return fmt.Errorf("bind an AF_XDP socket to queue %d of %s: %w", queue, d.ifc.Name, err)
}

// info describes a link.
func (d *device) info(stack *udptx.Sender) link.Info {
	perPacket := 1
	if d.mtu > sys.RxRoom {
		perPacket = 2
	}
	w := window
	if d.chunks > 0 {
		w = min(w, d.chunks/perPacket)
	}
	return link.Info{
		Name: "xdp", Exact4: true, Exact6: true, IDs: stack.IDs(),
		MaxSegments: stack.MaxSegments(), MaxBytes: wire.MaxBurstBytes, MaxBursts: maxBursts,
		Window: w, MTU: d.mtu,
	}
}

// missing says what a link does without.
func (d *device) missing(generic error, zeroCopy bool) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	name, f := d.ifc.Name, &d.driver
	switch {
	case generic != nil && f.Known && !f.Native:
		add("the driver of %s has no XDP, so the program runs behind it (generic mode), when the kernel has made its own packet of each; a driver with XDP is faster, and --link packet needs none", name)
	case generic != nil:
		add("the driver of %s refuses the XDP program (%v; 'dmesg' may tell why: most take none with an MTU above their page, or need more queues), so it runs behind it (generic mode), when the kernel has made its own packet of each; a smaller MTU, or more queues by 'ethtool -L %[1]s', help", name, generic)
	case !d.native:
		add("the XDP program runs in generic mode because the configuration asks for it (Generic); the driver's own is faster")
	case zeroCopy:
	case d.refused != nil:
		add("the driver of %s has zero copy for AF_XDP but refuses it (%v), so the kernel copies each packet, which is slower; 'dmesg' may tell why, and a smaller MTU may help", name, d.refused)
	case f.ZeroCopy && d.sg:
		add("the driver of %s has zero copy for AF_XDP only for packets in one piece, so with an MTU of %d the kernel copies each; 'ip link set %[1]s mtu %[3]d', which allows a path MTU of 2048, gives zero copy", name, d.ifc.MTU, singleMTU)
	default:
		add("the driver of %s has no zero copy for AF_XDP, so the kernel copies each packet; --link udp is faster then", name)
	}
	if d.mtu < d.ifc.MTU {
		why := "AF_XDP takes packets in several pieces since Linux 6.6"
		if d.native && f.Known && !f.Pieces {
			why = "its driver gives XDP no packets in several pieces"
		}
		add("packets longer than %d octets cannot be received, although %s has an MTU of %d: %s; 'ip link set %[2]s mtu %[1]d' makes that the limit for all", d.mtu, name, d.ifc.MTU, why)
	}
	return out
}
