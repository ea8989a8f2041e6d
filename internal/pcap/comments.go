package pcap

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// Of the pcapng format, draft-ietf-opsawg-pcapng: sections 3.5 (options), 4.1
// (section header) and 4.3 (enhanced packet block).
const (
	blockPacket   = 2 // obsolete, laid out as the enhanced one
	blockSimple   = 3
	blockEnhanced = 6
	blockSection  = 0x0a0d0d0a
	packetHead    = 28 // octets of an enhanced packet block before the packet
	optComment    = 1
	maxBlock      = 1 << 20 // octets; what claims to be longer is left to gopacket
)

// comments passes a pcapng file on and keeps the comments of its packets, which
// gopacket does not show: one entry for each packet, in the order of the file.
type comments struct {
	in    *bufio.Reader
	order binary.ByteOrder
	buf   []byte
	rest  []byte // of buf, to be passed on
	queue []string
	deaf  bool // the file is not understood; it is passed on as it is
}

func newComments(in *bufio.Reader) *comments {
	return &comments{in: in, order: binary.LittleEndian}
}

// Read passes the file on, block after block.
func (c *comments) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.deaf {
			return c.in.Read(p)
		}
		if err := c.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// block reads the next block, or as much as there is.
func (c *comments) block() error {
	head, _ := c.in.Peek(16)
	if len(head) == 16 && c.order.Uint32(head) == blockSection {
		if c.order = binary.LittleEndian; c.order.Uint32(head[8:]) != 0x1a2b3c4d {
			c.order = binary.BigEndian
		}
		c.deaf = c.order.Uint32(head[12:]) != 1 && c.order.Uint32(head[12:]) != 1<<16 // version 1.0: gopacket skips others
	}
	n := 16
	if len(head) >= 8 {
		n = int(c.order.Uint32(head[4:]))
	}
	if n < 12 || n > maxBlock {
		c.deaf, n = true, 16
	}
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	n, err := io.ReadFull(c.in, c.buf[:n])
	if n == 0 {
		return err
	}
	c.rest = c.buf[:n]
	if !c.deaf && err == nil {
		switch c.order.Uint32(c.rest) {
		case blockEnhanced, blockPacket:
			c.queue = append(c.queue, c.comment(c.rest[:n-4]))
		case blockSimple:
			c.queue = append(c.queue, "")
		}
	}
	return nil
}

// comment returns the comments of a packet block without its last length.
func (c *comments) comment(b []byte) string {
	var all []string
	if len(b) < packetHead {
		return ""
	}
	at := uint64(packetHead) + (uint64(c.order.Uint32(b[20:]))+3)&^3
	for at+4 <= uint64(len(b)) {
		code, size := c.order.Uint16(b[at:]), uint64(c.order.Uint16(b[at+2:]))
		at += 4
		if code == 0 || at+size > uint64(len(b)) {
			break
		}
		if code == optComment {
			all = append(all, strings.TrimRight(string(b[at:at+size]), "\x00"))
		}
		at += (size + 3) &^ 3
	}
	return strings.Join(all, "; ")
}

// next returns the comment of the next packet.
func (c *comments) next() (s string) {
	if len(c.queue) > 0 {
		s, c.queue = c.queue[0], c.queue[1:]
	}
	return s
}
