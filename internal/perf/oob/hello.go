package oob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Peer is what Hello learns. MTU, CycleBuffer and CacheLine are in octets, and
// the values that hold for both ends: the smaller MTU, the larger others.
type Peer struct {
	Version                string
	MTU                    int
	CycleBuffer, CacheLine int
}

// Hello exchanges versions, sizes of buffers, and path MTUs.
func (c *Conn) Hello() (Peer, error) {
	if err := c.enter("Hello", opened); err != nil {
		return Peer{}, err
	}
	var out [versionLen]byte
	copy(out[:], c.cfg.Version)
	in, err := c.step("exchanging versions", out[:], nil)
	if err != nil {
		return Peer{}, err
	}
	if c.peer.Version, err = checkVersion(in); err != nil {
		return Peer{}, err
	}
	if c.peer.CycleBuffer, err = c.larger("cycle buffer", c.cfg.CycleBuffer, maxCycleBuffer); err != nil {
		return Peer{}, err
	}
	if c.peer.CacheLine, err = c.larger("cache line", c.cfg.CacheLine, maxCacheLine); err != nil {
		return Peer{}, err
	}
	if in, err = c.step("exchanging path MTUs", []byte{'0' + mtuCode(c.cfg.MTU), 0}, nil); err != nil {
		return Peer{}, err
	}
	mtu := mtuOctets(in)
	if mtu == 0 {
		return Peer{}, fmt.Errorf("%w: the peer sent %q as its path MTU's code, which is 1 (256) to 5 (4096)", ErrProtocol, in)
	}
	c.peer.MTU = min(mtu, c.cfg.MTU)
	c.stage = greeted
	return c.peer, nil
}

// larger exchanges a size, of which the larger holds.
func (c *Conn) larger(what string, local, most int) (int, error) {
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], uint32(local))
	in, err := c.step("exchanging the size of the "+what, out[:], nil)
	if err != nil {
		return 0, err
	}
	n := int(int32(binary.BigEndian.Uint32(in)))
	if n < 1 || n > most {
		return 0, fmt.Errorf("%w: the peer's %s is %d octets, which is not between 1 and %d", ErrProtocol, what, n, most)
	}
	return max(n, local), nil
}

// checkVersion takes the version of a peer that can be talked to. Like
// perftest it reads a decimal number from the beginning; what follows the first
// NUL says nothing.
func checkVersion(b []byte) (string, error) {
	v, err := parseVersion(b)
	s, _, _ := bytes.Cut(b, []byte{0})
	switch {
	case bytes.HasPrefix(b, []byte("0000:")):
		return "", fmt.Errorf("%w: the peer began with %q, as the pingpong examples do, which use the same TCP port; start the same test on both ends", ErrVersion, b)
	case err != nil:
		return "", fmt.Errorf("%w: the peer began with %q; is another program at this port?", ErrVersion, b)
	case v < oldest:
		return "", fmt.Errorf("%w: the peer is perftest %s, and before %.2f perftest spoke otherwise; install a newer one there", ErrVersion, s, oldest)
	}
	return string(s), nil
}

// parseVersion reads the number that a version begins with: "6.06" and
// "6.24.0-1" are.
func parseVersion(b []byte) (float64, error) {
	n, dots := 0, 0
	for n < len(b) && n < versionLen-1 && (b[n] >= '0' && b[n] <= '9' || b[n] == '.' && dots == 0 && n > 0) {
		if b[n] == '.' {
			dots++
		}
		n++
	}
	for _, x := range b[n:] {
		if x == 0 {
			break
		}
		if x < ' ' || x > '~' {
			return 0, fmt.Errorf("%q is no version", b)
		}
	}
	return strconv.ParseFloat(string(b[:n]), 64)
}

// mtuCode returns the enumeration ibv_mtu's value for a path MTU in octets, 0
// if there is none.
func mtuCode(octets int) byte {
	for code := byte(1); code <= 5; code++ {
		if 128<<code == octets {
			return code
		}
	}
	return 0
}

// mtuOctets is the inverse for what is on the wire, a digit and NUL.
func mtuOctets(b []byte) int {
	if b[0] < '1' || b[0] > '5' || b[1] != 0 {
		return 0
	}
	return 128 << (b[0] - '0')
}
