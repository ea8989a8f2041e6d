package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// receiver turns what arrives by an inlet into datagrams: out of its rings, or by
// system calls where it has none.
type receiver struct {
	in    inlet
	rings *rings                       // nil without
	batch *sys.RxBatch                 // nil with rings
	addrs atomic.Pointer[[]netip.Addr] // destinations that are ours
	m     sys.RxMessage

	packets, bytes, dropped atomic.Uint64
	reasons                 [trace.NumReasons]atomic.Uint64
}

func newReceiver(in inlet, addrs []netip.Addr) *receiver {
	r := &receiver{in: in}
	if len(in) == 2 {
		r.rings = &rings{in[0].ring, in[1].ring}
	} else {
		r.batch = sys.NewRxBatch(slots, slotLen)
	}
	r.addrs.Store(&addrs)
	return r
}

// close releases the inlet.
func (r *receiver) close() {
	for _, t := range r.in {
		r.dropped.Add(drops(t.fd))
		t.close()
	}
}

// rings are those of an inlet. A frame is in one of them by its length, which
// must not change the order of those that came one after another.
type rings struct{ short, long *sys.PacketRing }

// idle reports whether there is nothing to do. It is a few loads.
func (r *rings) idle() bool { return r.short.Idle() && r.long.Idle() }

func (r *rings) giveBack() {
	r.short.GiveBack()
	r.long.GiveBack()
}

// next takes the frame that came first; nil when there is none.
func (r *rings) next() []byte { return first(r.long, r.short) }

// lane is one of the rings, as first sees it.
type lane interface {
	Peek() []byte
	Take()
}

// first takes the frame that came first. The kernel shows a frame before it has
// to do with the next of the same flow, so when both lanes were looked at after
// one of them showed a frame, what came before that is seen.
func first(long, short lane) []byte {
	run := long.Peek()
	packet := short.Peek()
	if run == nil {
		if packet == nil {
			return nil
		}
		run = long.Peek()
	}
	if packet == nil || run != nil && earlier(run, packet) {
		long.Take()
		return run
	}
	short.Take()
	return packet
}

// set, add and drop change the destinations, beside recv. One goroutine at a time.
func (r *receiver) set(addrs []netip.Addr) { r.addrs.Store(&addrs) }

func (r *receiver) add(a netip.Addr) {
	addrs := append(slices.Clone(*r.addrs.Load()), a)
	r.addrs.Store(&addrs)
}

func (r *receiver) drop(a netip.Addr) {
	addrs := slices.DeleteFunc(slices.Clone(*r.addrs.Load()), func(b netip.Addr) bool { return a == b })
	r.addrs.Store(&addrs)
}

// look fills ds from the rings. Frames that are not for our addresses are
// somebody else's and pass uncounted; those that are no valid RoCEv2 are
// counted. It may be called beside close and later.
//
//gorxe:hot
func (r *receiver) look(ds []wire.Datagram) (n int) {
	r.rings.giveBack()
	addrs := *r.addrs.Load()
	var packets, bytes int
	for range maxLook {
		if n == len(ds) {
			break
		}
		slot := r.rings.next()
		if slot == nil {
			break
		}
		d := &ds[n]
		if reason := parseSlot(slot, d); reason != trace.None {
			r.reasons[reason].Add(1)
			continue
		}
		if !slices.Contains(addrs, d.Dst) {
			continue
		}
		packets += d.Segments()
		bytes += len(d.Payload)
		n++
	}
	r.count(n, packets, bytes)
	return n
}

func (r *receiver) count(n, packets, bytes int) {
	if n > 0 {
		r.packets.Add(uint64(packets))
		r.bytes.Add(uint64(bytes))
	}
}

// recv is look by system calls. After a call's worth of nothing but frames that
// are not for us it looks again.
//
//gorxe:hot
func (r *receiver) recv(ds []wire.Datagram) (int, error) {
	for range maxRounds {
		got, errno := r.batch.Recv(r.in[0].fd, len(ds))
		switch errno {
		case 0:
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR, unix.ENETDOWN:
			continue
		case unix.EINVAL: // a frame whose kind of offload virtio cannot tell
			r.reasons[trace.DropNotRoCE].Add(1)
			continue
		default:
			return 0, recvError(errno)
		}
		if n := r.take(ds, got); n > 0 {
			return n, nil
		}
	}
	return 0, nil
}

// take parses the got messages of the batch into ds.
func (r *receiver) take(ds []wire.Datagram, got int) (n int) {
	addrs := *r.addrs.Load()
	var packets, bytes int
	for i := range got {
		r.batch.Take(i, &r.m)
		d := &ds[n]
		if reason := parseMessage(r.m.Payload, d); reason != trace.None {
			r.reasons[reason].Add(1)
			continue
		}
		if !slices.Contains(addrs, d.Dst) {
			continue
		}
		packets += d.Segments()
		bytes += len(d.Payload)
		n++
	}
	r.count(n, packets, bytes)
	return n
}

func recvError(e syscall.Errno) error { return fmt.Errorf("packet: receive: %w", e) }

// stats adds what was received to s. open says whether the sockets may
// still be asked.
func (r *receiver) stats(s *link.Stats, open bool) {
	if open {
		for _, t := range r.in {
			r.dropped.Add(drops(t.fd)) // the kernel counts from the last question
		}
	}
	s.RxPackets, s.RxBytes, s.RxDropped = r.packets.Load(), r.bytes.Load(), r.dropped.Load()
	for i := range r.reasons {
		s.RxInvalid += r.reasons[i].Load()
	}
}
