package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// Link says what a frame's first octet belongs to, by the numbers that
// tcpdump.org assigns (LINKTYPE_...).
type Link uint16

// The link types that carry RoCE or InfiniBand in practice.
const (
	Null       Link = 0   // BSD loopback: address family in the capturing host's order
	Ethernet   Link = 1   // Ethernet header
	Raw        Link = 101 // IPv4 or IPv6 header
	Loop       Link = 108 // OpenBSD loopback: address family, big-endian
	SLL        Link = 113 // Linux cooked: tcpdump -i any
	ERF        Link = 197 // Endace records: 16 octets, then what the record says
	IPv4       Link = 228 // IPv4 header
	IPv6       Link = 229 // IPv6 header
	InfiniBand Link = 247 // InfiniBand local route header
	SLL2       Link = 276 // Linux cooked, second form
)

var linkNames = map[Link]string{
	Null: "BSD loopback", Ethernet: "Ethernet", Raw: "raw IP", Loop: "OpenBSD loopback", SLL: "Linux cooked", ERF: "ERF",
	IPv4: "raw IPv4", IPv6: "raw IPv6", InfiniBand: "InfiniBand", SLL2: "Linux cooked v2",
}

// String names the link type, or gives its number.
func (l Link) String() string {
	if n, ok := linkNames[l]; ok {
		return n
	}
	return fmt.Sprintf("link type %d", uint16(l))
}

// Frame is one captured frame.
type Frame struct {
	Number int       // from 1, in file order
	Time   time.Time // zero when the file does not say
	Link   Link
	Data   []byte // owned by the caller
	Len    int    // octets on the wire; more than len(Data) when the capture cut the frame short

	Comment string // of the capture (pcapng), as it stands there
}

// maxFrame bounds a frame, as Wireshark does: what claims to be longer is a
// broken file.
const maxFrame = 256 << 10

// ErrFormat is returned for a file that is none of the known formats.
var ErrFormat = errors.New("not a pcap, pcapng or .hex file")

// Reader gives the frames of one file.
type Reader struct {
	next   func() (Frame, error)
	close  func() error
	name   string
	number int
}

// Open opens a file; the name "-" is standard input. The error says what is
// wrong with the file and wraps ErrFormat when it is no capture.
func Open(name string) (*Reader, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
	}
	r, err := NewReader(f, name)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads a capture from in. The name is for errors, and a name that
// ends in -l3.hex says that the packets of a .hex file begin with their IP
// header.
func NewReader(in io.Reader, name string) (*Reader, error) {
	b := bufio.NewReader(in)
	head, err := b.Peek(4)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s is a folder; name a capture in it", name)
	}
	if len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%s: broken gzip: %w", name, err)
		}
		b = bufio.NewReader(z)
		head, err = b.Peek(4)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, ErrFormat)
		}
	}
	r := &Reader{name: name, close: func() error { return nil }}
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: %w: it is empty", name, ErrFormat)
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: %w", name, err)
	case isPcap(head):
		err = r.openPcap(b)
	case len(head) == 4 && binary.LittleEndian.Uint32(head) == 0x0a0d0d0a:
		err = r.openPcapng(b)
	default:
		err = r.openHex(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// isPcap tells the magic numbers of pcap: micro and nanoseconds, either order.
func isPcap(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32(head) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		return true
	}
	return false
}

// Next returns the next frame, and io.EOF after the last. Any other error
// ends the file: the frames before it are good.
func (r *Reader) Next() (Frame, error) {
	f, err := r.next()
	switch {
	case err == nil:
		r.number++
		f.Number = r.number
		return f, nil
	case err == io.EOF: //nolint:errorlint // a wrapped EOF is a cut file, below
		return Frame{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Frame{}, fmt.Errorf("%s: the file ends inside frame %d", r.name, r.number+1)
	}
	return Frame{}, fmt.Errorf("%s: frame %d: %w", r.name, r.number+1, err)
}

// Close closes the file.
func (r *Reader) Close() error { return r.close() }

func (r *Reader) openPcap(b *bufio.Reader) error {
	head, err := b.Peek(24)
	if err != nil {
		return errors.New("the pcap header is cut short")
	}
	link := Link(pcapLink(head))
	p, err := pcapgo.NewReader(b)
	if err != nil {
		return fmt.Errorf("broken pcap header: %w", err)
	}
	p.SetSnaplen(maxFrame) // what writers put there is not to be trusted
	r.next = func() (Frame, error) {
		if _, err := b.Peek(1); err != nil {
			return Frame{}, err
		}
		data, ci, err := p.ReadPacketData()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{Time: ci.Timestamp, Link: link, Data: data, Len: ci.Length}, err
	}
	return nil
}

// pcapLink reads the link type of a pcap header. gopacket keeps eight bits of
// it, which are too few for SLL2.
func pcapLink(head []byte) uint32 {
	var o binary.ByteOrder = binary.LittleEndian
	if head[0] == 0xa1 {
		o = binary.BigEndian
	}
	return o.Uint32(head[20:]) & 0xffff
}

func (r *Reader) openPcapng(b *bufio.Reader) error {
	notes := newComments(b)
	p, err := pcapgo.NewNgReader(notes, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	if err != nil {
		return fmt.Errorf("broken pcapng header: %w", err)
	}
	r.next = func() (f Frame, err error) {
		// pcapgo indexes the options of a broken file without looking at
		// their length.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("broken pcapng block: %v", p)
			}
		}()
		data, ci, err := p.ReadPacketData()
		if err != nil {
			if errors.Is(err, io.EOF) && data != nil {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
		if len(data) > maxFrame {
			return Frame{}, fmt.Errorf("claims %d octets", len(data))
		}
		return Frame{Time: ci.Timestamp, Link: ngLink(ci), Data: data, Len: ci.Length, Comment: notes.next()}, nil
	}
	return nil
}

// ngLink returns the link type of the interface a frame came from. gopacket
// keeps eight bits of it; 20, which is not assigned, is what they leave of
// SLL2.
func ngLink(ci gopacket.CaptureInfo) Link {
	if len(ci.AncillaryData) == 0 {
		return Ethernet
	}
	t, _ := ci.AncillaryData[0].(layers.LinkType)
	if t == layers.LinkType(SLL2&0xff) {
		return SLL2
	}
	return Link(t)
}

// hexLink returns how the packets of a .hex file begin, by its name.
func hexLink(name string) Link {
	if strings.HasSuffix(name, "-l3.hex") {
		return Raw
	}
	return Ethernet
}
