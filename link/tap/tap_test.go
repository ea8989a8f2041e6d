package tap_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock ticks a microsecond each time it is read.
func clock() func() time.Time {
	t := time.Unix(1_700_000_000, 123_456_789)
	return func() time.Time {
		t = t.Add(time.Microsecond)
		return t
	}
}

func pair(t *testing.T, rx mem.Config) (a, b link.Link) {
	t.Helper()
	as, bs, err := mem.Pair(mem.Config{}, rx)
	if err != nil {
		t.Fatal(err)
	}
	return as[0], bs[0]
}

func send(t *testing.T, l link.Link, bs ...*wire.Burst) {
	t.Helper()
	want := 0
	for _, b := range bs {
		want += b.Len()
	}
	if n, err := l.Send(bs); n != want || err != nil {
		t.Fatalf("Send = %d, %v; want %d", n, err, want)
	}
}

func recv(t *testing.T, l link.Link, want int) []wire.Datagram {
	t.Helper()
	ds := make([]wire.Datagram, 64)
	n, err := l.Recv(ds)
	if n != want || err != nil {
		t.Fatalf("Recv = %d, %v; want %d", n, err, want)
	}
	return ds[:n]
}

// frames reads a capture with gopacket, and checks that packet headers and
// ICRCs are right; bad of them have a wrong ICRC.
func frames(t *testing.T, file []byte, bad int) []gopacket.Packet {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var out []gopacket.Packet
	for {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			break
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		p.Metadata().CaptureInfo = ci
		out = append(out, p)
		var d wire.Datagram
		if r := wire.ParseFrame(data, &d); r != trace.None {
			t.Fatalf("frame %d: %v", len(out), r)
		}
		if r := wire.NewVerifier().Check(0, &d, 0); r != trace.None {
			bad--
		}
	}
	if bad != 0 {
		t.Errorf("%d more wrong ICRCs expected among %d frames", bad, len(out))
	}
	return out
}

// tshark returns the lines that tshark makes of fields, or skips.
func tshark(t *testing.T, file string, fields ...string) []string {
	t.Helper()
	prog, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	args := []string{"-r", file, "-T", "fields", "-E", "separator=|", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.Command(prog, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// Everything of a conversation over both families as tshark reads it: one
// frame a packet, in order, with direction, identification, comments, and
// nothing malformed.
func TestTshark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tap.pcapng")
	c, err := tap.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	ma, mb := pair(t, mem.Config{HideIDs: true})
	now := clock()
	a, b := c.Wrap(ma, tap.Config{Name: "left", Now: now}), c.Wrap(mb, tap.Config{Now: now})

	back := memtest.Flow("192.0.2.2", "192.0.2.1")
	send(t, a,
		memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 0x12, PSN: 0xffffff, Op: bth.RCSendMiddle, Lens: []int{1024, 1024, 5}}),
		memtest.Burst(t, memtest.Spec{Flow: memtest.Flow6(), QPN: 0x13, PSN: 7, Op: bth.RCWriteOnly, Lens: []int{3}}))
	ds := recv(t, b, 2)
	b.Verdict(0, 0, trace.None)
	b.Verdict(0, 1, trace.DropQPN)
	b.Verdict(0, 9, trace.DropQPN) // not there: ignored
	b.Verdict(5, 0, trace.DropQPN)
	clear(ds) // the caller's array is its own
	send(t, b, memtest.Burst(t, memtest.Spec{Flow: back, QPN: 0x21, PSN: 1, Op: bth.RCAck, Lens: []int{0}}))
	recv(t, a, 1)
	for _, l := range []link.Link{a, b} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	got := tshark(t, file, "frame.interface_name", "frame.packet_flags_direction", "frame.time_epoch", "ipv6.dst", "ip.dst", "ip.id",
		"infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "frame.comment")
	qpn := trace.DropQPN.Explain()
	want := []string{
		"left|0x00000002|1700000000.123457789||192.0.2.2|0x0000|1|0x000012|16777215|",
		"left|0x00000002|1700000000.123457789||192.0.2.2|0x0001|1|0x000012|0|",
		"left|0x00000002|1700000000.123457789||192.0.2.2|0x0002|1|0x000012|1|",
		"left|0x00000002|1700000000.123457789|2001:db8::2|||10|0x000013|7|",
		"mem|0x00000001|1700000000.123458789||192.0.2.2|0x0000|1|0x000012|16777215|ICRC ok; IPv4 ID 0 solved for; taken",
		"mem|0x00000001|1700000000.123458789||192.0.2.2|0x0001|1|0x000012|0|ICRC ok; IPv4 ID 1 solved for; dropped, unknown_qpn: " + qpn,
		"mem|0x00000001|1700000000.123458789||192.0.2.2|0x0002|1|0x000012|1|ICRC ok; IPv4 ID 2 solved for",
		"mem|0x00000001|1700000000.123458789|2001:db8::2|||10|0x000013|7|ICRC ok",
		"mem|0x00000002|1700000000.123459789||192.0.2.1|0x0000|17|0x000021|1|",
		"left|0x00000001|1700000000.123460789||192.0.2.1|0x0000|17|0x000021|1|ICRC ok",
	}
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("frame %d:\n%s\nwant\n%s", i+1, g, w)
		}
	}
	for i, s := range tshark(t, file, "_ws.malformed", "ip.checksum.status", "udp.checksum.status", "_ws.expert.message") {
		// 1 is "good". The comments are experts of their own.
		if s != "|1|1|" && s != "||1|" && !strings.HasPrefix(s, "|1|1|ICRC") && !strings.HasPrefix(s, "||1|ICRC") {
			t.Errorf("frame %d: malformed | IP checksum | UDP checksum | expert = %s", i+1, s)
		}
	}
}

