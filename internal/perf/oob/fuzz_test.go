package oob

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzPeer lets a peer say anything: no panic, no end that is neither proper
// nor one of our errors, and no address or result that cannot be.
func FuzzPeer(f *testing.F) {
	for _, t := range transcripts(f) {
		for _, client := range []bool{false, true} {
			var said []byte
			for _, m := range t.messages {
				if m.client == client {
					said = append(said, m.b...)
				}
			}
			var bits byte
			for i, b := range []bool{client, t.cfg.Both, t.cfg.All, t.cfg.Duration, t.cfg.WriteImm, t.cfg.Infinite, t.qps() > 1, t.cfg.Datagram} {
				if b {
					bits |= 1 << i
				}
			}
			f.Add(byte(t.cfg.Kind), bits, said)
		}
	}
	f.Fuzz(func(t *testing.T, kind, bits byte, said []byte) {
		on := func(i int) bool { return bits>>i&1 != 0 }
		cfg := Config{
			Kind: Kind(kind), Server: on(0), Both: on(1), All: on(2), Duration: on(3), WriteImm: on(4), Infinite: on(5), QPs: 1, Datagram: on(7),
			MTU: 4096, StepTimeout: time.Minute, RunTimeout: time.Minute,
		}
		if on(6) {
			cfg.QPs = 3
		}
		if _, err := cfg.withDefaults(); err != nil {
			return
		}
		c, err := New(context.Background(), &recording{r: bytes.NewReader(said)}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, remote, told, err := converse(c, destsOf(1, cfg.QPs), 3, func() BWReport { return BWReport{} })
		if err != nil {
			ending(t, err, "")
		}
		for i := range remote {
			if err := c.checkDest(&remote[i], &c.local[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range told {
			if r.Size > maxSize || r.Iters > maxIters || !rate(r.BWPeak) || !rate(r.BWAvg) || !rate(r.MsgRate) {
				t.Fatal(r)
			}
		}
	})
}

// recording is a connection to a peer whose words are known beforehand.
type recording struct {
	net.Conn
	r io.Reader
}

func (c *recording) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c *recording) Write(b []byte) (int, error)      { return len(b), nil }
func (c *recording) Close() error                     { return nil }
func (c *recording) SetReadDeadline(time.Time) error  { return nil }
func (c *recording) SetWriteDeadline(time.Time) error { return nil }

// FuzzDest: what is taken for an address is one, and says the same again.
func FuzzDest(f *testing.F) {
	f.Add([]byte(dest7), false)
	f.Add(appendDest(nil, &Dest{QPN: 5, ReadVAddr: 6}, true), true)
	f.Fuzz(func(t *testing.T, b []byte, dv bool) {
		d, ok := parseDest(b, dv)
		if !ok {
			return
		}
		if again := appendDest(nil, &d, dv); !bytes.Equal(again, bytes.ToLower(b)) {
			t.Fatalf("%q became %q", b, again)
		}
	})
}
