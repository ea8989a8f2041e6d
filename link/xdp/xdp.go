package xdp

import (
	"errors"
	"net/netip"
)

// ErrPrivilege is wrapped by the error for a process that may not use AF_XDP.
var ErrPrivilege = errors.New("missing privilege")

// ErrOccupied is wrapped by the error for an interface that already has an XDP
// program.
var ErrOccupied = errors.New("there is an XDP program already")

// Config says what to open. Only Interface is required.
type Config struct {
	// Interface is the name of the interface to take packets from.
	Interface string

	// Addrs are the local addresses to serve; each must be one of the
	// interface's, or on lo any loopback address. None means all of the
	// interface's.
	Addrs []netip.Addr

	// Shards is the number of links, 1 to 16, and no more than the interface
	// has queues; 0 means 1. Each link has every Shards-th queue, and the
	// device spreads packets over the queues as it likes (RSS).
	Shards int

	// Generic asks for generic mode where the driver has a native one too.
	Generic bool

	// RxChunks is the memory for arriving packets of each queue, in pieces of
	// 4096 octets, a power of two from 64 to 32768. A packet of more than 3840
	// octets takes two. 0 means 2048, or less where there are many queues.
	RxChunks int

	// In runs a function in the network namespace of the links, where another
	// thread needs a socket there after Open, which is called in it. (In the
	// thread itself.)
	In func(func() error) error
}

// Limits and defaults.
const (
	maxGroups   = 256     // multicast groups
	moreAddrs   = 256     // addresses that may come beside those there are at first
	maxShards   = 16      // the shard bits of a queue pair number
	minRxChunks = 64      // of a queue
	maxRxChunks = 1 << 15 // of a queue: 128 MiB
	defRxChunks = 2048    // of a queue
	sumRxChunks = 8192    // of all queues of an Open, unless asked for: 32 MiB
	maxRecv     = 64      // datagrams in one Recv
	joinLen     = 1 << 17 // octets of joined packets in one Recv; the longest one has 18 pieces
	txSlots     = 512     // frames on their way out of a link: 4 MiB
	slotChunks  = 2       // of a slot, so its frame has up to 8192 octets
	sndBuf      = 8 << 20 // octets; the kernel counts twice that, and a full slot as 12 KiB
	maxBursts   = 8       // in one Send: as many as fill the slots
	window      = 512     // packets in flight, at most; more gain nothing
)
