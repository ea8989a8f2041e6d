package enginetest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Captured is a packet of a capture.
type Captured struct {
	Frame []byte
	wire.Datagram
	bth.Packet
}

// Captures calls f with the packets of one service, those for QP1 left out, of
// each recorded capture, as a subtest. It skips where there are no captures.
func Captures(t *testing.T, class bth.Class, names []string, f func(t *testing.T, ps []Captured)) {
	dir := filepath.Join("..", "..", "shared", "captures")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("needs the recorded captures in ../shared/captures, which are not part of the repository")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r, err := pcap.Open(filepath.Join(dir, name))
			must(t, err)
			defer r.Close()
			var ps []Captured
			for {
				frame, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				must(t, err)
				c := Captured{Frame: frame.Data}
				if wire.ParseFrame(c.Frame, &c.Datagram) == trace.None && bth.Parse(c.Datagram.Payload, &c.Packet) == trace.None && c.Info().Class == class && c.DestQP != bth.QPNGSI {
					ps = append(ps, c)
				}
			}
			if len(ps) == 0 {
				t.Fatal("no such packet in it")
			}
			f(t, ps)
		})
	}
}

// Octets are a packet from its BTH to its pad, with MigReq 0.
func Octets(p bth.Packet) []byte {
	p.MigReq = false
	b := make([]byte, p.Info().HdrLen)
	p.PutHeaders(b)
	return append(append(b, p.Payload...), make([]byte, p.Pad)...)
}
