package pingpong

import (
	"bytes"
	"fmt"
	"os"
)

// ownPage is the stride of the zeros that every server of the original finds
// where it looks for them, whatever the size of its pages.
const ownPage = 4096

// poison is what the receive buffer holds before each message: not a start of
// a page.
const poison = 0xa5

// checker makes the messages of a run with Check and examines those that come.
// The zero value does nothing: it is a run without.
type checker struct {
	on     bool
	client bool
	// alike is that all messages are the same: srq_pingpong has one buffer for
	// all of its queue pairs, and gives back a message that may be another's.
	alike bool
	// pattern is that the client is of this package, so that all of its data
	// are known. The server finds out from the first message.
	pattern bool

	base     []byte // of this package's messages
	want     []byte
	page     int // stride of the octets that the original examines
	received int
	bad      *badData // the first
}

// badData is the first wrong octet of a run.
type badData struct {
	message, offset, page int
	got, want             byte
	hint                  string
}

func (b *badData) Error() string {
	return fmt.Sprintf("-c: message %d is wrong from octet %d on: %#02x instead of %#02x%s", b.message, b.offset, b.got, b.want, b.hint)
}

// checkerOf returns the checker of a run with messages of n octets.
func checkerOf(client, alike bool, n int) checker {
	c := checker{on: true, client: client, alike: alike, pattern: client, base: make([]byte, n), want: make([]byte, n), page: os.Getpagesize()}
	for i := range c.base {
		c.base[i] = byte(i*7 + i>>8*13 + 1)
	}
	return c
}

// fill makes message k, counted from 0: no two that follow each other are
// alike, unless all are, but all have the zeros that the original's server looks
// for.
func (c *checker) fill(to []byte, k int) {
	if c.alike {
		k = 0
	}
	for i, b := range c.base {
		to[i] = b ^ byte(k)
	}
	for i := 0; i < len(to); i += ownPage {
		to[i] = 0
	}
}

// wipe makes a receive buffer one that holds no message.
func wipe(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// prepare makes in tx the message k, counted from 0, of a queue pair when its
// last has left and the answer has come to rx: the client makes a new one, the
// server gives back what it got. The peer's next message comes after this one.
func (c *checker) prepare(tx, rx []byte, k int) {
	if c.client {
		c.fill(tx, k)
	} else {
		copy(tx, rx)
	}
	wipe(rx)
}

// examine looks at a message that has come.
func (c *checker) examine(rx []byte) {
	k := c.received
	c.received++
	if c.bad != nil {
		return
	}
	c.fill(c.want, k)
	if !c.client && k == 0 {
		c.pattern = c.similar(rx)
	}
	if c.pattern {
		if bytes.Equal(rx, c.want) {
			return
		}
		for i, b := range c.want {
			if rx[i] != b {
				c.bad = &badData{message: k + 1, offset: i, page: i / c.page, got: rx[i], want: b}
				return
			}
		}
	}
	for i := 0; i < len(rx); i += c.page {
		if rx[i] != 0 {
			c.bad = &badData{message: k + 1, offset: i, page: i / c.page, got: rx[i], hint: "; was the client started with -c too?"}
			return
		}
	}
}

// similar reports whether most of a message is as this package's client sends
// it. The original's is the same octet again and again.
func (c *checker) similar(rx []byte) bool {
	n := 0
	for i, b := range c.want {
		if rx[i] == b {
			n++
		}
	}
	return 2*n > len(c.want)
}
