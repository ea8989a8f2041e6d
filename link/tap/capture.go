package tap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// ErrIncomplete is what Close says of a capture that could not be written to
// its end; the error that stopped it is wrapped beside it.
var ErrIncomplete = errors.New("the capture is incomplete")

// Capture is a pcapng file being written. It is safe for concurrent use, so
// that several links share one.
type Capture struct {
	mu     sync.Mutex
	w      *bufio.Writer
	closer io.Closer
	ng     *pcapgo.NgWriter // nil before the first interface
	buf    []byte           // the block at hand
	err    error            // the first
	lost   uint64           // packets that were not written
	links  int              // that write to it
	owned  bool             // by the links: the last one closes it
	closed bool
}

// Create makes a file for a capture, or empties it.
func Create(path string) (*Capture, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	c := New(f)
	c.closer = f
	return c, nil
}

// New returns a capture that writes to w, which stays the caller's.
func New(w io.Writer) *Capture { return &Capture{w: bufio.NewWriterSize(w, 64<<10)} }

// Close writes what is buffered and closes the file. Links that write to it
// go on without. Its error says what went wrong first since the beginning,
// and how many packets are missing. A second call does nothing.
func (c *Capture) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if c.ng == nil {
		c.describe("none") // a file without a section cannot be opened
	}
	c.fail(c.w.Flush())
	if c.closer != nil {
		c.fail(c.closer.Close())
	}
	c.closed = true
	return c.report()
}

// CloseWithLinks leaves the capture to the links that write to it: the last of
// them to be closed closes it.
func (c *Capture) CloseWithLinks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = true
}

// leave is the end of a link: it writes what is buffered, and returns what
// Close would. Of the links that own the capture only the last one tells.
func (c *Capture) leave() error {
	c.mu.Lock()
	c.links--
	owned, last := c.owned, c.links == 0
	c.mu.Unlock()
	switch {
	case owned && last:
		return c.Close()
	case owned:
		_ = c.flush()
		return nil
	}
	return c.flush()
}

// Lost returns how many packets could not be written.
func (c *Capture) Lost() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// flush writes what is buffered, and returns what Close would.
func (c *Capture) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.fail(c.w.Flush())
	}
	return c.report()
}

func (c *Capture) report() error {
	if c.err == nil {
		return nil
	}
	if c.lost == 0 { // those that were buffered
		return fmt.Errorf("tap: %w: %w", ErrIncomplete, c.err)
	}
	return fmt.Errorf("tap: %w, at least %d packets not written: %w", ErrIncomplete, c.lost, c.err)
}

func (c *Capture) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// addInterface describes a link in the file and returns its number there.
func (c *Capture) addInterface(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links++
	if c.closed {
		return 0
	}
	return c.describe(name)
}

// describe is addInterface with the lock held.
func (c *Capture) describe(name string) (id int) {
	in := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet}
	var err error
	if c.ng == nil {
		c.ng, err = pcapgo.NewNgWriterInterface(c.w, in, pcapgo.NgWriterOptions{
			SectionInfo: pcapgo.NgSectionInfo{Application: "gorxe"},
		})
	} else {
		id, err = c.ng.AddInterface(in)
	}
	if err == nil {
		err = c.ng.Flush()
	}
	c.fail(err)
	return id
}

// Of the pcapng format, draft-ietf-opsawg-pcapng: section 4.3, enhanced packet
// block, and its options. What gopacket writes is little endian with times in
// nanoseconds, and so is this.
const (
	blockEnhancedPacket = 6
	optComment          = 1
	optEPBFlags         = 2
	flagInbound         = 1
	flagOutbound        = 2
)

// record is one packet for the file.
type record struct {
	iface   int
	at      time.Time
	flags   uint32
	frame   []byte
	comment string // none if empty
}

// write appends a packet to the file, or counts it as lost.
func (c *Capture) write(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		c.lost++
		return
	}
	b := appendBlock(c.buf[:0], r, len(r.frame))
	c.buf = b
	if _, err := c.w.Write(b); err != nil {
		c.fail(err)
		c.lost++
	}
}

// appendBlock appends a packet as a block, with the first keep octets of its
// frame.
func appendBlock(b []byte, r *record, keep int) []byte {
	le, ts, at := binary.LittleEndian, uint64(r.at.UnixNano()), len(b)
	keep = min(keep, len(r.frame))
	b = le.AppendUint32(b, blockEnhancedPacket)
	b = le.AppendUint32(b, 0) // the length of the block, when it is known
	b = le.AppendUint32(b, uint32(r.iface))
	b = le.AppendUint32(b, uint32(ts>>32))
	b = le.AppendUint32(b, uint32(ts))
	b = le.AppendUint32(b, uint32(keep))
	b = le.AppendUint32(b, uint32(len(r.frame)))
	b = padFrom(append(b, r.frame[:keep]...), at)
	if r.comment != "" {
		b = le.AppendUint16(b, optComment)
		b = le.AppendUint16(b, uint16(len(r.comment)))
		b = padFrom(append(b, r.comment...), at)
	}
	b = le.AppendUint16(b, optEPBFlags)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, r.flags)
	b = le.AppendUint32(b, 0) // end of options
	n := uint32(len(b) - at + 4)
	b = le.AppendUint32(b, n)
	le.PutUint32(b[at+4:], n)
	return b
}

// padFrom fills up what begins at an offset to a multiple of four octets.
func padFrom(b []byte, at int) []byte { return append(b, 0, 0, 0)[:at+(len(b)-at+3)&^3] }
