package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
)

const (
	socketBuffer = 32 << 20 // octets: what arrives while the relay has no processor
	batch        = 64       // frames of one system call
	frameSize    = 65536 + 64
	lookAgain    = time.Second // at an interface that is down, or whose MTU was too small
	maxAge       = int64(200 * time.Millisecond)
)

// port is an interface.
type port struct {
	name    string
	fd      int
	mtu     int
	rx      *sys.FrameRx
	tx      *sys.FrameTx
	way     *Way // of what arrives here
	down    bool
	removed bool
	looked  time.Time
	told    map[string]bool // what the log said
}

// Relay forwards between two interfaces.
type Relay struct {
	cfg    Config
	ports  [2]*port
	inj    *fault.Injector
	poller *sys.Poller
	start  time.Time
	frame  sys.Frame

	lap  time.Time // when the last report was
	last [2]Counts
	news chan *Report
}

// Open opens the interfaces, in the network namespace of the calling thread. Errors:
// those of Check, hostnet.ErrNoInterface, and syscall.EPERM, wrapped in what to do.
// Close must follow.
func Open(cfg Config) (*Relay, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	ifs, err := interfaces(&cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, start: time.Now(), news: make(chan *Report, 16)}
	if len(cfg.Rules) > 0 {
		r.inj = fault.NewInjector(cfg.Seed, 0, cfg.Rules)
	}
	for i := range ifs {
		fd, err := sys.FrameSocket(ifs[i].Index, socketBuffer)
		if err != nil {
			r.Close()
			return nil, refused(ifs[i].Name, err)
		}
		c := WayConfig{Line: cfg.AB, Dir: trace.Tx, Rules: cfg.Rules, Fault: r.inj, Seed: cfg.Seed, Split: cfg.Capture != nil}
		if i == 1 {
			c.Line, c.Dir = cfg.BA, trace.Rx
		}
		r.ports[i] = &port{
			name: ifs[i].Name, mtu: ifs[i].MTU, fd: fd, rx: sys.NewFrameRx(batch, frameSize), tx: sys.NewFrameTx(batch),
			way: NewWay(&c), told: map[string]bool{},
		}
	}
	if r.poller, err = sys.NewPoller([]int{r.ports[0].fd, r.ports[1].fd}); err != nil {
		r.Close()
		return nil, err
	}
	advise(&ifs[0], &ifs[1], cfg.Log)
	return r, nil
}

