package relay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// CaptureFile is a Capture to a file in the format of libpcap, with times in
// nanoseconds: draft-ietf-opsawg-pcap, sections 4 and 5.
type CaptureFile struct {
	f   io.WriteCloser
	w   *bufio.Writer
	err error
}

const (
	captureBuffer = 1 << 20
	pcapMagic     = 0xa1b23c4d
	pcapHeader    = 24
	pcapEthernet  = 1
)

// NewCaptureFile begins a capture. Close closes the file.
func NewCaptureFile(f io.WriteCloser) *CaptureFile {
	c := &CaptureFile{f: f, w: bufio.NewWriterSize(f, captureBuffer)}
	var h [pcapHeader]byte
	le := binary.LittleEndian
	le.PutUint32(h[0:], pcapMagic)
	le.PutUint16(h[4:], 2) // version 2.4
	le.PutUint16(h[6:], 4)
	le.PutUint32(h[16:], frameSnap)
	le.PutUint32(h[20:], pcapEthernet)
	_, c.err = c.w.Write(h[:])
	return c
}

const frameSnap = 1 << 18 // octets, what Wireshark takes

// Frame writes a frame. After an error it does nothing.
func (c *CaptureFile) Frame(at time.Time, _ string, frame []byte) {
	if c.err != nil {
		return
	}
	h := c.w.AvailableBuffer()
	le := binary.LittleEndian
	h = le.AppendUint32(h, uint32(at.Unix()))
	h = le.AppendUint32(h, uint32(at.Nanosecond()))
	h = le.AppendUint32(h, uint32(len(frame)))
	h = le.AppendUint32(h, uint32(len(frame)))
	if _, c.err = c.w.Write(h); c.err == nil {
		_, c.err = c.w.Write(frame)
	}
}

// Close writes what is left, and returns the first error.
func (c *CaptureFile) Close() error {
	if c.err == nil {
		c.err = c.w.Flush()
	}
	if err := errors.Join(c.err, c.f.Close()); err != nil {
		return fmt.Errorf("the capture is not whole: %w", err)
	}
	return nil
}
