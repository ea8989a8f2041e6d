package pingpong

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/gorxe/gorxe/verbs"
)

// Config is a run of pingpong; zero values are not defaults: see Default.
type Config struct {
	Peer     string // host name or address of the server; empty to be the server
	Port     int    // TCP port of the exchange
	IBPort   int    // 1
	Size     int    // octets of a message
	MTU      int    // path MTU
	RxDepth  int
	Iters    int
	SL       int
	GIDIndex int // -1: the one that suits the peer
	Events   bool
	Check    bool
	Stamps   bool

	// Open opens the device once the peer's address (the address the TCP
	// connection comes from) and the local address it was reached at are
	// known.
	Open func(local, peer netip.Addr) (*verbs.Context, error)
	// Ready, if set, is called with the port when a server listens.
	Ready func(port int)
	Out   io.Writer
	// Verbose adds the device's counters at the end.
	Verbose bool
}

// Default returns ibv_rc_pingpong's defaults.
func Default() Config {
	return Config{Port: 18515, IBPort: 1, Size: 4096, MTU: 1024, RxDepth: 500, Iters: 1000, GIDIndex: -1}
}

func (c *Config) check() error {
	switch {
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("-p %d: a TCP port is 1 to 65535", c.Port)
	case c.IBPort != 1:
		return fmt.Errorf("-i %d: the device has one port, 1", c.IBPort)
	case c.Size < 1 || c.Size > verbs.MaxMessage:
		return fmt.Errorf("-s %d: a message has 1 to %d octets", c.Size, verbs.MaxMessage)
	case !verbs.MTU(c.MTU).Valid():
		return fmt.Errorf("-m %d: a path MTU is 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.RxDepth < 1 || c.RxDepth > verbs.MaxQPWR:
		return fmt.Errorf("-r %d: the receive depth is 1 to %d", c.RxDepth, verbs.MaxQPWR)
	case c.Iters < 1:
		return fmt.Errorf("-n %d: at least one iteration", c.Iters)
	case c.SL < 0 || c.SL > 15:
		return fmt.Errorf("-l %d: a service level is 0 to 15", c.SL)
	}
	return nil
}
