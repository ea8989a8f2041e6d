package gorxe

import (
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// PairConfig describes two NICs on a network in memory. Its zero value is a
// good one.
type PairConfig struct {
	// Faults are rules that both ends break their traffic by.
	Faults string
	// Seed makes faults, queue pair numbers, keys and first PSNs repeatable;
	// 0 draws those that nobody should guess from the system.
	Seed   uint64
	Shards int // of each NIC (1)
	MTU    int // of the network (4200, which bears a path MTU of 4096)
}

// NewPair returns two NICs, rxe0 and rxe1, that are connected in memory: no
// socket, no privilege, no kernel, and inside a testing/synctest bubble on its
// clock. Each has a GID for IPv4 (index 0, 192.0.2.1 and 192.0.2.2) and one
// for IPv6 (index 1, 2001:db8::1 and 2001:db8::2). It panics when the
// configuration is wrong, since only a test writes one.
func NewPair(cfg PairConfig) (a, b *verbs.Context) {
	a, b, err := newPair(&cfg)
	if err != nil {
		panic("gorxe: NewPair: " + err.Error())
	}
	return a, b
}

func newPair(cfg *PairConfig) (a, b *verbs.Context, err error) {
	rules, err := fault.Parse(cfg.Faults)
	if err != nil {
		return nil, nil, fmt.Errorf("faults: %w", err)
	}
	c := mem.Config{Shards: cfg.Shards, MTU: cfg.MTU}
	la, lb, err := mem.Pair(c, c)
	if err != nil {
		return nil, nil, err
	}
	open := func(i int, links []link.Link, v4, v6 string) (*verbs.Context, error) {
		if len(rules) > 0 {
			links = fault.WrapAll(links, fault.Config{Rules: rules, Seed: cfg.Seed + uint64(i)<<32})
		}
		seed := cfg.Seed
		if seed != 0 {
			seed += uint64(i) << 32
		}
		d, err := nic.Open(nic.Config{
			Name: fmt.Sprintf("rxe%d", i), Links: links, NetDev: "mem", Seed: seed,
			GIDs: []verbs.GIDEntry{gidEntry(0, v4), gidEntry(1, v6)},
		})
		if err != nil {
			return nil, err
		}
		return verbs.NewContext(d), nil
	}
	if a, err = open(0, la, "192.0.2.1", "2001:db8::1"); err != nil {
		return nil, nil, err
	}
	if b, err = open(1, lb, "192.0.2.2", "2001:db8::2"); err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

func gidEntry(i int, addr string) verbs.GIDEntry {
	return verbs.GIDEntry{Index: i, GID: verbs.GIDOf(netip.MustParseAddr(addr)), Type: "RoCE v2", Interface: "mem"}
}
