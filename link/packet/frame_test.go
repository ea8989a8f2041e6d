package packet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// message is what the packet socket gives for a valid frame with n octets of
// UDP payload.
func message(gsoType byte, gsoSize uint16, n int) []byte {
	p := v4(0x45, 17, 0x4000, wire.Port)[:28]
	ip := wire.IPv4(p)
	ip.SetTotalLen(28 + n)
	ip.SetID(0x1234)
	ip.SetSrc([4]byte{192, 0, 2, 1})
	ip.SetDst([4]byte{192, 0, 2, 2})
	ip.SetChecksum()
	wire.UDP(p[20:]).SetLength(8 + n)
	vnet := make([]byte, vnetLen)
	vnet[vnetGSOType] = gsoType
	binary.NativeEndian.PutUint16(vnet[vnetGSOSize:], gsoSize)
	return slices.Concat(vnet, eth(wire.EtherTypeIPv4), p, make([]byte, n))
}

func TestParseMessage(t *testing.T) {
	for _, c := range []struct {
		name   string
		msg    []byte
		want   trace.Reason
		segLen int
	}{
		{"single", message(0, 0, 100), trace.None, 0},
		{"run", message(5, 40, 100), trace.None, 40},
		{"run with ECN flag", message(0x85, 40, 100), trace.None, 40},
		{"run of one", message(5, 100, 100), trace.None, 0},
		{"run without a size", message(5, 0, 100), trace.DropUDPLen, 0},
		{"datagram in fragments", message(3, 40, 100), trace.DropFragment, 0},
		{"padded by Ethernet", append(message(0, 0, 100), 0, 0, 0), trace.None, 0},
		{"cut", message(0, 0, 100)[:140], trace.DropShort, 0},
		{"no header", make([]byte, vnetLen-1), trace.DropShort, 0},
		{"no frame", make([]byte, vnetLen), trace.DropShort, 0},
	} {
		var d wire.Datagram
		if r := parseMessage(c.msg, &d); r != c.want {
			t.Errorf("%s: %v, want %v", c.name, r, c.want)
			continue
		}
		if c.want != trace.None {
			continue
		}
		if d.SegLen != c.segLen || len(d.Payload) != 100 || d.ID != 0x1234 || !d.IDKnown || d.Flags != wire.FlagDF ||
			d.Src != netip.MustParseAddr("192.0.2.1") || d.Dst != netip.MustParseAddr("192.0.2.2") || len(d.L2) != 14 {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// inSlot puts a message into a slot of the ring as the kernel does.
func inSlot(msg []byte, mac, snapLen int) []byte {
	s := make([]byte, mac-vnetLen, longSlot)
	binary.NativeEndian.PutUint32(s[slotSnapLen:], uint32(snapLen))
	binary.NativeEndian.PutUint16(s[slotMAC:], uint16(mac))
	return append(s, msg...)
}

func TestParseSlot(t *testing.T) {
	msg := message(5, 40, 100)
	n := len(msg) - vnetLen
	for _, c := range []struct {
		name string
		slot []byte
		want trace.Reason
	}{
		{"run", inSlot(msg, 82, n), trace.None},
		{"no room between", inSlot(msg, slotHeader+vnetLen, n), trace.None},
		{"cut by the slot", inSlot(msg, 82, n-1), trace.DropShort},
		{"longer than the slot", inSlot(msg, 82, n+1), trace.DropShort},
		{"much longer", inSlot(msg, 82, 1<<32-1), trace.DropShort},
		{"no room for the virtio header", inSlot(msg, slotHeader+vnetLen, n)[1:], trace.DropShort},
		{"begins beyond the slot", inSlot(msg, 82, 0)[:60], trace.DropShort},
		{"no header", make([]byte, slotHeader-1), trace.DropShort},
		{"empty", make([]byte, longSlot), trace.DropShort},
	} {
		var d wire.Datagram
		if r := parseSlot(c.slot, &d); r != c.want {
			t.Errorf("%s: %v, want %v", c.name, r, c.want)
		} else if r == trace.None && (d.SegLen != 40 || len(d.Payload) != 100 || len(d.L2) != 14) {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// FuzzParseSlot: whatever a slot holds, the datagram lies in it, in segments
// that are not empty.
func FuzzParseSlot(f *testing.F) {
	for _, m := range [][]byte{message(0, 0, 100), message(5, 40, 100), message(0x85, 99, 100), message(3, 40, 100), message(5, 0, 1)} {
		f.Add(inSlot(m, 82, len(m)-vnetLen))
		f.Add(inSlot(m, slotHeader+vnetLen, len(m)-vnetLen))
		f.Add(inSlot(m, 90, len(m)))
	}
	f.Add(inSlot(slices.Concat(make([]byte, vnetLen), eth(wire.EtherTypeIPv6, 5, 0), v6(17, wire.Port)), 82, 94))
	f.Fuzz(func(t *testing.T, slot []byte) {
		slot = slot[:len(slot):len(slot)]
		var d wire.Datagram
		if parseSlot(slot, &d) != trace.None {
			return
		}
		within := func(b []byte) bool {
			at := cap(slot) - cap(b) // of slot's array, unless b was cut off at its end
			return len(b) == 0 || at >= 0 && at+len(b) <= len(slot)
		}
		sum := 0
		for i := range d.Segments() {
			s := d.Segment(i)
			if len(s) == 0 && len(d.Payload) > 0 {
				t.Fatalf("segment %d of %d is empty", i, d.Segments())
			}
			sum += len(s)
		}
		if !within(d.Payload) || sum != len(d.Payload) || len(d.L2) < wire.EthernetLen || len(d.L2)+len(d.Payload) > len(slot)-slotHeader-vnetLen {
			t.Fatalf("%+v", d)
		}
	})
}

func TestEarlier(t *testing.T) {
	at := func(sec, nsec uint32) []byte {
		s := make([]byte, slotHeader)
		binary.NativeEndian.PutUint32(s[slotSec:], sec)
		binary.NativeEndian.PutUint32(s[slotNsec:], nsec)
		return s
	}
	in := [][]byte{at(1<<32-1, 5), at(0, 0), at(0, 1), at(0, 999999999), at(1, 0), at(1, 7)} // the seconds wrap in 2106
	for i, a := range in {
		for j, b := range in {
			if got := earlier(a, b); got != (i < j) {
				t.Errorf("%d before %d: %v", i, j, got)
			}
		}
	}
}
