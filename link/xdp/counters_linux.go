package xdp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/link"
)

// finalCounts are the kernel's counters as they were when a link was closed.
type finalCounts struct{ v atomic.Pointer[kernelCounts] }

// kernelCounts are the sums over a link's sockets, and what its program missed.
type kernelCounts struct {
	unix.XDPStatistics
	missed uint64
}

func (f *finalCounts) store(l *Link) {
	c := l.ask()
	f.v.Store(&c)
}

// ask reads the kernel's counters. Call it only inside the gate.
func (l *Link) ask() (c kernelCounts) {
	for _, x := range l.socks {
		s, err := x.Statistics()
		if err != nil {
			continue // not on an open socket
		}
		c.Rx_dropped += s.Rx_dropped
		c.Rx_invalid_descs += s.Rx_invalid_descs
		c.Tx_invalid_descs += s.Tx_invalid_descs
		c.Rx_ring_full += s.Rx_ring_full
		c.Rx_fill_ring_empty_descs += s.Rx_fill_ring_empty_descs
		c.Tx_ring_empty_descs += s.Tx_ring_empty_descs
	}
	if l.first {
		c.missed = l.dev.prog.misses()
	}
	return c
}

// kernel returns the counters of an open or closed link.
func (l *Link) kernel() kernelCounts {
	if !l.gate.Enter() {
		if c := l.final.v.Load(); c != nil {
			return *c
		}
		return kernelCounts{}
	}
	defer l.leave()
	return l.ask()
}

// Stats returns what the link has done. A packet that the kernel had no chunk
// or no room in the receive ring for, or whose queue had no socket, is dropped.
func (l *Link) Stats() (s link.Stats) {
	k := l.kernel()
	l.tx.stats(&s)
	s.RxPackets, s.RxBytes = l.rx.packets.Load(), l.rx.bytes.Load()
	s.RxDropped = k.Rx_dropped + k.Rx_ring_full + k.missed
	s.RxInvalid = l.rx.invalid()
	return s
}

// NamedCounters returns the kernel's counters of the link's sockets
// (XDP_STATISTICS) by its names, and the link's own.
func (l *Link) NamedCounters() map[string]uint64 {
	k := l.kernel()
	m := map[string]uint64{
		"xdp_rx_dropped":               k.Rx_dropped,
		"xdp_rx_ring_full":             k.Rx_ring_full,
		"xdp_rx_fill_ring_empty_descs": k.Rx_fill_ring_empty_descs,
		"xdp_rx_invalid_descs":         k.Rx_invalid_descs,
		"xdp_tx_invalid_descs":         k.Tx_invalid_descs,
		"xdp_tx_ring_empty_descs":      k.Tx_ring_empty_descs,
		"xdp_rx_no_socket":             k.missed,
		"xdp_rx_joined":                l.rx.joined.Load(),
		"xdp_tx_frames":                l.tx.packets.Load(),
		"xdp_tx_kicks":                 l.tx.kicks.Load(),
	}
	if r := l.rx.runs; r != nil {
		m["xdp_rx_runs"] = r.found.Load()
	}
	if l.first {
		m["xdp_neighbor_errors"] = l.dev.hops.failed.Load()
	}
	return m
}
