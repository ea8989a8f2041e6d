package oob

import (
	"fmt"
	"net"
	"net/netip"
)

// Addrs returns the two ends' addresses of the TCP connection, which tell what
// device and GID suit the peer; invalid if it is no TCP connection.
func (c *Conn) Addrs() (local, remote netip.Addr) {
	return addrOf(c.nc.LocalAddr()), addrOf(c.nc.RemoteAddr())
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// OfferMTU replaces Config.MTU before Hello, for an end that knows its device
// only when it has the connection.
func (c *Conn) OfferMTU(octets int) error {
	if mtuCode(octets) == 0 {
		return fmt.Errorf("oob: no path MTU is %d octets: 256, 512, 1024, 2048 and 4096 are", octets)
	}
	c.cfg.MTU = octets
	return nil
}

// Ahead reports whether the peer has come to a step that this end has not,
// as far as Alive has seen: it is done with its run.
func (c *Conn) Ahead() bool { return c.r.Buffered() > 0 }
