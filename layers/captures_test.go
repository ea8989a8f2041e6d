package layers_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/layers"
)

// captureDir is the folder of recorded packets that lies beside the repository
// where it is developed. Most of them are not ours to copy.
func captureDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "shared", "captures")
	if _, err := os.Stat(filepath.Join(dir, "SOURCES.md")); err != nil {
		t.Skip("needs the recorded captures in ../shared/captures, which are not part of the repository")
	}
	return dir
}

func glob(t testing.TB, patterns ...string) (files []string) {
	t.Helper()
	for _, p := range patterns {
		m, err := filepath.Glob(p)
		require.NoError(t, err)
		require.NotEmpty(t, m, p)
		files = append(files, m...)
	}
	return files
}

// ownCaptures are part of the repository.
func ownCaptures(t testing.TB) []string {
	return glob(t, "../internal/decode/testdata/*.pcap")
}

func readFrames(t testing.TB, name string) (frames []pcap.Frame) {
	t.Helper()
	r, err := pcap.Open(name)
	require.NoError(t, err)
	defer r.Close()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames
		}
		require.NoError(t, err)
		frames = append(frames, f)
	}
}

// counts are the packets of a file, and those whose ICRC is right.
type counts struct{ packets, ok int }

var (
	fileCell = regexp.MustCompile(`[\w-]+ ?\.(?:pcap|hex)|-node\d`)
	okCell   = regexp.MustCompile(`^(\d+)/(\d+)`)
)

// sources are the counts in SOURCES.md, which another program made: the first
// column names the file, the last says "ok/packets". The row of the three node
// files holds their sum.
func sources(t testing.TB, dir string) map[string]counts {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "SOURCES.md"))
	require.NoError(t, err)
	rows := map[string]counts{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		m := okCell.FindStringSubmatch(strings.TrimSpace(cells[len(cells)-1]))
		if m == nil || len(cells) < 6 {
			continue
		}
		ok, _ := strconv.Atoi(m[1])
		n, _ := strconv.Atoi(m[2])
		name := strings.TrimSpace(cells[0])
		stem, nodes, several := strings.Cut(name, "-node")
		if !several {
			require.Regexp(t, fileCell, name)
			rows[name] = counts{n, ok}
			continue
		}
		parts := len(strings.Split(nodes, ","))
		for i := range parts {
			rows[stem+"-node"+strconv.Itoa(i)+".pcap"] = counts{n / parts, ok / parts}
		}
	}
	return rows
}

// firstLayer returns how gopacket is to take a frame, and the frame from
// there on: gopacket has no layer for the ERF header of the InfiniBand capture.
func firstLayer(t testing.TB, f pcap.Frame) (gopacket.Decoder, []byte) {
	t.Helper()
	switch f.Link {
	case pcap.Ethernet:
		return inet.LayerTypeEthernet, f.Data
	case pcap.Raw:
		return inet.LayerTypeIPv4, f.Data
	case pcap.ERF:
		b := f.Data
		more := b[8]&0x80 != 0
		b = b[16:]
		for more {
			more, b = b[0]&0x80 != 0, b[8:]
		}
		return layers.LinkTypeInfiniBand, b
	}
	require.Failf(t, "no layer", "%v", f.Link)
	return nil, nil
}

// forget takes the octets that the layers were decoded from away from them.
func forget(p gopacket.Packet) {
	for _, l := range p.Layers() {
		if base := reflect.ValueOf(l).Elem(); base.Kind() == reflect.Struct {
			base.FieldByName("BaseLayer").SetZero()
		}
	}
}

// ipEnd is where the IP packet in an Ethernet or IP frame ends. What an
// Ethernet frame holds behind it is in no layer of gopacket's.
func ipEnd(first gopacket.Decoder, b []byte) int {
	at := 0
	switch first {
	case inet.LayerTypeEthernet:
		for at = 12; binary.BigEndian.Uint16(b[at:]) == 0x8100; {
			at += 4
		}
		at += 2
	case inet.LayerTypeIPv4:
	default:
		return len(b)
	}
	if b[at]>>4 == 6 {
		return at + 40 + int(binary.BigEndian.Uint16(b[at+4:]))
	}
	return at + int(binary.BigEndian.Uint16(b[at+2:]))
}

// below are the layers under the BTH that its ICRC covers.
func below(p gopacket.Packet) (out []gopacket.Layer) {
	for _, l := range p.Layers() {
		switch l.(type) {
		case *inet.IPv4, *inet.IPv6, *inet.UDP, *layers.LRH, *layers.GRH:
			out = append(out, l)
		}
	}
	return out
}

