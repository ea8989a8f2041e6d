package oob

import (
	"errors"
	"time"
)

// Kind is one of perftest's programs.
type Kind uint8

const (
	SendBW Kind = iota
	SendLat
	WriteBW
	WriteLat
	ReadBW
	ReadLat
	AtomicBW
	AtomicLat
	kinds
)

var kindNames = [kinds]string{"send_bw", "send_lat", "write_bw", "write_lat", "read_bw", "read_lat", "atomic_bw", "atomic_lat"}

// String returns the name of the program without its "ib_".
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown kind of test"
}

// Latency reports whether the program measures latency, and not bandwidth.
func (k Kind) Latency() bool { return k == SendLat || k == WriteLat || k == ReadLat || k == AtomicLat }

// Send reports whether the program sends messages, which the peer has to have
// posted receive requests for.
func (k Kind) Send() bool { return k == SendBW || k == SendLat }

// Config says which conversation to have. Both ends must agree on all of it
// but the limits; perftest's exchange before 6.28 tells neither end where they
// differ, except in the length of the conversation.
type Config struct {
	Kind     Kind
	Server   bool
	QPs      int  // -q, 0 means 1
	Both     bool // -b, bidirectional; latency tools are not
	All      bool // -a, all sizes
	Duration bool // -D
	Infinite bool // --run_infinitely
	// WriteImm says that WRITEs carry immediate data (--write_with_imm, 6.17
	// and later), which makes write_bw wait like send_bw.
	WriteImm bool
	// Datagram says that the queue pairs are UD: a QPN may then be that of a
	// multicast group.
	Datagram bool
	// Validation says that both ends were started with --data_validation (6.28
	// and later), which widens addresses by a second virtual address.
	Validation bool

	// MTU is the path MTU to offer, one of 256, 512, 1024, 2048, 4096.
	MTU int
	// CycleBuffer and CacheLine are octets; 0 means 4096 and 64. The larger of
	// the two ends' holds.
	CycleBuffer, CacheLine int
	// Version is what to call ourselves; "" means Version, which peers of every
	// version from 5.70 on treat alike.
	Version string

	// StepTimeout bounds each step until the run, and each message once its
	// first octet is there; 0 means DefaultStepTimeout.
	StepTimeout time.Duration
	// RunTimeout bounds the waits for a peer that may still be measuring: all
	// after Connected. 0 means for as long as the connection lives; a peer's
	// host that dies is noticed by TCP's keepalive.
	RunTimeout time.Duration
}

// Version is the version of perftest that we say we are. From 6.28 on, both
// ends of a pair that says so exchange a raw C structure, whose layout depends
// on the build; to 6.27 newer peers talk as before.
const Version = "6.27"

// Defaults, perftest's own where it has one.
const (
	DefaultPort        = 18515
	DefaultCycleBuffer = 4096
	DefaultCacheLine   = 64
	DefaultStepTimeout = 60 * time.Second
)

var (
	// ErrVersion is that of a peer too old, or none of perftest's.
	ErrVersion = errors.New("not a version of perftest that can be talked to")
	// ErrProtocol is that of a peer that sent what no perftest sends.
	ErrProtocol = errors.New("not perftest's protocol")
	// ErrTimeout is that of a peer that was too slow.
	ErrTimeout = errors.New("the peer took too long")
	// ErrClosed is that of a peer that closed the connection before the end.
	ErrClosed = errors.New("the peer closed the connection")
	// ErrMismatch is that of two ends that were started with different options.
	ErrMismatch = errors.New("the two ends were started with different options")
)
