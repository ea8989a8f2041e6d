package oob

import "time"

// Defaults are perftest's own where it has one.
const (
	DefaultPort        = 18515
	DefaultCycleBuffer = 4096 // octets
	DefaultCacheLine   = 64   // octets

	// DefaultStepTimeout allows for a peer that registers gigabytes, or runs in
	// an emulator, between two steps.
	DefaultStepTimeout = 60 * time.Second
)

// Version is the version of perftest that we say we are. Two ends of which both
// say 6.28 or more exchange a raw C structure, whose layout depends on the
// build, and 6.29 something else again; to 6.27 they talk as before.
const Version = "6.27"

const (
	versionLen = 16   // octets on the wire, padded with NUL
	oldest     = 5.70 // perftest refuses less, and so do we
	newest     = 6.28 // what we may not say to be

	maxCycleBuffer = 64 << 20 // octets; a page is 64 KiB at most, a huge one 2 MiB
	maxCacheLine   = 64 << 10 // octets; 256 is the most in use
	maxOutReads    = 255      // ibv_qp_attr has 8 bits
	maxSize        = 1 << 31  // octets of a message, IBA 9.4.1
	maxIters       = 1 << 53
	maxRate        = 1e15 // of any unit
	maxQPs         = 16384

	keepIdle     = 10 * time.Second // of TCP's keepalive: 25 s in all
	keepInterval = 5 * time.Second
	keepCount    = 3

	lingerTimeout = 2 * time.Second // for the peer's last word
	lingerOctets  = 4096
)
