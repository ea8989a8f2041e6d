package oob

import (
	"errors"
	"fmt"
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
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Latency reports whether the program measures latency, and not bandwidth.
func (k Kind) Latency() bool {
	return k == SendLat || k == WriteLat || k == ReadLat || k == AtomicLat
}

// Send reports whether the program sends messages, which the peer has to have
// posted receive requests for.
func (k Kind) Send() bool { return k == SendBW || k == SendLat }

// reads reports whether requests of the program use up max_rd_atomic.
func (k Kind) reads() bool {
	return k == ReadBW || k == ReadLat || k == AtomicBW || k == AtomicLat
}

// Config says which conversation to have. Both ends must agree on all of it
// but the limits and sizes; what perftest says before 6.28 shows a difference
// only where it changes the length of the conversation, or in the last report.
type Config struct {
	Kind     Kind
	Server   bool
	QPs      int  // -q, 0 means 1
	Both     bool // -b, bidirectional
	All      bool // -a, all sizes
	Duration bool // -D
	Infinite bool // --run_infinitely
	// WriteImm says that WRITEs carry immediate data (--write_with_imm), which
	// makes write_bw and write_lat go like send_bw and send_lat.
	WriteImm bool
	// Datagram says that the queue pairs are UD: an address may then be that of
	// a multicast group.
	Datagram bool
	// Validation says that both ends were started with --data_validation (after
	// 6.28), which widens addresses by a second virtual address.
	Validation bool

	// MTU is the path MTU to offer, in octets: 256, 512, 1024, 2048, 4096.
	MTU int
	// CycleBuffer and CacheLine are octets; 0 means the default. The larger of
	// the two ends' holds.
	CycleBuffer, CacheLine int
	// Version is what to call ourselves; "" means Version, which peers of every
	// version from 5.70 on treat alike.
	Version string

	// StepTimeout bounds each step until the run, and each message of later
	// steps from its first octet on; 0 means DefaultStepTimeout.
	StepTimeout time.Duration
	// RunTimeout bounds each wait for a peer that may still be measuring, which
	// are all after Connected. 0 means for as long as the connection lives; a
	// peer whose host dies is noticed by TCP's keepalive.
	RunTimeout time.Duration
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.QPs == 0 {
		cfg.QPs = 1
	}
	if cfg.CycleBuffer == 0 {
		cfg.CycleBuffer = DefaultCycleBuffer
	}
	if cfg.CacheLine == 0 {
		cfg.CacheLine = DefaultCacheLine
	}
	if cfg.Version == "" {
		cfg.Version = Version
	}
	if cfg.StepTimeout <= 0 {
		cfg.StepTimeout = DefaultStepTimeout
	}
	v, err := parseVersion([]byte(cfg.Version))
	switch {
	case cfg.Kind >= kinds:
		return cfg, fmt.Errorf("oob: no such program: %v", cfg.Kind)
	case cfg.QPs < 0 || cfg.QPs > maxQPs:
		return cfg, fmt.Errorf("oob: %d queue pairs: 1 to %d are possible", cfg.QPs, maxQPs)
	case cfg.Kind.Latency() && cfg.QPs > 1:
		return cfg, fmt.Errorf("oob: %v measures with one queue pair, not %d", cfg.Kind, cfg.QPs)
	case cfg.Kind.Latency() && cfg.Both:
		return cfg, fmt.Errorf("oob: %v always goes both ways; leave out -b", cfg.Kind)
	case cfg.WriteImm && cfg.Kind != WriteBW && cfg.Kind != WriteLat:
		return cfg, fmt.Errorf("oob: %v has no immediate data; leave out --write_with_imm", cfg.Kind)
	case mtuCode(cfg.MTU) == 0:
		return cfg, fmt.Errorf("oob: no path MTU is %d octets: 256, 512, 1024, 2048 and 4096 are", cfg.MTU)
	case cfg.CycleBuffer < 0 || cfg.CycleBuffer > maxCycleBuffer:
		return cfg, fmt.Errorf("oob: a cycle buffer of %d octets: 1 to %d are possible", cfg.CycleBuffer, maxCycleBuffer)
	case cfg.CacheLine < 0 || cfg.CacheLine > maxCacheLine:
		return cfg, fmt.Errorf("oob: a cache line of %d octets: 1 to %d are possible", cfg.CacheLine, maxCacheLine)
	case err != nil || v < oldest || v >= newest || len(cfg.Version) >= versionLen:
		return cfg, fmt.Errorf("oob: version %q: say one from %.2f up to, and not, %.2f", cfg.Version, oldest, newest)
	}
	return cfg, nil
}

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