// Without tshark: gopacket reads the file, and every header and ICRC in it is
// right, whatever the link hid.
func TestFrames(t *testing.T) {
	for _, cfg := range []mem.Config{{}, {HideIDs: true}, {Single: true}, {Single: true, HideIDs: true}} {
		var file bytes.Buffer
		c := tap.New(&file)
		ma, mb := pair(t, cfg)
		a, b := c.Wrap(ma, tap.Config{Now: clock()}), c.Wrap(mb, tap.Config{Now: clock()})
		packets := 0
		for _, lens := range [][]int{{0}, {1}, memtest.Equal(9, 4096), {64, 64, 2}} {
			for _, f := range []*wire.Flow{memtest.Flow4(), memtest.Flow6()} {
				send(t, a, memtest.Burst(t, memtest.Spec{Flow: f, QPN: 1, PSN: 5, Op: bth.RCSendMiddle, Lens: lens}))
				packets += 2 * len(lens)
			}
			if _, err := b.Recv(make([]wire.Datagram, 64)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(a.Close(), b.Close(), c.Close(), c.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		ps := frames(t, file.Bytes(), 0)
		if len(ps) != packets {
			t.Errorf("%+v: %d frames, want %d", cfg, len(ps), packets)
		}
		for i, p := range ps {
			if e := p.ErrorLayer(); e != nil {
				t.Errorf("frame %d: %v", i+1, e.Error())
			}
		}
	}
}

// A group is joined on the inner link; in the file its packets have the
// group's Ethernet address.
func TestGroups(t *testing.T) {
	var file bytes.Buffer
	c := tap.New(&file)
	ma, mb := pair(t, mem.Config{})
	a, b := c.Wrap(ma, tap.Config{Now: clock()}), c.Wrap(mb, tap.Config{Now: clock()})
	if err := c.Wrap(&frameLink{Link: ma}, tap.Config{}).JoinGroup(netip.MustParseAddr("ff02::1")); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	var want []string
	for _, g := range []struct{ src, group, mac string }{
		{"192.0.2.1", "239.129.2.3", "01:00:5e:01:02:03"},
		{"2001:db8::1", "ff0e::a1b2:c3d4", "33:33:a1:b2:c3:d4"},
	} {
		group := netip.MustParseAddr(g.group)
		burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow(g.src, g.group), QPN: 0xffffff, Op: bth.UDSendOnly, Lens: []int{64}})
		if err := b.JoinGroup(group); err != nil {
			t.Fatal(err)
		}
		send(t, a, burst)
		recv(t, b, 1)
		if err := b.LeaveGroup(group); err != nil {
			t.Fatal(err)
		}
		send(t, a, burst)
		recv(t, b, 0)
		want = append(want, g.mac, g.mac, g.mac) // sent, received, sent
	}
	if err := errors.Join(a.Close(), b.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range frames(t, file.Bytes(), 0) {
		got = append(got, p.LinkLayer().LinkFlow().Dst().String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("frames to %v, want %v", got, want)
	}
}

// comments returns the packet comments in a file, in order. Neither gopacket
// nor any other decoder here shows them, so this reads the blocks.
func comments(t *testing.T, file []byte) (out []string) {
	t.Helper()
	u32 := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24 }
	for len(file) >= 12 {
		n := u32(file[4:])
		block := file[:n]
		file = file[n:]
		if u32(block) != 6 {
			continue
		}
		comment := ""
		for o := block[28+(u32(block[20:])+3)&^3 : n-4]; u32(o) != 0; {
			code, size := u32(o)&0xffff, u32(o)>>16
			if code == 1 {
				comment = string(o[4 : 4+size])
			}
			o = o[4+(size+3)&^3:]
		}
		out = append(out, comment)
	}
	return out
}

func TestBadPackets(t *testing.T) {
	var file bytes.Buffer
	c := tap.New(&file)
	ma, mb := pair(t, mem.Config{HideIDs: true})
	broken := fault.Wrap(ma, fault.Config{Rules: fault.MustParse("tx corrupt psn=1")})
	b := c.Wrap(mb, tap.Config{Now: clock()})
	send(t, broken, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(3, 64)}))
	recv(t, b, 3)
	b.Verdict(1, 0, trace.DropICRC)
	if err := errors.Join(b.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	frames(t, file.Bytes(), 1)
	got := comments(t, file.Bytes())
	want := []string{
		"ICRC ok; IPv4 ID 0 solved for",
		"ICRC bad; IPv4 ID not seen, 0 assumed; dropped, icrc_error: " + trace.DropICRC.Explain(),
		"ICRC ok; IPv4 ID 0 solved for",
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("comments\n%q\nwant\n%q", got, want)
	}
}

// Effects of the fault rules inside are noted; outside, the tap sees the wire.
func TestFaultNotes(t *testing.T) {
	rules := fault.MustParse("tx drop psn=1; tx dup psn=2; rx ce psn=8")
	var inside, outside bytes.Buffer
	ci, co := tap.New(&inside), tap.New(&outside)
	ma, mb := pair(t, mem.Config{})
	a := ci.Wrap(fault.Wrap(co.Wrap(ma, tap.Config{Now: clock()}), fault.Config{Rules: rules}), tap.Config{Now: clock()})
	send(t, a, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(3, 64)}))
	send(t, mb, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.2", "192.0.2.1"), QPN: 1, PSN: 7, Op: bth.RCSendMiddle, Lens: memtest.Equal(2, 64)}))
	recv(t, a, 2)
	if err := errors.Join(a.Close(), ci.Close(), co.Close()); err != nil {
		t.Fatal(err)
	}
	frames(t, inside.Bytes(), 0)
	frames(t, outside.Bytes(), 0)
	if got, want := fmt.Sprintf("%q", comments(t, inside.Bytes())),
		`["" "fault rule: drop" "fault rule: dup" "ICRC ok" "ICRC ok; fault rule: ce"]`; got != want {
		t.Errorf("inside: %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%q", comments(t, outside.Bytes())), `["" "" "" "ICRC ok" "ICRC ok"]`; got != want {
		t.Errorf("outside: %s, want %s", got, want)
	}
}

// TestMarks: frames have the traffic class of their packets, as tshark reads it:
// outside the fault rules that of the wire, inside that of what was sent, whose mark
// is told by the note. DSCP 26 and 48 with ECT(0), over both families, in runs.
func TestMarks(t *testing.T) {
	rules := fault.MustParse("tx ce psn=1; rx ce psn=8")
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "inside"), filepath.Join(dir, "outside")
	ci, err1 := tap.Create(inside)
	co, err2 := tap.Create(outside)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ma, mb := pair(t, mem.Config{})
	a := ci.Wrap(fault.Wrap(co.Wrap(ma, tap.Config{Now: clock()}), fault.Config{Rules: rules}), tap.Config{Now: clock()})
	out4, out6, back := memtest.Flow4(), memtest.Flow6(), memtest.Flow("192.0.2.2", "192.0.2.1")
	out4.TOS, out6.TOS, back.TOS = 26<<2|wire.ECNECT0, 48<<2|wire.ECNECT0, 26<<2|wire.ECNECT0
	send(t, a, memtest.Burst(t, memtest.Spec{Flow: out4, QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(3, 64)}),
		memtest.Burst(t, memtest.Spec{Flow: out6, QPN: 1, PSN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(2, 64)}))
	send(t, mb, memtest.Burst(t, memtest.Spec{Flow: back, QPN: 1, PSN: 7, Op: bth.RCSendMiddle, Lens: memtest.Equal(3, 64)}))
	recv(t, a, 3)
	if err := errors.Join(a.Close(), ci.Close(), co.Close()); err != nil {
		t.Fatal(err)
	}
	// PSN, DSCP and ECN of each frame.
	for file, want := range map[string]string{
		outside: "0 26 2, 1 26 3, 2 26 2, 1 48 3, 2 48 2, 7 26 2, 8 26 2, 9 26 2",
		inside:  "0 26 2, 1 26 2, 2 26 2, 1 48 2, 2 48 2, 7 26 2, 8 26 3, 9 26 2",
	} {
		var got []string
		for _, line := range tshark(t, file, "infiniband.bth.psn", "ip.dsfield.dscp", "ipv6.tclass.dscp", "ip.dsfield.ecn", "ipv6.tclass.ecn") {
			got = append(got, strings.Join(strings.FieldsFunc(line, func(r rune) bool { return r == '|' }), " "))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: tshark reads %s, want %s", filepath.Base(file), got, want)
		}
	}
}

// frameLink is a link that sees frames.
type frameLink struct {
	link.Link
	ds []wire.Datagram
}

func (l *frameLink) Recv(ds []wire.Datagram) (int, error) { return copy(ds, l.ds), nil }

// Headers that the link saw are in the file as they were.
func TestSeenHeaders(t *testing.T) {
	ma, mb := pair(t, mem.Config{})
	send(t, ma, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(2, 64)}))
	ds := recv(t, mb, 1)
	d := &ds[0]
	d.TTL, d.TOS = 9, 0xb9
	d.L2 = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0x60, 5, 8, 0}
	var file bytes.Buffer
	c := tap.New(&file)
	l := c.Wrap(&frameLink{mb, ds}, tap.Config{Now: clock()})
	recv(t, l, 1)
	if err := errors.Join(l.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	ps := frames(t, file.Bytes(), 0)
	if len(ps) != 2 {
		t.Fatalf("%d frames", len(ps))
	}
	for i, p := range ps {
		eth, vlan, ip := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q), p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if eth.SrcMAC.String() != "07:08:09:0a:0b:0c" || vlan.VLANIdentifier != 5 || vlan.Priority != 3 || ip.TTL != 9 || ip.TOS != 0xb9 || int(ip.Id) != i || ip.Flags != layers.IPv4DontFragment {
			t.Errorf("frame %d: %v", i, p)
		}
	}
}

// shortLink takes one segment of each Send.
type shortLink struct{ link.Link }

func (l shortLink) Send(bs []*wire.Burst) (int, error) { return 1, nil }

// What the link did not take is not in the file.
func TestShortSend(t *testing.T) {
	ma, _ := pair(t, mem.Config{})
	var file bytes.Buffer
	c := tap.New(&file)
	l := c.Wrap(shortLink{ma}, tap.Config{Now: clock()})
	b := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(2, 64)})
	if n, err := l.Send([]*wire.Burst{b, b}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := errors.Join(l.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(frames(t, file.Bytes(), 0)); n != 1 {
		t.Errorf("%d frames, want 1", n)
	}
}

// disk is a file that fills up.
type disk struct{ room int }

var errFull = errors.New("no space left")

func (d *disk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// A full disk does not disturb traffic; Close tells.
func TestWriteError(t *testing.T) {
	c := tap.New(&disk{room: 100_000})
	ma, mb := pair(t, mem.Config{})
	a := c.Wrap(ma, tap.Config{Now: clock()})
	b := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(15, 4096)})
	for range 10 {
		send(t, a, b)
		recv(t, mb, 1)
	}
	lost := c.Lost()
	if lost < 100 || lost > 140 { // of 150; two buffers of 64 KiB may have gone well
		t.Errorf("%d packets lost", lost)
	}
	for _, err := range []error{a.Close(), c.Close()} {
		if !errors.Is(err, errFull) || !errors.Is(err, tap.ErrIncomplete) || !strings.Contains(err.Error(), fmt.Sprintf("%d packets not written", lost)) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := ma.Recv(nil); !errors.Is(err, link.ErrClosed) {
		t.Error("the inner link was not closed")
	}
}

func TestCreate(t *testing.T) {
	if _, err := tap.Create(filepath.Join(t.TempDir(), "no", "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	file := filepath.Join(t.TempDir(), "empty.pcapng")
	c, err := tap.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(frames(t, data, 0)); n != 0 {
		t.Errorf("%d frames", n)
	}
	// A link outlives the capture.
	ma, mb := pair(t, mem.Config{})
	a := c.Wrap(ma, tap.Config{})
	send(t, a, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendOnly, Lens: []int{4}}))
	recv(t, mb, 1)
	if err := a.Close(); err != nil || c.Lost() != 1 {
		t.Errorf("%v, %d lost", err, c.Lost())
	}
}

func TestWrapAll(t *testing.T) {
	as, _, err := mem.Pair(mem.Config{Shards: 2}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	c := tap.New(&file)
	for i, l := range c.WrapAll(as, tap.Config{}) {
		if l.Info().Name != "mem" {
			t.Errorf("shard %d is %+v", i, l.Info())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(file.Bytes(), []byte("mem shard 1")) {
		t.Error("the second shard has no name in the file")
	}
}

// A capture that was left to its links ends with the last of them, and not
// before.
func TestCloseWithLinks(t *testing.T) {
	as, bs, err := mem.Pair(mem.Config{Shards: 2}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer bs[0].Close()
	path := filepath.Join(t.TempDir(), "x.pcapng")
	c, err := tap.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	ls := c.WrapAll(as, tap.Config{})
	c.CloseWithLinks()
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	b := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: []int{64}})
	if err := ls[0].Close(); err != nil {
		t.Fatal(err)
	}
	before := size()
	if n, err := ls[1].Send([]*wire.Burst{b}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := ls[1].Close(); err != nil {
		t.Fatal(err)
	}
	if size() == before || c.Lost() != 0 {
		t.Error("the capture was closed with its first link")
	}
	other, _, err := mem.Pair(mem.Config{}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	late := c.Wrap(other[0], tap.Config{})
	if _, err := late.Send([]*wire.Burst{b}); err != nil {
		t.Fatal(err)
	}
	if c.Lost() != 1 {
		t.Error("the capture is open after its last link")
	}
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
}

// Of links that own a capture one tells that it could not be written, also
// when all that was to be written had been buffered.
func TestWriteErrorOnce(t *testing.T) {
	c := tap.New(&disk{})
	as, _, err := mem.Pair(mem.Config{Shards: 2}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ls := c.WrapAll(as, tap.Config{})
	c.CloseWithLinks()
	first, last := ls[0].Close(), ls[1].Close()
	if first != nil || !errors.Is(last, errFull) || !errors.Is(last, tap.ErrIncomplete) || strings.Contains(last.Error(), " 0 packets") {
		t.Errorf("errors %v and %v", first, last)
	}
}

// A hidden identification is found wherever it is, with DF and without.
func TestSolvedIDs(t *testing.T) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:49443"), netip.MustParseAddrPort("192.0.2.2:4791")
	for _, df := range []bool{true, false} {
		for _, id := range []uint16{0, 1, 127, 128, 0x8000, 0xffff} {
			pkt := make([]byte, 76)
			p := bth.Packet{Opcode: bth.RCSendOnly, DestQP: 3}
			p.PutHeaders(pkt)
			crc := wire.ICRC(pkt, src, dst, id, df)
			pkt = append(pkt, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
			ds := []wire.Datagram{{Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), Payload: pkt}}
			ma, _ := pair(t, mem.Config{})
			var file bytes.Buffer
			c := tap.New(&file)
			l := c.Wrap(&frameLink{ma, ds}, tap.Config{Now: clock()})
			recv(t, l, 1)
			if err := errors.Join(l.Close(), c.Close()); err != nil {
				t.Fatal(err)
			}
			ip := frames(t, file.Bytes(), 0)[0].Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			if ip.Id != id || (ip.Flags == layers.IPv4DontFragment) != df {
				t.Errorf("ID %d DF %v shown as %d, %v", id, df, ip.Id, ip.Flags)
			}
			if got := comments(t, file.Bytes())[0]; got != fmt.Sprintf("ICRC ok; IPv4 ID %d solved for", id) {
				t.Errorf("comment %q", got)
			}
		}
	}
}