// roundTrip decodes a frame, serialises it from the decoded fields in several
// ways, and compares; it reports whether the ICRC is right.
func roundTrip(t testing.TB, f pcap.Frame) (ok bool) {
	t.Helper()
	first, data := firstLayer(t, f)
	end := ipEnd(first, data)
	p := gopacket.NewPacket(data, first, gopacket.DecodeOptions{SkipDecodeRecovery: true})
	require.Nil(t, p.ErrorLayer(), "%v", p)
	require.False(t, p.Metadata().Truncated)
	lazy := gopacket.NewPacket(data, first, gopacket.Lazy)
	require.Equal(t, p.String(), lazy.String())
	b, _ := p.Layer(layers.LayerTypeBTH).(*layers.BTH)
	require.NotNil(t, b, "%v", p)
	trailer := b.Trailer()
	require.Same(t, trailer, p.Layers()[len(p.Layers())-1])
	require.Equal(t, p.Layer(gopacket.LayerTypePayload) != nil, p.ApplicationLayer() != nil)

	err := layers.VerifyICRC(p)
	var wrong *layers.ICRCError
	require.True(t, err == nil || errors.As(err, &wrong), "%v", err)
	under := below(p)
	require.Equal(t, err, trailer.Verify(under...))

	forget(p)
	buf := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializePacket(buf, gopacket.SerializeOptions{}, p))
	require.Equal(t, data[:end], buf.Bytes()[:end])

	// Recomputing what is right already changes nothing, and what is wrong
	// becomes right.
	if b.PadCount == uint8(len(trailer.Pad)) && allZero(trailer.Pad) {
		sum := seal(t, p, b, under)
		want := append([]byte(nil), data[:end]...)
		if wrong != nil {
			require.NotEqual(t, want, sum[:end])
			at := end
			binary.LittleEndian.PutUint32(want[at-4:], wrong.Computed)
		}
		require.Equal(t, want, sum[:end])
	}
	return err == nil
}

func allZero(b []byte) bool { return strings.Trim(string(b), "\x00") == "" }

// seal serialises a packet with lengths and checksums recomputed, after
// spoiling all that FixLengths and ComputeChecksums are to restore; the UDP
// checksum, which gopacket would fill in where the sender did not, is kept.
func seal(t testing.TB, p gopacket.Packet, b *layers.BTH, under []gopacket.Layer) []byte {
	t.Helper()
	require.NoError(t, b.SetLayersForChecksum(under...))
	var ls []gopacket.SerializableLayer
	for _, l := range p.Layers() {
		ls = append(ls, l.(gopacket.SerializableLayer))
	}
	pad, pay := b.PadCount, p.ApplicationLayer()
	ls[len(ls)-1] = &layers.ICRC{Value: 0xdeadbeef, Pad: []byte{1, 2, 3}}
	b.PadCount = 3
	if pay == nil {
		require.Zero(t, pad)
	}
	for i, l := range ls {
		switch l := l.(type) {
		case *inet.IPv4:
			l.Length = 1
		case *inet.IPv6:
			l.Length = 1
		case *layers.GRH:
			l.PayLen = 1
		case *layers.LRH:
			l.PktLen = 1
		case *inet.UDP:
			l.Length = 1
			ls[i] = keepChecksum{l}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...))
	require.Equal(t, pad, b.PadCount)
	return buf.Bytes()
}

// keepChecksum is a UDP layer that does not compute its checksum.
type keepChecksum struct{ *inet.UDP }

func (u keepChecksum) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	opts.ComputeChecksums = false
	return u.UDP.SerializeTo(b, opts)
}

// Every packet of every capture decodes, comes back from its fields octet for
// octet, and has the ICRC that an independent checker found right or wrong.
func TestCapturesRoundTrip(t *testing.T) {
	dir := captureDir(t)
	rows := sources(t, dir)
	total := counts{}
	for _, name := range glob(t, dir+"/*.pcap", dir+"/*.hex", dir+"/rxe/*.pcap") {
		got := counts{}
		for _, f := range readFrames(t, name) {
			got.packets++
			if roundTrip(t, f) {
				got.ok++
			}
			if t.Failed() {
				t.Fatalf("%s frame %d", name, f.Number)
			}
		}
		total.packets, total.ok = total.packets+got.packets, total.ok+got.ok
		if base := filepath.Base(name); filepath.Base(filepath.Dir(name)) != "rxe" {
			require.Equal(t, rows[base], got, base)
			delete(rows, base)
			continue
		}
		require.NotZero(t, got.packets, name)
		require.Equal(t, got.packets, got.ok, "%s: recorded by this project between two Soft-RoCE guests", name)
	}
	require.Empty(t, rows, "in SOURCES.md but not in the folder")
	t.Logf("%d packets, %d with a right ICRC", total.packets, total.ok)
}

// The captures of the repository do too, so that the test never has nothing to
// run on. One of them was recorded before its sender's kernel had split the
// packets, so not every ICRC in it is right.
func TestOwnCapturesRoundTrip(t *testing.T) {
	packets := map[string]int{}
	for _, name := range ownCaptures(t) {
		for _, f := range readFrames(t, name) {
			ok := roundTrip(t, f)
			require.True(t, ok || filepath.Base(name) == "sender-burst.pcap", "%s frame %d", name, f.Number)
			packets[filepath.Base(name)]++
		}
	}
	for _, name := range []string{"atomic_cs.pcap", "err_rnrwait.pcap", "rping.pcap", "sender-burst.pcap"} {
		require.NotZero(t, packets[name], name)
	}
}
