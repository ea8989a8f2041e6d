package gorxe

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/link/xdp"
)

// opener is how to open links: really, or for show (see Probe).
type opener struct {
	udp    func(udp.Config) ([]link.Link, error)
	packet func(packet.Config) ([]link.Link, error)
	xdp    func(xdp.Config) ([]link.Link, error)
	show   bool // nothing moves
}

// links opens the link that was asked for; auto is udp, which any user may have
// and which is the fastest, or packet where udp cannot be had. Missing says what
// led away from a first choice, and what the device does without for want of a
// privilege.
func (o opener) links(cfg *Config, p *place) (links []link.Link, missing []string, err error) {
	switch cfg.Link {
	case LinkUDP:
		return o.openUDP(cfg, p)
	case LinkPacket:
		return o.openPacket(cfg, p)
	case LinkXDP:
		return o.openXDP(cfg, p)
	case LinkAuto, "":
	default:
		return nil, nil, fmt.Errorf("link %q: there are auto, udp, packet and xdp", cfg.Link)
	}
	links, missing, err = o.openUDP(cfg, p)
	if err == nil || errors.Is(err, syscall.EADDRINUSE) { // packet would need the same port
		return links, missing, err
	}
	links, missing, perr := o.openPacket(cfg, p)
	if perr != nil {
		return nil, nil, err
	}
	return links, append(missing, fmt.Sprintf("link udp cannot be used, so packet is, which needs CAP_NET_RAW: %v", err)), nil
}

func (o opener) openUDP(cfg *Config, p *place) ([]link.Link, []string, error) {
	links, err := p.openReady(func() ([]link.Link, error) {
		return o.udp(udp.Config{Addrs: p.addrs, Shards: cfg.Shards, In: p.in()})
	})
	if err != nil {
		return nil, nil, err
	}
	return links, p.bounded(), nil
}

// bounded says that a device over udp cannot do better: one over packet, which
// sees the identification of IPv4 packets, may not be had. Where it may, nothing
// is missing; udp was chosen.
func (p *place) bounded() []string {
	if !slices.ContainsFunc(p.addrs, netip.Addr.Is4) {
		return nil
	}
	err := hostnet.PacketSockets()
	if err == nil {
		return nil
	}
	var why, remedy string
	switch c, _ := hostnet.Capabilities(); {
	case errors.Is(err, syscall.EAFNOSUPPORT):
		why = "the kernel has no packet sockets"
		remedy = "CONFIG_PACKET=y, or 'modprobe af_packet', gives it some"
	case c.NetRaw:
		why = fmt.Sprintf("packet sockets are refused (%v) in spite of CAP_NET_RAW", err)
		remedy = "run outside of what refuses them: a sandbox (seccomp), or a user namespace without a network namespace of its own"
	default:
		why = "CAP_NET_RAW is missing"
		remedy = fmt.Sprintf("run as root, or 'setcap cap_net_raw+ep %s'", self())
	}
	// One in 2^22 is what package wire's Verifier lets pass at most.
	return []string{why + ", so link packet cannot be used, and the ICRC check of IPv4 packets is bounded (one damaged packet in 2^22 passes, not one in 2^32); " + remedy}
}

func self() string {
	if s, err := os.Executable(); err == nil {
		return s
	}
	return "PROGRAM"
}

func (o opener) openPacket(cfg *Config, p *place) ([]link.Link, []string, error) {
	links, err := p.openReady(func() ([]link.Link, error) {
		return o.packet(packet.Config{Interface: p.ifc.Name, Addrs: p.bare(), Shards: cfg.Shards, In: p.in()})
	})
	return links, nil, err
}

func (o opener) openXDP(cfg *Config, p *place) ([]link.Link, []string, error) {
	links, err := p.openReady(func() ([]link.Link, error) {
		return o.xdp(xdp.Config{Interface: p.ifc.Name, Addrs: p.bare(), Shards: cfg.Shards, In: p.in()})
	})
	return links, nil, err
}
