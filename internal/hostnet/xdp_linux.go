package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// XDPFeatures is what an interface's driver says that it can do for XDP.
type XDPFeatures struct {
	Known    bool // Linux 6.3 and later tell
	Native   bool // programs run in the driver, and may redirect to sockets
	Pieces   bool // it gives programs packets in several pieces
	ZeroCopy bool // it reads and writes the memory of AF_XDP sockets
	ZCPieces int  // of a packet, with zero copy; 0 is unknown (before Linux 6.6)
}

// XDP returns the features of the interface with the given index. A kernel that
// does not tell is no error.
func XDP(iface int) (f XDPFeatures, err error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("hostnet: look for the generic netlink family netdev: %w", err)
	}
	// Linux uapi/linux/netdev.h.
	const (
		getDevice                                      = 1
		attrIfindex, attrFeatures, attrZCPieces        = 1, 3, 4
		basic, redirect, zeroCopy, pieces       uint64 = 1, 2, 8, 32
	)
	r := nl.NewNetlinkRequest(int(family.ID), 0)
	r.AddData(genlHeader{getDevice, 1})
	r.AddData(nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(iface))))
	msgs, err := r.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return f, fmt.Errorf("hostnet: ask for the XDP features of interface %d: %w", iface, err)
	}
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return f, fmt.Errorf("hostnet: XDP features: %w", err)
		}
		for _, a := range attrs {
			switch {
			case a.Attr.Type == attrFeatures && len(a.Value) >= 8:
				v := binary.NativeEndian.Uint64(a.Value)
				f.Known = true
				f.Native = v&basic != 0 && v&redirect != 0
				f.Pieces, f.ZeroCopy = v&pieces != 0, v&zeroCopy != 0
			case a.Attr.Type == attrZCPieces && len(a.Value) >= 4:
				f.ZCPieces = int(binary.NativeEndian.Uint32(a.Value))
			}
		}
	}
	return f, nil
}

// genlHeader is command, version and two octets that must be 0 (nl.Genlmsg sends
// whatever is in memory there, which newer families refuse).
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }
