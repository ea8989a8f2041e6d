package pcap

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"
)

var (
	when   = time.Unix(1700000000, 123456000).UTC()
	frames = [][]byte{{1, 2, 3, 4}, {5}, bytes.Repeat([]byte{0xab}, 9000)}
)

func writePcap(t *testing.T, nano bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if nano {
		w = pcapgo.NewWriterNanos(&b)
	}
	require.NoError(t, w.WriteFileHeader(65536, layers.LinkTypeEthernet))
	for _, f := range frames {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: when, CaptureLength: len(f), Length: len(f) + 2}, f))
	}
	return b.Bytes()
}

func writePcapng(t *testing.T, link layers.LinkType) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, link)
	require.NoError(t, err)
	for _, f := range frames {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: when, CaptureLength: len(f), Length: len(f) + 2}, f))
	}
	require.NoError(t, w.Flush())
	return b.Bytes()
}

func readAll(r *Reader) (out []Frame, err error) {
	for {
		f, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
}

func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

func TestFormats(t *testing.T) {
	pcapMicro := writePcap(t, false)
	for name, c := range map[string]struct {
		file []byte
		link Link
	}{
		"pcap":       {pcapMicro, Ethernet},
		"pcap nanos": {writePcap(t, true), Ethernet},
		"pcap gzip":  {gzipped(pcapMicro), Ethernet},
		"pcapng":     {writePcapng(t, layers.LinkTypeEthernet), Ethernet},
		"pcapng raw": {writePcapng(t, layers.LinkTypeRaw), Raw},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(c.file), "x")
			require.NoError(t, err)
			got, err := readAll(r)
			require.NoError(t, err)
			require.Len(t, got, len(frames))
			for i, f := range got {
				require.Equal(t, Frame{Number: i + 1, Time: when, Link: c.link, Data: frames[i], Len: len(frames[i]) + 2}, f)
			}
		})
	}
}

// epb returns an enhanced packet block with options.
func epb(o binary.AppendByteOrder, data, options []byte) []byte {
	b := o.AppendUint32(nil, blockEnhanced)
	n := packetHead + (len(data)+3)&^3 + len(options) + 4
	for _, v := range []uint32{uint32(n), 0, 0, 0, uint32(len(data)), uint32(len(data))} {
		b = o.AppendUint32(b, v)
	}
	b = append(append(b, data...), make([]byte, -len(data)&3)...)
	return o.AppendUint32(append(b, options...), uint32(n))
}

// Comments of packets are found among other options, in files of either
// order, and belong to their packet whatever stands between.
func TestComments(t *testing.T) {
	for name, o := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		t.Run(name, func(t *testing.T) {
			u32 := func(vs ...uint32) (b []byte) {
				for _, v := range vs {
					b = o.AppendUint32(b, v)
				}
				return b
			}
			option := func(code uint16, v string) []byte {
				b := o.AppendUint16(o.AppendUint16(nil, code), uint16(len(v)))
				return append(append(b, v...), make([]byte, -len(v)&3)...)
			}
			section := u32(blockSection, 28, 0x1a2b3c4d)
			section = append(o.AppendUint16(o.AppendUint16(section, 1), 0), u32(0xffffffff, 0xffffffff, 28)...)
			ifc := append(u32(1, 20), append(o.AppendUint16(nil, 1), 0, 0)...)
			ifc = append(ifc, u32(0, 20)...)
			file := bytes.Join([][]byte{
				section, ifc,
				epb(o, frames[0], bytes.Join([][]byte{option(2, "\x00\x00\x00\x01"), option(1, "first"), option(1, "twice"), u32(0)}, nil)),
				u32(0x4711, 16, 0, 16), // of a kind nobody knows
				epb(o, frames[1], nil),
				append(u32(blockSimple, 20, 4), append([]byte("abcd"), u32(20)...)...),
				epb(o, frames[2], option(1, "last")), // without an end of options
			}, nil)
			r, err := NewReader(bytes.NewReader(file), "x")
			require.NoError(t, err)
			got, err := readAll(r)
			require.NoError(t, err)
			require.Len(t, got, 4)
			for i, want := range []string{"first; twice", "", "", "last"} {
				require.Equal(t, want, got[i].Comment, "frame %d", i+1)
			}
			require.Equal(t, frames[2], got[3].Data)
		})
	}
}

// Link types above 255 do not fit gopacket's type.
func TestSLL2(t *testing.T) {
	p := writePcap(t, false)
	binary.LittleEndian.PutUint32(p[20:], uint32(SLL2))
	r, err := NewReader(bytes.NewReader(p), "x")
	require.NoError(t, err)
	f, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, SLL2, f.Link)

	ng := writePcapng(t, layers.LinkTypeEthernet)
	shb := binary.LittleEndian.Uint32(ng[4:])
	binary.LittleEndian.PutUint16(ng[shb+8:], uint16(SLL2))
	r, err = NewReader(bytes.NewReader(ng), "x")
	require.NoError(t, err)
	f, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, SLL2, f.Link)
}

func TestHex(t *testing.T) {
	const text = "# comment\n\n01020304\r\n# another\n05\n" // either line ending
	for name, link := range map[string]Link{"a.hex": Ethernet, "a-l3.hex": Raw} {
		r, err := NewReader(strings.NewReader(text), name)
		require.NoError(t, err)
		got, err := readAll(r)
		require.NoError(t, err)
		require.Equal(t, []Frame{
			{Number: 1, Link: link, Data: []byte{1, 2, 3, 4}, Len: 4},
			{Number: 2, Link: link, Data: []byte{5}, Len: 1},
		}, got)
	}
}

func TestErrors(t *testing.T) {
	p := writePcap(t, false)
	for name, c := range map[string]struct {
		file   string
		format bool   // wraps ErrFormat
		want   string // part of the text
		good   int    // frames before the error
	}{
		"empty":           {"", true, "empty", 0},
		"binary":          {"\x7fELF\x02\x01\x01", true, "7f 45 4c 46", 0},
		"text":            {"hello, world\n", true, "not a pcap", 0},
		"markdown":        {"# gorxe\n\nA transport.\n", true, "not a pcap", 0},
		"header cut":      {string(p[:20]), false, "cut short", 0},
		"in frame 1":      {string(p[:24+10]), false, "ends inside frame 1", 0},
		"in frame 2":      {string(p[:24+16+4+16]), false, "ends inside frame 2", 1},
		"hex digit":       {"0102\n01zz\n", false, "line 2", 1},
		"hex odd":         {"0102\n012\n", false, "line 2", 1},
		"pcapng cut":      {string(writePcapng(t, layers.LinkTypeEthernet)[:20]), false, "pcapng", 0},
		"broken gzip":     {"\x1f\x8bxx", false, "gzip", 0},
		"huge frame":      {string(p[:24]) + "\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\x7f\xff\xff\xff\x7f", false, "frame 1", 0},
		"gzip of nothing": {string(gzipped(nil)), true, "not a pcap", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(strings.NewReader(c.file), "NAME")
			var got []Frame
			if err == nil {
				got, err = readAll(r)
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "NAME")
			require.Equal(t, c.format, errors.Is(err, ErrFormat))
			require.Len(t, got, c.good)
		})
	}
}

func TestOpen(t *testing.T) {
	_, err := Open(t.TempDir())
	require.ErrorContains(t, err, "is a folder; name a capture in it")
	_, err = Open(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)

	name := filepath.Join(t.TempDir(), "x.pcap")
	require.NoError(t, os.WriteFile(name, writePcap(t, false), 0o600))
	r, err := Open(name)
	require.NoError(t, err)
	got, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, got, len(frames))
	require.NoError(t, r.Close())
}

// FuzzReader: any octets give frames or an error, and no panic.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	w.WriteFileHeader(65536, layers.LinkTypeEthernet)
	w.WritePacket(gopacket.CaptureInfo{Timestamp: when, CaptureLength: 4, Length: 4}, frames[0])
	f.Add(b.Bytes())
	var n bytes.Buffer
	ng, _ := pcapgo.NewNgWriter(&n, layers.LinkTypeEthernet)
	ng.WritePacket(gopacket.CaptureInfo{Timestamp: when, CaptureLength: 4, Length: 4}, frames[0])
	ng.Flush()
	f.Add(n.Bytes())
	f.Add([]byte("# x\n0102\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file), "x")
		if err != nil {
			return
		}
		for range len(file) + 1 {
			fr, err := r.Next()
			if err != nil {
				return
			}
			if len(fr.Data) > maxFrame {
				t.Fatalf("frame of %d octets", len(fr.Data))
			}
		}
		t.Fatal("more frames than octets")
	})
}
