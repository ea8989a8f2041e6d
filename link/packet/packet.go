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

	// RcvBuf is the receive buffer of each link in octets; 0 means 16 MiB. It
	// is memory that the kernel sets apart, in slots of 68 KiB: a frame takes
	// one however short it is. Where the kernel has no such memory it is the
	// limit of a queue (SO_RCVBUF); beyond net.core.rmem_max that takes
	// CAP_NET_ADMIN, and without, the limit is what one gets.
	RcvBuf int

	noRing bool // as if the kernel refused it
}

// Limits and defaults.
const (
	maxGroups     = 256      // multicast groups; each is two instructions of a filter
	maxShards     = 16       // the shard bits of a queue pair number
	defaultRcvBuf = 16 << 20 // octets; see Config

	// Of the ring. Seven slots are 119 pages, and the kernel's memory comes in
	// powers of two.
	ringSlot   = 17 << 12 // room for what a message holds, and the ring's own header
	blockSlots = 7
	maxBlocks  = 146 // 1022 slots, 68 MiB
	maxLook    = 64  // frames in one Recv while few are for us

	// Of receiving without it.
	slots     = 16          // messages in one recvmmsg
	maxRounds = 4           // receive calls in one Recv while nothing is for us
	slotLen   = 65536 + 128 // virtio header, Ethernet and tag, IPv6 header, 65535 octets
)

// member is a joined multicast group.
type member struct {
	fd   int // of the UDP socket that is the host's membership
	link int // that receives for the group
}
