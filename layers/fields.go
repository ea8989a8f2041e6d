package layers

import (
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// fields is a cursor over a header of fixed length. A layer has one method,
// walk, that names its fields in wire order and their widths in bits; the
// cursor reads or writes them. So what is decoded is what is serialised, and a
// layer's layout is written down once.
type fields struct {
	b     []byte
	off   int // bits
	write bool
	err   error
}

// walker is a header that is made of fields.
type walker interface {
	LayerType() gopacket.LayerType
	walk(fields) fields
}

// decode reads the first n octets of data into h, and divides data between
// them and what follows.
func decode(h walker, base *inet.BaseLayer, n int, data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < n {
		return tooShort(h.LayerType(), len(data), n, df)
	}
	h.walk(fields{b: data[:n]})
	*base = inet.BaseLayer{Contents: data[:n:n], Payload: data[n:]}
	return nil
}

func tooShort(t gopacket.LayerType, have, need int, df gopacket.DecodeFeedback) error {
	df.SetTruncated()
	return fmt.Errorf("layers: %v cut short: %d octets where it takes %d", t, have, need)
}

// encode puts the n octets of h in front of b. It is an error for a field to
// hold more than its bits.
func encode(h walker, n int, b gopacket.SerializeBuffer) error {
	out, err := b.PrependBytes(n)
	if err != nil {
		return err
	}
	if err := h.walk(fields{b: out, write: true}).err; err != nil {
		return fmt.Errorf("layers: %v: %w", h.LayerType(), err)
	}
	return nil
}

// number is the next n bits, big-endian.
func number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f *fields, v *T, n int) {
	if f.write {
		f.put(uint64(*v), n)
		return
	}
	*v = T(f.get(n))
}

// reserved bits have no name; a writer may have set them.
func reserved[T ~uint8 | ~uint16 | ~uint32](f *fields, v *T, n int) { number(f, v, n) }

func (f *fields) flag(v *bool) {
	switch {
	case !f.write:
		*v = f.get(1) != 0
	case *v:
		f.put(1, 1)
	default:
		f.put(0, 1)
	}
}

func (f *fields) psn(v *bth.PSN) {
	if f.write {
		f.put(uint64(v.Uint32()), 24)
		return
	}
	*v = bth.MakePSN(uint32(f.get(24)))
}

// gid is 16 octets; an IPv4 address is written as the mapped IPv6 address, and
// no address as zeros.
func (f *fields) gid(v *netip.Addr) {
	b := f.next(16)
	if f.write {
		a := v.As16()
		copy(b, a[:])
		return
	}
	*v = netip.AddrFrom16([16]byte(b))
}

// octets are the next n octets. A reader aliases the packet; a writer fills up
// with zeros.
func (f *fields) octets(v *[]byte, n int) {
	b := f.next(n)
	switch {
	case !f.write:
		*v = b
	case len(*v) > n:
		f.fail(fmt.Errorf("%d octets at offset %d, where there is room for %d", len(*v), f.off/8-n, n))
	default:
		clear(b[copy(b, *v):])
	}
}

// next returns the next n octets and goes past them; the cursor stands at an
// octet.
func (f *fields) next(n int) []byte {
	at := f.off / 8
	f.off += 8 * n
	return f.b[at : at+n : at+n]
}

func (f *fields) get(n int) (v uint64) {
	for n > 0 {
		free := 8 - f.off&7 // bits of the octet not yet read
		k := min(n, free)
		v = v<<k | uint64(f.b[f.off>>3])>>(free-k)&(1<<k-1)
		f.off, n = f.off+k, n-k
	}
	return v
}

func (f *fields) put(v uint64, n int) {
	if n < 64 && v>>n != 0 {
		f.fail(fmt.Errorf("%#x at bit %d takes more than the %d bits of its field", v, f.off, n))
	}
	for n > 0 {
		free := 8 - f.off&7
		k := min(n, free)
		mask := byte(1<<k-1) << (free - k)
		o := &f.b[f.off>>3]
		*o = *o&^mask | byte(v>>(n-k))<<(free-k)&mask
		f.off, n = f.off+k, n-k
	}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// GUID is an EUI-64.
type GUID uint64

// String writes it as the tools of rdma-core do: 0250:56ff:fea7:7d03.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}
