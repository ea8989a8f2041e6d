package wire

import (
	"net/netip"
)

// IDPolicy says which IPv4 identification a link gives the segments of a
// burst, and so what they are sealed for.
type IDPolicy uint8

const (
	// IDCount numbers the segments of a burst 0, 1, 2...: what UDP
	// segmentation offload does on an unconnected socket with DF set.
	IDCount IDPolicy = iota
	// IDZero gives every segment identification 0: single datagrams from
	// such a socket.
	IDZero
)

// Flow is the address vector of a connection as it appears on the wire, and
// the CRC states of its pseudo headers. One goroutine at a time may use it.
type Flow struct {
	Src, Dst netip.Addr // of one family; IPv4 as 4 octets
	SrcPort  uint16
	TOS      uint8 // traffic class, DSCP and ECN
	TTL      uint8 // hop limit
	// Scope is the interface index that a link-local or multicast destination
	// needs; 0 otherwise.
	Scope uint32
	// Priority is the service level, 0 to 7: what the sending socket's
	// SO_PRIORITY is to be, and so, by a VLAN interface's egress-qos-map, the
	// PCP. 0 leaves it to the system, which derives it from TOS.
	Priority uint8
	// Rate is the static rate, in bits a second of IP packets; 0 is no limit.
	// Links do not look at it.
	Rate int64

	// cache of prefix states by UDP payload length: a transfer uses two or
	// three lengths.
	cache [4]struct {
		n     int
		state uint32
	}
	port uint16 // SrcPort the cache was made for
	next uint8
}

// HeaderLen returns the octets of IP and UDP header that a packet has.
func (f *Flow) HeaderLen() int {
	if f.Dst.Is4() {
		return IPv4Len + UDPLen
	}
	return IPv6Len + UDPLen
}

func (f *Flow) prefix(n int) uint32 {
	if f.port != f.SrcPort {
		clear(f.cache[:])
		f.port = f.SrcPort
	}
	for i := range f.cache {
		if f.cache[i].n == n {
			return f.cache[i].state
		}
	}
	c := &f.cache[f.next%4]
	f.next++
	c.n, c.state = n, prefixState(f.Src, f.Dst, f.SrcPort, n, FlagDF)
	return c.state
}

// SourcePort derives a UDP source port from a pair of queue pair numbers as
// mlx5, hns and irdma do (rdma-core ibv_flow_label_to_udp_sport; Linux
// d5665a21250e): a flow label from the numbers, folded to 14 bits over 0xc000.
func SourcePort(local, remote uint32) uint16 {
	v := uint64(local) * uint64(remote)
	v ^= v >> 20
	v ^= v >> 40
	fl := uint32(v & 0xfffff)
	return uint16(fl&0x3fff^fl&0xfc000>>14) | 0xc000
}
