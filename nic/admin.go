package nic

import (
	"slices"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/verbs"
)

// QueryDevice returns the device's attributes.
func (n *NIC) QueryDevice() (verbs.DeviceAttr, error) {
	if err := n.Err(); err != nil {
		return verbs.DeviceAttr{}, err
	}
	info := n.shards[0].info
	return verbs.DeviceAttr{
		Name: n.cfg.Name, FWVer: "0.0.0", NodeGUID: n.nodeGUID(), VendorID: 0xffffff, MaxMRSize: 1<<64 - 1,
		MaxQP: min(MaxQP, len(n.shards)*maxShardQPs), MaxQPWR: verbs.MaxQPWR, MaxSGE: verbs.MaxSGE, MaxCQ: MaxCQ, MaxCQE: verbs.MaxCQE, MaxMR: MaxMR, MaxMW: MaxMW, MaxPD: MaxPD,
		MaxQPRdAtom: verbs.MaxRdAtomic, MaxInitRdAtom: verbs.MaxRdAtomic, LocalAckDelay: verbs.LocalAckDelay,
		MaxSRQ: MaxSRQ, MaxSRQWR: verbs.MaxSRQWR, MaxAH: MaxAH, MaxMcastGrp: MaxGroups, MaxMcastQP: maxGroupQPs,
		PhysPorts: 1, Shards: len(n.shards), AtomicHCA: true,
		Link: info.Name, ICRC: strength(info), Missing: slices.Concat(n.cfg.Missing, n.port.Load().Missing, info.Missing),
	}, nil
}

// nodeGUID is the interface identifier of the first GID that the device was
// opened with, which is an EUI-64 where the interface has a MAC.
func (n *NIC) nodeGUID() (v uint64) {
	for _, b := range n.cfg.GIDs[0].GID[8:] {
		v = v<<8 | uint64(b)
	}
	return v
}

// strength says in words how good the check of received ICRCs is.
func strength(i link.Info) string {
	const bounded = "bounded (the identification is hidden and solved for)"
	switch {
	case i.Exact4 && i.Exact6:
		return "exact"
	case i.Exact6:
		return "IPv6 exact, IPv4 " + bounded
	case i.Exact4:
		return "IPv4 exact, IPv6 " + bounded
	}
	return bounded
}

// QueryPort returns the attributes of port 1.
func (n *NIC) QueryPort() (verbs.PortAttr, error) {
	if err := n.Err(); err != nil {
		return verbs.PortAttr{}, err
	}
	p := n.port.Load()
	state := "PORT_DOWN (1)"
	if p.Active {
		state = "PORT_ACTIVE (4)"
	}
	return verbs.PortAttr{
		State: state, Active: p.Active, MaxMTU: 4096, ActiveMTU: p.ActiveMTU,
		GIDTblLen: len(p.GIDs), PKeyTblLen: 1, LinkLayer: "Ethernet",
		NetDev: n.cfg.NetDev, NetMTU: p.MTU, SpeedMbit: p.SpeedMbit,
	}, nil
}

// GIDs returns the GID table. An entry whose address has gone is all zero.
func (n *NIC) GIDs() ([]verbs.GIDEntry, error) {
	if err := n.Err(); err != nil {
		return nil, err
	}
	return slices.Clone(n.port.Load().GIDs), nil
}

// Events returns the channel of asynchronous events, closed by Close.
func (n *NIC) Events() <-chan verbs.AsyncEvent { return n.events }