func refused(name string, err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		self, serr := os.Executable()
		if serr != nil {
			self = "PROGRAM"
		}
		return fmt.Errorf("%s: packet sockets need CAP_NET_RAW: run as root, or grant it with 'setcap cap_net_raw+ep %s': %w", name, self, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Close gives the interfaces back. Run must have ended.
func (r *Relay) Close() {
	for _, p := range r.ports {
		if p != nil {
			sys.Close(p.fd)
		}
	}
	if r.poller != nil {
		r.poller.Close()
	}
}

// Run forwards until ctx ends, which is no error, or an interface goes. It looks at
// the network namespace of the calling thread.
func (r *Relay) Run(ctx context.Context) error {
	// Not on a thread of its own: a goroutine that has one waits for another thread
	// each time that the Go scheduler has had it stop, every 10 ms.
	if r.cfg.Realtime {
		if err := sys.Realtime(); err != nil {
			return fmt.Errorf("real time: %w; it needs CAP_SYS_NICE", err)
		}
	}
	defer context.AfterFunc(ctx, r.poller.Wake)()

	told := make(chan struct{})
	go func() {
		defer close(told)
		for n := range r.news {
			if r.cfg.Report != nil {
				r.cfg.Report(n)
			}
		}
	}()
	r.start, r.lap = time.Now(), time.Now()
	err := r.run(ctx)
	r.news <- r.lastReport()
	close(r.news)
	<-told
	return err
}

func (r *Relay) run(ctx context.Context) error {
	for ctx.Err() == nil {
		now := time.Now()
		if err := r.lookAt(now); err != nil {
			return err
		}
		deadline, busy := int64(Never), false
		for i := range r.ports {
			d, more := r.step(now, i)
			deadline, busy = min(deadline, d), busy || more
		}
		if r.cfg.Every > 0 {
			due := r.lap.Add(r.cfg.Every)
			if !now.Before(due) {
				r.report(now)
				due = r.lap.Add(r.cfg.Every)
			}
			deadline = min(deadline, int64(due.Sub(r.start)))
		}
		if busy {
			continue
		}
		if wait := deadline - int64(time.Since(r.start)); wait > 0 {
			if _, err := r.poller.Wait(time.Duration(wait), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// step receives from port i what there is, and sends to the other what is due. With
// more there is still something to receive.
//
//gorxe:hot
func (r *Relay) step(now time.Time, i int) (deadline int64, more bool) {
	p, to := r.ports[i], r.ports[1-i]
	n, e := p.rx.Recv(p.fd)
	if e != 0 {
		more = r.unreadable(p, e)
	}
	here := int64(now.Sub(r.start))
	wall := now.UnixNano()
	for k := range n {
		f := &r.frame
		p.rx.Take(k, f)
		frame := f.Octets[sys.FrameRoom:]
		if f.Truncated || len(frame) < 14 {
			p.way.Counts.Missed++
			r.tell(p, "truncated", "a frame from %s is longer than 64 KiB: 'ip link set %s gso_max_size 65536 gro_max_size 65536' at whoever sends and merges them", p.name, p.name)
			continue
		}
		if f.Tagged {
			frame = retag(f.Vnet, f.Octets, f.TPID, f.TCI)
		}
		// What came while the relay had no processor came then, and not now.
		at := here
		if age := wall - f.At; f.At != 0 && age > 0 && age < maxAge {
			at -= age
		}
		p.way.Receive(at, f.Vnet, frame)
	}
	if n == p.rx.Len() {
		r.flush(now, p, to) // what it sends may be in the buffers
		return Never, true
	}
	deadline = p.way.Step(here)
	r.flush(now, p, to)
	return deadline, more
}

// flush sends what comes out of p's direction to the other port.
func (r *Relay) flush(now time.Time, p, to *port) {
	out := p.way.Out()
	if len(out) == 0 {
		return
	}
	first := 0
	for i := range out {
		if to.mtu > 0 && vnet(out[i].Vnet).gso() != gsoNone && packetLen(out[i].Vnet, out[i].Frame) > to.mtu {
			// The kernel would not look at what it cuts them into.
			r.send(p, to, first, i)
			first = i + 1
			r.lose(p, to, i, syscall.EMSGSIZE)
			continue
		}
		to.tx.Add(out[i].Vnet, out[i].Frame)
		if to.tx.Full() {
			r.send(p, to, first, i+1)
			first = i + 1
		}
	}
	r.send(p, to, first, len(out))
	if r.cfg.Capture != nil {
		for i := range out {
			if out[i].packets >= 0 {
				r.cfg.Capture.Frame(now, to.name, out[i].Frame)
			}
		}
	}
	p.way.Sent(int64(time.Since(r.start)))
}

// send sends the batch, which is frames first to end-1 of what comes out of p.
func (r *Relay) send(p, to *port, first, end int) {
	n := end - first
	for done := 0; done < n; {
		k, e := to.tx.Send(to.fd, done)
		if done += k; e != 0 {
			r.lose(p, to, first+done, e)
			done++
		}
	}
	to.tx.Reset()
}

// lose gives up frame i of what comes out of p.
func (r *Relay) lose(p, to *port, i int, e syscall.Errno) {
	frame := p.way.Out()[i]
	switch e {
	case syscall.EINTR:
		p.way.Counts.Refused++
	case syscall.EMSGSIZE:
		p.way.Counts.TooLong++
		r.tell(to, "long", "a packet of %d octets does not pass %s, whose MTU is %d: give both interfaces, and their neighbours, one MTU ('ip link set %s mtu N')",
			packetLen(frame.Vnet, frame.Frame), to.name, to.mtu, to.name)
		if time.Since(to.looked) > lookAgain {
			r.lookUp(to)
		}
	case syscall.ENETDOWN, syscall.ENXIO, syscall.ENODEV:
		p.way.Counts.Refused++
		r.isDown(to)
	default: // EAGAIN and ENOBUFS: the interface is slower than what comes
		p.way.Counts.Refused++
		r.tell(to, "refused", "%s takes less than what comes for it: %v; frames are lost", to.name, e)
	}
	p.way.Lost(i)
}

// unreadable handles an error of receiving, and reports whether to try again.
func (r *Relay) unreadable(p *port, e syscall.Errno) bool {
	switch e {
	case syscall.EAGAIN:
		return false
	case syscall.EINTR:
	case syscall.EINVAL:
		p.way.Counts.Missed++
		r.tell(p, "vnet", "a frame from %s is a super-packet of a kind that cannot be passed on, as of a tunnel: 'ethtool -K DEV tx-udp_tnl-segmentation off' at whoever sends them", p.name)
	default:
		r.isDown(p)
	}
	return true
}

func (r *Relay) isDown(p *port) {
	if !p.down {
		p.down = true
		p.looked = time.Time{}
		r.cfg.Log(fmt.Sprintf("%s is down: nothing passes; 'ip link set %s up'", p.name, p.name))
	}
}

// lookAt looks again at interfaces that are down.
func (r *Relay) lookAt(now time.Time) error {
	for _, p := range r.ports {
		if p.down && now.Sub(p.looked) > lookAgain {
			r.lookUp(p)
		}
		if p.removed {
			return fmt.Errorf("%s has gone: interfaces must stay while they are relayed", p.name)
		}
	}
	return nil
}

// lookUp asks for an interface's present state.
func (r *Relay) lookUp(p *port) {
	p.looked = time.Now()
	ifc, err := hostnet.Interface(p.name)
	switch {
	case errors.Is(err, hostnet.ErrNoInterface):
		p.removed = true
	case err != nil:
	default:
		if p.mtu != ifc.MTU {
			p.mtu = ifc.MTU
			delete(p.told, "long")
		}
		if p.down && ifc.Up {
			p.down = false
			r.cfg.Log(p.name + " is up again")
		}
	}
}

// tell logs a thing once.
func (r *Relay) tell(p *port, key, format string, a ...any) {
	if !p.told[key] {
		p.told[key] = true
		r.cfg.Log(fmt.Sprintf(format, a...))
	}
}

// report tells what happened since the last one.
func (r *Relay) report(now time.Time) {
	n := r.newReport(now, now.Sub(r.lap))
	for i, p := range r.ports {
		q, late := p.way.Lap(int64(n.At))
		n.Ways[i] = newWayReport(p.way.Counts.Sub(r.last[i]), q, late, n.Span)
		r.last[i] = p.way.Counts
	}
	r.lap = now
	select {
	case r.news <- n:
	default: // nobody reads: the network does not wait for that
	}
}

// lastReport tells what happened in all.
func (r *Relay) lastReport() *Report {
	now := time.Now()
	n := r.newReport(now, now.Sub(r.start))
	n.Last = true
	for i, p := range r.ports {
		p.way.Lap(int64(n.At))
		q, late := p.way.Total()
		n.Ways[i] = newWayReport(p.way.Counts, q, late, n.Span)
	}
	return n
}

func (r *Relay) newReport(now time.Time, span time.Duration) *Report {
	n := &Report{At: now.Sub(r.start), Span: span}
	for _, p := range r.ports {
		if d := sys.FrameDrops(p.fd); d > 0 {
			p.way.Counts.Missed += d
			r.tell(p, "missed", "frames from %s came faster than they were read, and were lost: the machine is too slow for this", p.name)
		}
	}
	if r.inj != nil {
		n.Rules = r.inj.Stats()
	}
	return n
}
