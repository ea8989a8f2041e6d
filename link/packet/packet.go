package packet

import (
	"errors"
	"net/netip"
)

// ErrPrivilege is wrapped by the error for a process that may not open packet
// sockets.
var ErrPrivilege = errors.New("missing capability CAP_NET_RAW")

// Config says what to open. Only Interface is required.
type Config struct {
	// Interface is the name of the interface to receive from.
	Interface string

	// Addrs are the local addresses to serve; each must be one of the
	// interface's, or on lo any loopback address. None means all of the
	// interface's.
	Addrs []netip.Addr

	// Shards is the number of links, 1 to 16; 0 means 1. Packets are spread by
	// the lowest four bits of the destination queue pair number, modulo
	// Shards; a run that the kernel merged goes where its first packet goes.
	Shards int

	// RcvBuf is the receive buffer of each link in octets; 0 means 6 MiB. It
	// is memory that the kernel sets apart: for each 732 KiB begun, 60 slots for
	// single packets and 7 for runs of them. Where the kernel has no such memory
	// it is the limit of a queue (SO_RCVBUF); beyond net.core.rmem_max that
	// takes CAP_NET_ADMIN, and without, the limit is what one gets.
	RcvBuf int

	// In runs a function in the network namespace of the links, where another
	// thread needs a socket there after Open, which is called in it. (In the
	// thread itself.)
	In func(func() error) error

	noRing bool // as if the kernel refused it
}

// Limits and defaults.
const (
	maxGroups     = 256     // multicast groups; each is two instructions of a filter
	maxShards     = 16      // the shard bits of a queue pair number
	defaultRcvBuf = 6 << 20 // octets; see Config
	maxLook       = 64      // frames in one Recv while few are for us

	// Of the rings. A unit is a block of long slots and some of short ones; the
	// kernel's memory comes in powers of two pages, so 119 and 16 are a good fit.
	longSlot, longBlock   = 17 << 12, 7
	shortSlot, shortBlock = 4352, 15
	shortBlocks           = 4                                                           // in a unit
	unitLen               = longBlock*longSlot + shortBlocks*(shortBlock*shortSlot+256) // octets
	maxUnits              = 146                                                         // 104 MiB
	shortFrame            = shortSlot - 96                                              // octets; of a path MTU of 4096 any single packet

	// Of receiving without them.
	slots     = 16          // messages in one recvmmsg
	maxRounds = 4           // receive calls in one Recv while nothing is for us
	slotLen   = 65536 + 128 // virtio header, Ethernet and tag, IPv6 header, 65535 octets
)

// member is a joined multicast group.
type member struct {
	fd   int // of the UDP socket that is the host's membership
	link int // that receives for the group
}
