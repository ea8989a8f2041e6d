package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// GIDType is the type of every GID here, spelled like the kernel's
// gid_attrs/types.
const GIDType = "RoCE v2"

// ErrNoGID is wrapped by the error for a peer that no GID can talk to.
var ErrNoGID = errors.New("no GID for this peer")

// GID is an entry of a GID table. An empty one has an Index and no IP.
type GID struct {
	Index int
	IP    netip.Addr // IPv4 as four octets
	Bits  int        // prefix length of the address
	Type  string     // GIDType
	Iface string

	// Default marks entry 0, the link-local address made from the MAC. The
	// interface may well not have it.
	Default bool
}

// Raw returns the 16 octets of the GID; IPv4 as ::ffff:a.b.c.d (Annex
// A17.4.5.1).
func (g GID) Raw() [16]byte { return g.IP.As16() }

// String returns the GID as eight groups of four digits, as sysfs and
// show_gids print it.
func (g GID) String() string {
	b := g.Raw()
	var s strings.Builder
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			s.WriteByte(':')
		}
		fmt.Fprintf(&s, "%02x%02x", b[i], b[i+1])
	}
	return s.String()
}

// GIDs returns the interface's GID table in the kernel's order
// (ib_cache_gid_set_default_gid, then the addresses as they stand on the
// interface): index 0 is the link-local EUI-64 of the MAC whether configured
// or not, then follows one per address.
func (i *Iface) GIDs() []GID {
	def := eui64(i.MAC)
	gids := []GID{{IP: def, Bits: 64, Type: GIDType, Iface: i.Name, Default: true}}
	for _, p := range i.Addrs {
		if p.Addr() != def {
			gids = append(gids, GID{Index: len(gids), IP: p.Addr(), Bits: p.Bits(), Type: GIDType, Iface: i.Name})
		}
	}
	return gids
}

// UpdateGIDs returns the GID table that follows table when the interface's own, as
// Iface.GIDs makes it anew, is now. It follows the kernel
// (ib_cache_gid_add, ib_cache_gid_del): an address keeps its index as long as the
// interface has it; one that goes leaves an empty entry, a GID without an IP; one
// that comes takes the first empty entry, or a new one at the end. Entry 0 is
// always the default one. The kernel also keeps an index from being used again
// while a queue pair or address handle was made with it; here, as those keep the
// address and not the index, it is free at once.
func UpdateGIDs(table, now []GID) []GID {
	out := slices.Clone(table[:1])
	if len(now) > 0 {
		out[0] = now[0]
	}
	has := func(gids []GID, ip netip.Addr) bool {
		return slices.ContainsFunc(gids, func(g GID) bool { return g.IP == ip })
	}
	for i, g := range table[1:] {
		e := GID{Index: i + 1}
		for _, n := range now {
			if n.IP == g.IP && !n.Default {
				e = n
				e.Index = i + 1
				break
			}
		}
		out = append(out, e)
	}
	for _, n := range now {
		if has(out, n.IP) {
			continue
		}
		if n.Index = slices.IndexFunc(out, func(g GID) bool { return !g.IP.IsValid() }); n.Index < 0 {
			n.Index = len(out)
			out = append(out, n)
		}
		out[n.Index] = n
	}
	return out
}

// eui64 makes the link-local address of a MAC. RFC 4291, appendix A.
func eui64(m [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

// ChooseGID picks the GID for talking to peer: of the peer's family and
// scope, with the longest prefix that holds the peer, else the one that the
// kernel's route to the peer prefers, else the first. A link-local GID is
// chosen only for a link-local peer: entry 0 is the classic wrong choice,
// since its address is often not even configured. The error wraps ErrNoGID
// and shows the table.
func ChooseGID(gids []GID, peer netip.Addr) (GID, error) {
	return chooseGID(gids, peer, func() netip.Addr {
		r, err := Route(peer, netip.Addr{}, 0)
		if err != nil {
			return netip.Addr{}
		}
		return r.Src
	})
}

func chooseGID(gids []GID, peer netip.Addr, routeSrc func() netip.Addr) (GID, error) {
	peer = peer.Unmap().WithZone("")
	var fit []GID
	for _, g := range gids {
		if g.IP.IsValid() && g.IP.Is4() == peer.Is4() && g.IP.IsLinkLocalUnicast() == peer.IsLinkLocalUnicast() &&
			g.IP.IsLoopback() == peer.IsLoopback() {
			fit = append(fit, g)
		}
	}
	switch len(fit) {
	case 0:
		return GID{}, noGID(gids, peer)
	case 1:
		return fit[0], nil
	}
	src := routeSrc()
	best, bestRank := fit[0], -1
	for _, g := range fit {
		rank := 0
		if netip.PrefixFrom(g.IP, g.Bits).Contains(peer) {
			rank = 4 * (1 + g.Bits)
		}
		if g.IP == src {
			rank += 2
		}
		if !g.Default {
			rank++
		}
		if rank > bestRank {
			best, bestRank = g, rank
		}
	}
	return best, nil
}

func noGID(gids []GID, peer netip.Addr) error {
	family := "IPv6"
	if peer.Is4() {
		family = "IPv4"
	}
	if peer.IsLinkLocalUnicast() {
		family += " link-local"
	}
	if len(gids) == 0 {
		return fmt.Errorf("hostnet: %w: %v; the GID table is empty", ErrNoGID, peer)
	}
	var have []string
	for _, g := range gids {
		if !g.IP.IsValid() {
			continue
		}
		have = append(have, fmt.Sprintf("%d %v", g.Index, g.IP))
	}
	return fmt.Errorf("hostnet: %w: %v needs an %s address on %s, which has GIDs %s; add one with 'ip addr add'",
		ErrNoGID, peer, family, gids[0].Iface, strings.Join(have, ", "))
}
