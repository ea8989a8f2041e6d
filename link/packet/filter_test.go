package packet

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
)

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// eth is a frame up to its payload: addresses, tags, EtherType.
func eth(etherType uint16, tags ...uint16) []byte {
	b := make([]byte, 12)
	for _, t := range tags {
		b = slices.Concat(b, be16(0x8100), be16(t))
	}
	return append(b, be16(etherType)...)
}

// v4 is an IPv4 packet with the given first octet, protocol, flags and offset,
// and destination port.
func v4(first, proto byte, frag, port uint16) []byte {
	n := int(first&0xf) * 4
	b := make([]byte, n+8+28)
	b[0], b[9] = first, proto
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[6:], frag)
	binary.BigEndian.PutUint16(b[n:], 4791) // source port: must not matter
	binary.BigEndian.PutUint16(b[n+2:], port)
	return b
}

func v6(next byte, port uint16) []byte {
	b := make([]byte, 40+8+28)
	b[0], b[6] = 0x60, next
	binary.BigEndian.PutUint16(b[42:], port)
	return b
}

// v6frag is an IPv6 packet with a fragment header.
func v6frag(proto byte, offset, port uint16) []byte {
	b := make([]byte, 40+8+8+28)
	b[0], b[6], b[40] = 0x60, 44, proto
	binary.BigEndian.PutUint16(b[42:], offset|1)
	binary.BigEndian.PutUint16(b[50:], port)
	return b
}

func TestFrameFilter(t *testing.T) {
	vm, err := bpf.NewVM(frameFilter())
	if err != nil {
		t.Fatal(err)
	}
	const ip, ip6 = 0x0800, 0x86dd
	for _, c := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"IPv4", slices.Concat(eth(ip), v4(0x45, 17, 0x4000, 4791)), true},
		{"IPv4 without DF", slices.Concat(eth(ip), v4(0x45, 17, 0, 4791)), true},
		{"IPv4 with options", slices.Concat(eth(ip), v4(0x47, 17, 0x4000, 4791)), true},
		{"IPv4 first fragment", slices.Concat(eth(ip), v4(0x45, 17, 0x2000, 4791)), true},
		{"IPv4 later fragment", slices.Concat(eth(ip), v4(0x45, 17, 0x2001, 4791)), false},
		{"IPv4 another port", slices.Concat(eth(ip), v4(0x45, 17, 0x4000, 4790)), false},
		{"IPv4 TCP", slices.Concat(eth(ip), v4(0x45, 6, 0x4000, 4791)), false},
		{"IPv4 priority tag", slices.Concat(eth(ip, 0xa000), v4(0x45, 17, 0x4000, 4791)), true},
		{"IPv4 another VLAN", slices.Concat(eth(ip, 0x0005), v4(0x45, 17, 0x4000, 4791)), false},
		{"IPv4 two tags", slices.Concat(eth(ip, 0, 0), v4(0x45, 17, 0x4000, 4791)), false},
		{"IPv4 tagged, another port", slices.Concat(eth(ip, 0), v4(0x45, 17, 0x4000, 53)), false},
		{"IPv4 cut before the port", slices.Concat(eth(ip), v4(0x45, 17, 0x4000, 4791)[:22]), false},
		{"IPv6", slices.Concat(eth(ip6), v6(17, 4791)), true},
		{"IPv6 another port", slices.Concat(eth(ip6), v6(17, 4792)), false},
		{"IPv6 TCP", slices.Concat(eth(ip6), v6(6, 4791)), false},
		{"IPv6 priority tag", slices.Concat(eth(ip6, 0xe000), v6(17, 4791)), true},
		{"IPv6 another VLAN", slices.Concat(eth(ip6, 0x0fff), v6(17, 4791)), false},
		{"IPv6 first fragment", slices.Concat(eth(ip6), v6frag(17, 0, 4791)), true},
		{"IPv6 first fragment, another port", slices.Concat(eth(ip6), v6frag(17, 0, 53)), false},
		{"IPv6 first fragment of TCP", slices.Concat(eth(ip6), v6frag(6, 0, 4791)), false},
		{"IPv6 later fragment", slices.Concat(eth(ip6), v6frag(17, 8, 4791)), false},
		{"ARP", slices.Concat(eth(0x0806), v4(0x45, 17, 0x4000, 4791)), false},
		{"empty", nil, false},
	} {
		n, err := vm.Run(c.b)
		if err != nil || (n > 0) != c.want || c.want && n < len(c.b) {
			t.Errorf("%s: keeps %d of %d octets, %v", c.name, n, len(c.b), err)
		}
	}
}
