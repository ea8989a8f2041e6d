package sys

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller waits for descriptors to become readable, or for Wake.
type Poller struct {
	event   int           // eventfd of Wake
	fds     []unix.PollFd // of Wait: the eventfd, one to write to, then the readable ones
	waiting atomic.Bool
	woken   atomic.Bool
	next    atomic.Pointer[[]int] // readable ones from the next Wait on
}

const pollerFixed = 2

// longestWait bounds system calls that block. Go 1.26 stops all goroutines, as its
// collector must, by taking the processors of those that are in a system call when it
// looks; one that enters at just that moment keeps its own, and everything waits for
// the call to end (runtime.reentersyscall looks at gcwaiting before it says that it is in
// the call, stopTheWorldWithSema looks but once, and preemptone leaves it alone). Earlier
// versions looked the other way round.
const longestWait = 100 * time.Millisecond

// bounded is a wait of at most longestWait, where d < 0 is for ever.
func bounded(d time.Duration) *unix.Timespec {
	if d < 0 || d > longestWait {
		d = longestWait
	}
	t := unix.NsecToTimespec(int64(d))
	return &t
}

// NewPoller returns a Poller over fds, which it does not own.
func NewPoller(fds []int) (*Poller, error) {
	efd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &Poller{event: efd, fds: make([]unix.PollFd, pollerFixed, pollerFixed+len(fds))}
	p.fds[0] = unix.PollFd{Fd: int32(efd), Events: unix.POLLIN}
	p.fds[1] = unix.PollFd{Fd: -1, Events: unix.POLLOUT}
	p.watch(fds)
	return p, nil
}

func (p *Poller) watch(fds []int) {
	p.fds = p.fds[:pollerFixed]
	for _, fd := range fds {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
}

// Set changes the descriptors to fds, which the Poller keeps and does not own.
// A Wait in progress ends. It may still be looking at the old ones, or at what
// has got their number since, and at worst ends for one of those.
func (p *Poller) Set(fds []int) {
	p.next.Store(&fds)
	p.Wake()
}

// precise is what a wait has to be shorter than to end in time: the next packet of a
// rate that is to be kept, say.
const precise = 10 * time.Millisecond

// Wait blocks until a descriptor is readable, out is writable (unless it is
// negative), Wake is called, or d has passed; d < 0 means for ever. It may return
// early, and does after longestWait. It returns
// a set of the readable ones by index; the 64th and later share the last bit,
// and around a Set the indexes are those of either list.
// One goroutine at a time may wait.
func (p *Poller) Wait(d time.Duration, out int) (ready uint64, err error) {
	p.waiting.Store(true)
	defer p.waiting.Store(false)
	if p.woken.Swap(false) {
		return 0, nil
	}
	if p.next.Load() != nil {
		p.watch(*p.next.Swap(nil))
	}
	p.fds[1].Fd = int32(out)
	if d > 0 && d < precise {
		PreciseSleep() // of this thread; Go may have another one tomorrow
	}
	n, err := unix.Ppoll(p.fds, bounded(d), nil)
	switch {
	case err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("ppoll", err)
	case n == 0:
		return 0, nil
	}
	if p.fds[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(p.event, b[:])
		p.woken.Store(false)
	}
	for i := range p.fds[pollerFixed:] {
		if p.fds[pollerFixed+i].Revents != 0 {
			ready |= 1 << min(i, 63)
		}
	}
	return ready, nil
}

// Waiting reports whether somebody is in Wait.
func (p *Poller) Waiting() bool { return p.waiting.Load() }

// Wake ends the Wait in progress, or the next one. It costs a system call only
// when somebody waits.
func (p *Poller) Wake() {
	if p.woken.Swap(true) || !p.waiting.Load() {
		return
	}
	one := uint64(1)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(p.event), uintptr(unsafe.Pointer(&one)), 8)
}

// Close releases the eventfd. Nobody may be waiting.
func (p *Poller) Close() { _ = unix.Close(p.event) }
