package pingpong

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// Config is a run of pingpong; zero values are not defaults: see Default.
type Config struct {
	Service  Service
	Peer     string // host name or address of the server; empty to be the server
	Port     int    // TCP port of the exchange
	IBPort   int    // 1
	Size     int    // octets of a message
	MTU      int    // path MTU; a datagram has none
	NumQP    int    // queue pairs, of SRQ
	RxDepth  int
	Iters    int // messages each way, of all queue pairs together
	SL       int
	GIDIndex int // -1: the one that suits the peer
	Events   bool
	Check    bool
	Stamps   bool
	Verbose  bool   // print at the end the device's counters that are not 0
	Faults   string // rules that break traffic on purpose, which errors then name

	// Timeout is how long the peer may be silent: in each step of the exchange,
	// and, when it owes a message, on the wire.
	Timeout time.Duration

	// linger is how long an end that has everything stays after the peer has
	// closed the connection.
	linger time.Duration

	// ackTimeout is the transport's timeout, 4.096 us * 2^ackTimeout.
	ackTimeout uint8

	// Device is the device to use, which stays the caller's. Without one, Open
	// opens it once the local address is known that the TCP connection has.
	Device *verbs.Context
	Open   func(local netip.Addr) (*verbs.Context, error)

	// Ready, if set, is called with the port when a server listens.
	Ready func(port int)
	Out   io.Writer
}

// Default returns the defaults of the original.
func Default(s Service) Config {
	return Config{
		Service: s, Port: 18515, IBPort: 1, Size: services[s].size, MTU: 1024, NumQP: 16, RxDepth: 500, Iters: 1000, GIDIndex: -1,
		Timeout: 30 * time.Second, linger: lingerTime, ackTimeout: 14,
	}
}

// lanes is how many queue pairs there are.
func (c *Config) lanes() int {
	if c.Service == SRQ {
		return c.NumQP
	}
	return 1
}

func (c *Config) check() error {
	lowest := 1
	if c.Peer == "" {
		lowest = 0 // any free port
	}
	_, known := services[c.Service]
	switch {
	case !known:
		return fmt.Errorf("pingpong: no service %q: there are rc, uc, ud and srq", c.Service)
	case c.Port < lowest || c.Port > 65535:
		return fmt.Errorf("-p %d: a TCP port is 1 to 65535", c.Port)
	case c.IBPort != 1:
		return fmt.Errorf("-i %d: the device has one port, 1", c.IBPort)
	case c.Size < 1 || c.Size > verbs.MaxMessage:
		return fmt.Errorf("-s %d: a message has 1 to %d octets", c.Size, verbs.MaxMessage)
	case c.Service != UD && !verbs.MTU(c.MTU).Valid():
		return fmt.Errorf("-m %d: a path MTU is 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.RxDepth < 1 || c.RxDepth > verbs.MaxQPWR:
		return fmt.Errorf("-r %d: the receive depth is 1 to %d", c.RxDepth, verbs.MaxQPWR)
	case c.lanes() < 1 || c.lanes() > maxLanes:
		return fmt.Errorf("-q %d: the number of queue pairs is 1 to %d", c.NumQP, maxLanes)
	case c.RxDepth < c.lanes():
		return fmt.Errorf("-r %d: it takes a receive for each of the %d queue pairs: -r %[2]d, or fewer of them (-q)", c.RxDepth, c.NumQP)
	case c.Check && c.memory() > maxMemory:
		return fmt.Errorf("-c: messages of %d octets (-s) for %d receives (-r) with a buffer each take %d octets, more than %d; choose less of either", c.Size, c.RxDepth, c.memory(), maxMemory)
	case c.Iters < 1:
		return fmt.Errorf("-n %d: at least one iteration", c.Iters)
	case c.SL < 0 || c.SL > 7:
		return fmt.Errorf("-l %d: a service level is 0 to 7 on Ethernet", c.SL)
	case c.GIDIndex < -1:
		return fmt.Errorf("-g %d: a GID index is 0 or more, or -1 for the one that suits the peer", c.GIDIndex)
	case c.Timeout <= 0:
		return fmt.Errorf("timeout %v: it must be above 0", c.Timeout)
	}
	return nil
}

// suits checks the configuration against a device, before any peer is told
// anything.
func (c *Config) suits(dev *verbs.Context) error {
	p, err := dev.Port()
	if err != nil {
		return err
	}
	if c.Service == UD {
		if c.Size > int(p.ActiveMTU) {
			return fmt.Errorf("-s %d: a datagram is one packet, and %s with an MTU of %d carries messages of up to %d octets; use -s %[4]d or less, the same on both sides", c.Size, p.NetDev, p.NetMTU, p.ActiveMTU)
		}
	} else if c.MTU > int(p.ActiveMTU) {
		return fmt.Errorf("-m %d: %s has an MTU of %d, which carries a path MTU of %d; use -m %[4]d on both sides, or raise it to %[5]d (ip link set %[2]s mtu %[5]d)",
			c.MTU, p.NetDev, p.NetMTU, p.ActiveMTU, c.MTU+headroom)
	}
	if c.GIDIndex < 0 {
		return nil
	}
	_, err = c.gid(dev)
	return err
}

// maxMemory bounds the buffers of a run, in octets.
const maxMemory = 4 << 30

// memory is how many octets the buffers take.
func (c *Config) memory() int {
	b := c.buffers()
	return b.octets(c.lanes())
}

func (c *Config) buffers() buffers {
	b := buffers{size: c.Size, grh: services[c.Service].grh, apart: c.Check, slots: 1}
	if c.Check && c.Service == SRQ {
		b.slots = c.RxDepth + c.NumQP // a queue pair holds one until it answers
	}
	return b
}

// headroom is what an interface's MTU must have above a path MTU for headers
// (RXE_MAX_HDR_LENGTH of Linux's rxe_param.h).
const headroom = 80

// gid returns the GID that -g names.
func (c *Config) gid(dev *verbs.Context) (verbs.GIDEntry, error) {
	gids, err := dev.GIDs()
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	for _, g := range gids {
		if g.Index == c.GIDIndex {
			return g, nil
		}
	}
	if len(gids) == 1 {
		return verbs.GIDEntry{}, fmt.Errorf("-g %d: the GID table has only index 0, %v", c.GIDIndex, gids[0].GID.Addr())
	}
	return verbs.GIDEntry{}, fmt.Errorf("-g %d: the GID table has indexes 0 to %d (rxe gids lists them)", c.GIDIndex, len(gids)-1)
}
