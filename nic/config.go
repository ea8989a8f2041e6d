package nic

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/verbs"
)

// Limits of a device.
const (
	// MaxShards is how many shards the low four bits of a QPN tell apart.
	MaxShards = 16
	// MaxQP, MaxCQ, MaxMR, MaxMW and MaxPD are how many objects of a kind a device
	// holds; a shard holds MaxQP/4 queue pairs.
	MaxQP = 1<<20 - 1024
	MaxCQ = 1 << 16
	MaxMR = 1<<20 - 1024
	MaxMW = 1<<20 - 1024
	MaxPD = 1 << 16
	// MaxSRQ and MaxAH are the same for shared receive queues and address
	// handles, MaxGroups how many multicast groups a device is in.
	MaxSRQ    = 1 << 16
	MaxAH     = 1<<20 - 1024
	MaxGroups = 1 << 10
	// maxGroupQPs is how many queue pairs are attached to one group.
	maxGroupQPs = 1 << 10

	// eventDepth is how many asynchronous events wait for a reader.
	eventDepth = 256
	// recorderSize is how many trace events a shard keeps.
	recorderSize = 4096
	// headroom is what the headers of a packet take at most, by the reckoning
	// of Linux (RXE_MAX_HDR_LENGTH), for the path MTU an interface bears.
	headroom = 80

	// DefaultSpin suits links that ask the kernel: waking a halted core takes
	// about this long.
	DefaultSpin = 50 * time.Microsecond
)

// Config describes a NIC. Links and GIDs are needed; the zero value of
// everything else is a default.
type Config struct {
	Name  string      // ("rxe0")
	Links []link.Link // one per shard, owned by the NIC from Open on

	GIDs []verbs.GIDEntry // the GID table, index by index
	// Addrs are the addresses that packets can really leave from; a GID with
	// another one, such as a link-local EUI-64 that is not configured, is in
	// the table but cannot be used. (Those of all GIDs.)
	Addrs []netip.Addr
	// Scope is the interface index that link-local addresses need.
	Scope uint32
	// ChooseGID returns the index of the GID to reach a peer from. (The first
	// of the peer's family and scope that can be used.)
	ChooseGID func(peer netip.Addr) (int, error)

	// MaxSL is the highest service level that the links may send with; 0 is 7,
	// all of them.
	MaxSL uint8

	NetDev    string
	MTU       int       // of the interface, in octets (the smallest of Links)
	ActiveMTU verbs.MTU // (the largest that MTU bears)
	SpeedMbit int       // 0 unknown

	// CC is the congestion control of the device's queue pairs; SetCC changes it.
	// (cc.Default: DCQCN.)
	CC *cc.Config

	// Spin is how long a wait polls before it blocks, and how long the
	// background polls after its last packet. Lease is how long after a
	// caller's last step the background leaves a shard to callers. 0 is not
	// at all, right for link/mem; links that ask the kernel want DefaultSpin
	// for both.
	Spin, Lease time.Duration

	// Manual makes a NIC without goroutines, which moves only by Step. Kick,
	// if set, is told when a shard has something to do; it is called with
	// locks held and must not call back.
	Manual bool
	Kick   func(shard int)

	// Clock returns nanoseconds that never go back, from any epoch. (Time
	// since Open.)
	Clock func() int64

	// Seed makes numbers, keys and first PSNs repeatable. 0 draws it from the
	// system, as anything but a test wants.
	Seed uint64

	// Missing says what the device does without beside what its link says;
	// one sentence each.
	Missing []string

	// AtClose is called once, when Close begins, by its caller: for what looks
	// after the device from outside.
	AtClose func()

	Recorder int          // trace events kept per shard (4096)
	Logger   *slog.Logger // for errors that nobody else is told of, and the first wrong ICRC (none)
}

// complete checks the configuration and fills in defaults.
func (c *Config) complete() error {
	if n := len(c.Links); n < 1 || n > MaxShards {
		return fmt.Errorf("nic: %d links, one per shard, 1 to %d, are needed", n, MaxShards)
	}
	if len(c.GIDs) == 0 {
		return errors.New("nic: the GID table is empty: give the interface an address (ip addr add), or name one")
	}
	for i, g := range c.GIDs {
		if g.Index != i {
			return fmt.Errorf("nic: GID %v stands at %d and has index %d", g.GID.Addr(), i, g.Index)
		}
	}
	if c.Name == "" {
		c.Name = "rxe0"
	}
	if c.Addrs == nil {
		for _, g := range c.GIDs {
			c.Addrs = append(c.Addrs, g.GID.Addr())
		}
	}
	if c.MTU == 0 {
		c.MTU = c.Links[0].Info().MTU
		for _, l := range c.Links {
			c.MTU = min(c.MTU, l.Info().MTU)
		}
	}
	if c.ActiveMTU == 0 {
		c.ActiveMTU = pathMTU(c.MTU)
	}
	if !c.ActiveMTU.Valid() {
		return fmt.Errorf("nic: an interface MTU of %d is too small, RoCEv2 needs %d at least", c.MTU, 256+headroom)
	}
	control := cc.Default()
	if c.CC != nil {
		control = *c.CC // what the caller does with his is his business
	}
	if err := control.Check(); err != nil {
		return fmt.Errorf("nic: congestion control: %w", err)
	}
	c.CC = &control
	if c.Clock == nil {
		epoch := time.Now()
		c.Clock = func() int64 { return int64(time.Since(epoch)) }
	}
	if c.Recorder == 0 {
		c.Recorder = recorderSize
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxSL == 0 {
		c.MaxSL = 7
	}
	if c.Manual {
		c.Spin, c.Lease = 0, 0
	}
	return nil
}

// pathMTU returns the largest path MTU that an interface MTU bears, or 0.
func pathMTU(mtu int) verbs.MTU {
	for p := verbs.MTU(4096); p >= 256; p /= 2 {
		if int(p)+headroom <= mtu {
			return p
		}
	}
	return 0
}

// newRand returns the source of everything peers should not guess.
func newRand(seed uint64) *mrand.Rand {
	var key [32]byte
	if seed == 0 {
		_, _ = rand.Read(key[:]) // never fails
	} else {
		binary.LittleEndian.PutUint64(key[:], seed)
	}
	return mrand.New(mrand.NewChaCha8(key))
}
