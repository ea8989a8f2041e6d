package main

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/sys"
)

// floor is what the kernel's sockets alone cost: the system calls that the link
// makes for the same traffic, with nothing of RDMA around them: no headers, no
// ICRC, no queue pair. No transport over them can be faster.
type floor struct {
	*job
	rx, tx int
	peer   netip.AddrPort
	in     *sys.RxBatch
	out    *sys.TxBatch
	start  time.Time
}

const (
	floorPort = 18600
	floorAck  = 60  // super-packets' segments that share an acknowledgement
	floorWin  = 512 // segments in flight
)

// floors are its operations.
func (j *job) floors() func(*floor) (samples, error) {
	switch j.Op {
	case "floor_lat":
		return (*floor).pingpong
	case "floor_bw":
		return (*floor).stream
	}
	return nil
}

func (j *job) floor(conn net.Conn, op func(*floor) (samples, error)) (samples, error) {
	here := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	there := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	f := &floor{job: j, peer: netip.AddrPortFrom(there, floorPort), in: sys.NewRxBatch(4, 1<<16), out: sys.NewTxBatch(8, 256)}
	var err error
	for _, fd := range []*int{&f.rx, &f.tx} {
		if *fd, err = sys.UDPSocket(here); err != nil {
			return nil, err
		}
		defer sys.Close(*fd)
	}
	if err := sys.SetGRO(f.rx); err != nil {
		return nil, err
	}
	if _, err := sys.SetReceiveBuffer(f.rx, 8<<20); err != nil {
		return nil, err
	}
	if err := sys.SetDontFragment(f.tx, here); err != nil {
		return nil, err
	}
	if err := sys.Bind(f.rx, netip.AddrPortFrom(here, floorPort), 0); err != nil {
		return nil, err
	}
	// Both are bound before anything is sent.
	if _, err := conn.Write([]byte{1}); err != nil {
		return nil, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	f.start = time.Now()
	return op(f)
}

// send sends one message of n octets, cut into segments of seg.
func (f *floor) send(p []byte, seg int) error {
	f.out.Reset()
	m := sys.TxMeta{To: f.peer, Marked: true}
	if seg < len(p) {
		m.Segment = uint16(seg)
	}
	f.out.Add(&m)
	f.out.Piece(p)
	if n, errno := f.out.Send(f.tx); n != 1 {
		return errno
	}
	return nil
}

// recv takes what has come and returns how many octets of how many segments; it
// yields when there is nothing.
func (f *floor) recv(to []byte) (octets, segs int, err error) {
	n, errno := f.in.RecvOne(f.rx)
	switch errno {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		sys.Yield()
		return 0, 0, nil
	default:
		return 0, 0, errno
	}
	var m sys.RxMessage
	for i := range n {
		f.in.Take(i, &m)
		copy(to, m.Payload)
		octets += len(m.Payload)
		if segs++; m.Segment > 0 {
			segs += (len(m.Payload) - 1) / m.Segment
		}
	}
	return octets, segs, nil
}

// pingpong exchanges messages of 40 octets, in two segments: a short message and
// an acknowledgement. The last is one of a single octet.
func (f *floor) pingpong() (samples, error) {
	msg := make([]byte, 40)
	var trips []time.Duration
	if !f.Server {
		trips = make([]time.Duration, 0, 1<<22)
	}
	for last := time.Now(); ; {
		over := false
		if !f.Server {
			over = time.Since(f.start) > f.Time || len(trips) == cap(trips)
			if over {
				if err := f.send(msg[:1], 1); err != nil {
					return nil, err
				}
				return halves(trips)
			}
			if err := f.send(msg, 20); err != nil {
				return nil, err
			}
		}
		n := 0
		for n == 0 {
			var err error
			if n, _, err = f.recv(nil); err != nil {
				return nil, err
			}
			if n == 0 && time.Since(f.start) > f.Time+stuck {
				return nil, fmt.Errorf("a message is lost")
			}
		}
		if f.Server {
			if n == 1 {
				return nil, nil
			}
			if err := f.send(msg, 20); err != nil {
				return nil, err
			}
			continue
		}
		now := time.Now()
		trips = append(trips, now.Sub(last))
		last = now
	}
}

// stream sends super-packets of 15 segments from a megabyte of memory into
// another, with a window and acknowledgements.
func (f *floor) stream() (samples, error) {
	const seg, segs = 4116, 15
	mem := make([]byte, 1<<20)
	at := func(n int) []byte { return mem[n*seg*segs%(len(mem)-seg*segs):][:seg*segs] }
	sent, acked, heard := 0, 0, f.start
	for round := 0; ; round++ {
		if f.Server {
			n, k, err := f.recv(at(round))
			if err != nil {
				return nil, err
			}
			if n == 1 { // the end
				return nil, nil
			}
			if sent += k; sent-acked >= floorAck {
				if err := f.send(mem[:2], 2); err != nil {
					return nil, err
				}
				acked += floorAck
			}
			if k > 0 {
				heard = time.Now()
			} else if time.Since(heard) > stuck {
				return nil, fmt.Errorf("nothing comes any more")
			}
			continue
		}
		open := time.Since(f.start) < f.Time
		if !open && sent-acked < floorAck {
			took := time.Since(f.start).Seconds()
			if err := f.send(mem[:1], 1); err != nil {
				return nil, err
			}
			return samples{"": float64(acked) * (seg - 20) * 8 / took / 1e9}, nil
		}
		if open && sent-acked+segs <= floorWin {
			if err := f.send(at(sent/segs), seg); err != nil {
				return nil, err
			}
			sent += segs
			if sent%(2*segs) != 0 {
				continue
			}
		}
		_, k, err := f.recv(nil)
		if err != nil {
			return nil, err
		}
		acked += k * floorAck
		if time.Since(f.start) > f.Time+stuck {
			return nil, fmt.Errorf("%d segments are not acknowledged", sent-acked)
		}
	}
}
