package udp

import (
	"errors"
	"fmt"
	"net/netip"
)

// Config says what to open. Zero values are the defaults.
type Config struct {
	// Addrs are local addresses, at least one. A link-local IPv6 address
	// carries its zone: fe80::1%eth0.
	Addrs []netip.Addr

	// Shards is the number of links, 1 to MaxShards; 0 means 1.
	Shards int

	// RcvBuf and SndBuf are the buffers asked for, in octets per socket; 0
	// means DefaultRcvBuf and 2 MiB. Without CAP_NET_ADMIN the kernel gives
	// no more than net.core.rmem_max and wmem_max.
	RcvBuf, SndBuf int

	Options Options

	// In runs a function in the network namespace of the links, where another
	// thread needs a socket there after Open, which is called in it. (In the
	// thread itself.)
	In func(func() error) error
}

// Options switch offloads off, for a device that gets them wrong or a test.
type Options struct {
	NoGSO bool // send single datagrams
	NoGRO bool // receive single datagrams
}

const (
	// MaxShards is bounded by the shard bits of a queue pair number.
	MaxShards = 16

	// DefaultRcvBuf is the receive buffer asked for, in octets. The kernel
	// counts twice that, enough for the largest window.
	DefaultRcvBuf = 4 << 20

	// Receive buffers: more than 4 at once gain nothing; each takes the
	// largest datagram or merged run there is.
	rxBuffers = 4
	rxSize    = 1 << 16

	// maxHot is how many Recv calls in a row one socket may serve.
	maxHot = 8

	// othersEvery is how many looks in a row that find nothing share one at
	// another socket.
	othersEvery = 4

	// A default receive buffer of Linux bears 64 packets of 4096 octets in
	// flight without loss (90 measured); the window grows with the buffer, up
	// to where more packets do not fit the L2 cache.
	windowBase   = 64
	windowBuffer = 212992
	windowMin    = 16
	windowMax    = 512
)

// window returns how many packets a receive buffer bears, by the kernel's
// accounting of it in octets.
func window(rcvbuf int) int {
	return max(windowMin, min(windowMax, windowBase*rcvbuf/windowBuffer))
}

// check completes the configuration or says what is wrong with it.
func (c *Config) check() error {
	if len(c.Addrs) == 0 {
		return errors.New("udp: no local address given")
	}
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Shards < 0 || c.Shards > MaxShards {
		return fmt.Errorf("udp: %d shards; 1 to %d are possible", c.Shards, MaxShards)
	}
	if c.RcvBuf == 0 {
		c.RcvBuf = DefaultRcvBuf
	}
	if c.In == nil {
		c.In = func(f func() error) error { return f() }
	}
	addrs, err := checkAddrs(c.Addrs)
	c.Addrs = addrs
	return err
}

// checkAddrs brings addresses into the form that the links know them in.
func checkAddrs(in []netip.Addr) ([]netip.Addr, error) {
	seen := make(map[netip.Addr]bool)
	addrs := make([]netip.Addr, 0, len(in))
	for _, a := range in {
		a = a.Unmap()
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
			return nil, fmt.Errorf("udp: %v is not the address of an interface; a packet's ICRC covers its addresses, so they must be definite", a)
		case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "":
			return nil, fmt.Errorf("udp: %v needs the zone of its interface, such as %v%%eth0", a, a)
		case seen[a]:
			return nil, fmt.Errorf("udp: address %v given twice", a)
		}
		seen[a] = true
		addrs = append(addrs, a)
	}
	return addrs, nil
}
