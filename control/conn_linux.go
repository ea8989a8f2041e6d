package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gorxe/gorxe/internal/sys"
)

// maxFDs is how many descriptors one message brings.
const maxFDs = 4

// Conn sends and receives messages. Sending is safe for concurrent use; one
// goroutine receives.
type Conn struct {
	*net.UnixConn
	mu  sync.Mutex // guards out
	out []byte
	in  [MaxMessage + 1]byte
	oob []byte
}

// NewConn returns a Conn over a SOCK_SEQPACKET socket.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{UnixConn: c, oob: make([]byte, sys.RightsSpace(maxFDs)+64)}
}

// Message is a received message. Body is borrowed until the next Receive; FDs are
// the receiver's.
type Message struct {
	Header
	Body []byte
	FDs  []int
}

// Close closes the descriptors that came with the message.
func (m *Message) Close() {
	sys.CloseFDs(m.FDs...)
	m.FDs = nil
}

// ErrMessage is what Receive returns, wrapped, for what is no message.
var ErrMessage = errors.New("control: malformed message")

// Receive returns the next message, io.EOF at the end.
func (c *Conn) Receive(m *Message) error {
	n, oobn, flags, _, err := c.ReadMsgUnix(c.in[:], c.oob)
	if oobn > 0 {
		var ferr error
		m.FDs, ferr = sys.ParseRights(c.oob[:oobn])
		err = errors.Join(err, ferr)
	}
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case n > MaxMessage || flags&sys.MsgTruncated != 0 || len(m.FDs) > maxFDs:
		err = fmt.Errorf("%w: longer than %d octets, or with more than %d descriptors", ErrMessage, MaxMessage, maxFDs)
	case n < HeaderLen:
		err = fmt.Errorf("%w: %d octets, a header has %d", ErrMessage, n, HeaderLen)
	default:
		m.Body, _ = Decode(c.in[:n], &m.Header)
		if int(m.Len) != n {
			err = fmt.Errorf("%w: it says that it has %d octets, and has %d", ErrMessage, m.Len, n)
		}
	}
	if err != nil {
		m.Close()
	}
	return err
}

// Send sends a message with a body of fixed layout, nil for none, and text or other
// octets behind it. It waits for room until the deadline, 0 for ever.
func (c *Conn) Send(op Op, st Status, tag uint32, body any, more []byte, wait time.Duration, fds ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := Append(c.out[:0], &Header{Op: op, Status: st, Tag: tag})
	if body != nil {
		b = Append(b, body)
	}
	b = append(b, more[:min(len(more), max(0, MaxMessage-len(b)))]...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	c.out = b
	var oob []byte
	if len(fds) > 0 {
		oob = sys.Rights(fds...)
	}
	var deadline time.Time
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, _, err := c.WriteMsgUnix(b, oob, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("control: the other end has not read for %v: %w", wait, err)
	}
	return err
}
