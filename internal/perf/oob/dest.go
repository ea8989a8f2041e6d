package oob

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/verbs"
)

// Dest is the address of a queue pair as perftest tells it. OutReads is how
// many READs and atomics that end uses and takes at once (max_dest_rd_atomic);
// whoever connects to it clamps that to what its own device can, since a
// perftest that does not fails to reach RTS (linux-rdma/perftest#114). RKey and
// VAddr are of the memory that the peer may write, read, or do atomics on.
type Dest struct {
	LID      uint16
	OutReads int
	QPN, PSN uint32
	RKey     uint32
	VAddr    uint64
	// ReadVAddr is the second address, of --data_validation.
	ReadVAddr uint64
	GID       verbs.GID
	SRQN      uint32
}

// Lengths on the wire: columns of hexadecimal digits, each with ':' behind it,
// and NUL. A peer without GID, which InfiniBand alone can do, sends the short
// one.
const (
	destLen      = 108 // of form "%04x:%04x:%06x:%06x:%08x:%016x:" 16 x "%02x:" "%08x:"
	destLenDV    = 125 // with a second "%016x:" before the GID
	destLenShort = 59  // without GID and the last ':'
	destLenMax   = destLenDV
)

// appendDest appends the address in the form on the wire.
func appendDest(b []byte, d *Dest, dv bool) []byte {
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", d.LID, uint16(d.OutReads), d.QPN&0xffffff, d.PSN&0xffffff, d.RKey, d.VAddr)
	if dv {
		b = fmt.Appendf(b, "%016x:", d.ReadVAddr)
	}
	for _, x := range d.GID {
		b = fmt.Appendf(b, "%02x:", x)
	}
	return append(fmt.Appendf(b, "%08x:", d.SRQN), 0)
}

// parseDest reads an address in the one form that printf gives it.
func parseDest(b []byte, dv bool) (d Dest, ok bool) {
	f := fields{b: b, ok: true}
	d.LID = uint16(f.hex(4))
	d.OutReads = int(f.hex(4))
	d.QPN = uint32(f.hex(6))
	d.PSN = uint32(f.hex(6))
	d.RKey = uint32(f.hex(8))
	d.VAddr = f.hex(16)
	if dv {
		d.ReadVAddr = f.hex(16)
	}
	for i := range d.GID {
		d.GID[i] = byte(f.hex(2))
	}
	d.SRQN = uint32(f.hex(8))
	return d, f.ok && len(f.b) == 1 && f.b[0] == 0
}

// fields reads columns of hexadecimal digits.
type fields struct {
	b  []byte
	ok bool
}

// hex reads n digits, an even number of at most 16, and the ':' behind.
func (f *fields) hex(n int) (v uint64) {
	var raw [8]byte
	if !f.ok || len(f.b) <= n || f.b[n] != ':' {
		f.ok = false
		return 0
	}
	if _, err := hex.Decode(raw[:n/2], f.b[:n]); err != nil {
		f.ok = false
		return 0
	}
	for _, x := range raw[:n/2] {
		v = v<<8 | uint64(x)
	}
	f.b = f.b[n+1:]
	return v
}

// checkDest says whether a queue pair can be connected to what the peer told.
func (c *Conn) checkDest(d, local *Dest) error {
	a := d.GID.Addr()
	group := c.cfg.Datagram && a.IsMulticast()
	switch {
	case d.GID == (verbs.GID{}):
		return fmt.Errorf("%w: the peer sent an empty GID: start it with the index of a RoCE v2 GID (-x; show_gids lists them)", ErrMismatch)
	case group && d.QPN == 0xffffff:
	case d.QPN < 2 || d.QPN == 0xffffff:
		return fmt.Errorf("%w: the peer sent QPN %#06x, which cannot be a program's; is its device in order?", ErrProtocol, d.QPN)
	case a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%w: the peer sent the GID %v, which is no host's address; choose another index there (-x)", ErrMismatch, a)
	}
	if c.cfg.Kind.reads() && (d.OutReads < 1 || d.OutReads > maxOutReads) {
		return fmt.Errorf("%w: the peer takes %d READs or atomics at once, which is not between 1 and %d; give it -o 1", ErrProtocol, d.OutReads, maxOutReads)
	}
	if l := local.GID.Addr(); l.Is4() != a.Is4() && !group {
		return fmt.Errorf("%w: the peer's GID is %s %v, this side's %s %v: choose one of the same family on one side (-x; show_gids, or rxe gids, lists them)",
			ErrMismatch, family(a), a, family(l), l)
	}
	return nil
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
