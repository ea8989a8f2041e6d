package nic

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const ce = ecnCE

// cx4CNP is a CNP of a ConnectX-4 Lx, from Ethernet to ICRC: scapy's
// test/contrib/roce.uts, "RoCE CNP captured on ConnectX-4 Lx".
const cx4CNP = "e41d2dab2bc27cfe90643b320800" +
	"45c2003c718c4000401191610a0011010a001201" + "000012b700280000" +
	"8100ffff4000011800000000" + "00000000000000000000000000000000" + "82fd002a"

// frame is a packet as a NIC puts it on an Ethernet.
func (p *passing) frame(t testing.TB) []byte {
	t.Helper()
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}}
	f := p.flow
	if f.Src.Is4() {
		eth.EthernetType = layers.EthernetTypeIPv4
		ip = &layers.IPv4{
			Version: 4, TOS: p.tos, TTL: f.TTL, Id: p.id, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolUDP,
			SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice(),
		}
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, TrafficClass: p.tos, HopLimit: f.TTL, NextHeader: layers.IPProtocolUDP, SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice()}
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(f.SrcPort), DstPort: wire.Port}
	require.NoError(t, udp.SetNetworkLayerForChecksum(ip))
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload(p.octets)))
	return b.Bytes()
}

// icrcOf computes the ICRC of an IP packet as Annex A17.3.3 has it, step by step:
// eight octets of ones, what may change on the way as ones, and Ethernet's CRC.
func icrcOf(ip []byte) uint32 {
	b := append(bytes.Repeat([]byte{0xff}, 8), ip[:len(ip)-4]...)
	h := b[8:]
	udp := 40
	if h[0]>>4 == 4 {
		udp = 20
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		h[0] |= 0xf
		h[1], h[2], h[3], h[7] = 0xff, 0xff, 0xff, 0xff
	}
	h[udp+6], h[udp+7] = 0xff, 0xff
	h[udp+8+4] = 0xff
	return crc32.ChecksumIEEE(b)
}

// keepCNPs has a road keep the CNPs that pass.
func (r *road) keepCNPs() *[]passing {
	kept := new([]passing)
	r.look = func(p *passing) bool {
		if p.pkt.Opcode == bth.CNP {
			*kept = append(*kept, *p)
		}
		return true
	}
	return kept
}

// stranger makes a NIC with a queue pair whose peer the test plays, and has a marked
// WRITE come from that.
func stranger(t testing.TB, own, peer string, dest uint32) (r *road, cnps []passing) {
	r = newRoad(t)
	kept := r.keepCNPs()
	x := r.open(own, 1, nil)
	q := x.newQP(x.cq)
	ep, err := q.Endpoint(netip.MustParseAddr(peer))
	require.NoError(t, err)
	require.NoError(t, q.Connect(ep, verbs.Endpoint{QPN: dest, PSN: 7, GID: verbs.GIDOf(netip.MustParseAddr(peer))}, verbs.ConnectOptions{}))
	p := bth.Packet{
		Opcode: bth.RCWriteOnly, MigReq: true, AckReq: true, PKey: 0xffff, DestQP: bth.QPN(q.QPN()), PSN: bth.MakePSN(7),
		VA: x.mr.Addr(), RKey: x.mr.RKey(), DMALen: 8,
	}
	d := sealed(netip.MustParseAddr(peer), x.addr, 8, p.Info().HdrLen, func(h []byte) { p.PutHeaders(h) })
	d.TOS = ce
	r.ends[x.addr][0].in = append(r.ends[x.addr][0].in, d)
	r.settle()
	return r, *kept
}

// TestCNPIsConnectX: a CNP differs from a ConnectX's in what identifies the packet,
// and in nothing else.
func TestCNPIsConnectX(t *testing.T) {
	theirs, err := hex.DecodeString(cx4CNP)
	require.NoError(t, err)
	_, cnps := stranger(t, "10.0.17.1", "10.0.18.1", 0x118)
	require.Len(t, cnps, 1)
	p := &cnps[0]
	ours := p.frame(t)
	require.Len(t, ours, len(theirs))
	require.Equal(t, icrcOf(ours[14:]), binary.LittleEndian.Uint32(ours[len(ours)-4:]), "ICRC")
	require.Equal(t, icrcOf(theirs[14:]), binary.LittleEndian.Uint32(theirs[len(theirs)-4:]), "ICRC")

	require.Zero(t, p.id)                                   // a socket numbers its datagrams from 0; theirs is 29068
	require.Equal(t, p.flow.SrcPort, p.flow.SrcPort|0xc000) // the queue pair's own, so that ECMP treats both alike; theirs is 0
	for _, b := range [][]byte{ours, theirs} {
		copy(b[:12], make([]byte, 12))                 // MAC addresses
		binary.BigEndian.PutUint16(b[14+4:], 0)        // IPv4 identification,
		binary.BigEndian.PutUint16(b[14+10:], 0)       // and the header's checksum, which covers it
		binary.BigEndian.PutUint16(b[14+20:], 0)       // UDP source port
		binary.BigEndian.PutUint16(b[14+26:], 0)       // UDP checksum: the kernel fills it in, theirs is 0
		binary.LittleEndian.PutUint32(b[len(b)-4:], 0) // the ICRC covers identification and port
	}
	require.Equal(t, hex.EncodeToString(theirs), hex.EncodeToString(ours))

	// With their identification and port the ICRC is theirs too.
	theirs, _ = hex.DecodeString(cx4CNP)
	ours = p.frame(t)
	copy(ours[14+4:14+6], theirs[14+4:])
	copy(ours[14+20:14+22], theirs[14+20:])
	require.Equal(t, uint32(0x2a00fd82), icrcOf(ours[14:]))
}

// TestCNPOfConnectX: what a ConnectX sends is understood. B73.
func TestCNPOfConnectX(t *testing.T) {
	theirs, err := hex.DecodeString(cx4CNP)
	require.NoError(t, err)
	r := newRoad(t)
	x := r.open("10.0.18.1", 1, nil)
	q := x.newQP(x.cq)
	peer := netip.MustParseAddr("10.0.17.1")
	ep, err := q.Endpoint(peer)
	require.NoError(t, err)
	require.NoError(t, q.Connect(ep, verbs.Endpoint{QPN: 0x99, GID: verbs.GIDOf(peer)}, verbs.ConnectOptions{}))
	r.settle()
	arrive := func(b []byte) {
		var d wire.Datagram
		require.Zero(t, wire.ParseFrame(b, &d))
		in := &r.ends[x.addr][0].in
		*in = append(*in, d)
		r.settle()
	}
	arrive(theirs) // for a queue pair that there is not
	require.EqualValues(t, 1, counter(t, x, "rp_cnp_ignored"))
	require.EqualValues(t, 0, counter(t, x, "rp_cnp_handled"))
	binary.BigEndian.PutUint32(theirs[14+28+4:], 0x40000000|q.QPN())
	arrive(theirs)
	require.EqualValues(t, 1, counter(t, x, "rx_icrc_encapsulated"), "the ICRC was that for another number")
	binary.LittleEndian.PutUint32(theirs[len(theirs)-4:], icrcOf(theirs[14:]))
	arrive(theirs)
	require.EqualValues(t, 1, counter(t, x, "rp_cnp_ignored"))
	require.EqualValues(t, 1, counter(t, x, "rp_cnp_handled"))
	require.EqualValues(t, 1, stat(t, q, "rp_cnp_handled"))
	require.Positive(t, x.inside(q).rate(r.now))
}

// TestCNPByTshark: what tshark reads in CNPs over IPv4 and IPv6.
func TestCNPByTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is missing (apt-get install tshark)")
	}
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	require.NoError(t, w.WriteFileHeader(65536, layers.LinkTypeEthernet))
	add := func(f []byte) {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(f), Length: len(f)}, f))
	}
	for _, a := range [][2]string{{"10.0.17.1", "10.0.18.1"}, {"2001:db8::1", "2001:db8::2"}, {"fe80::1", "fe80::2"}} {
		_, cnps := stranger(t, a[0], a[1], 0x118)
		require.Len(t, cnps, 1, a)
		f := cnps[0].frame(t)
		require.Equal(t, icrcOf(f[14:]), binary.LittleEndian.Uint32(f[len(f)-4:]), "ICRC")
		add(f)
	}
	theirs, _ := hex.DecodeString(cx4CNP)
	add(theirs)
	name := filepath.Join(t.TempDir(), "cnp.pcap")
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
	args := []string{"-r", name, "-n", "-T", "fields", "-E", "separator=/s", "-E", "occurrence=f"}
	for _, f := range []string{
		"ip.dsfield.dscp", "ip.dsfield.ecn", "ipv6.tclass.dscp", "ipv6.tclass.ecn", "udp.dstport", "udp.length", "infiniband.bth.opcode", "infiniband.bth.se",
		"infiniband.bth.m", "infiniband.bth.padcnt", "infiniband.bth.tver", "infiniband.bth.p_key", "infiniband.bth.destqp", "infiniband.bth.a",
		"infiniband.bth.reserved7", "infiniband.bth.psn",
	} {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 4)
	norm := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("True", "1", "False", "0").Replace(s)), " ")
	}
	want := norm(lines[3])
	require.Contains(t, want, "48 2 4791 40 129 ")
	for _, l := range lines[:3] {
		require.Equal(t, want, norm(l))
	}
}

// marker marks the first of the data packets that pass in each interval, and keeps
// the CNPs.
type marker struct {
	cnps   []passing
	marked int
	mark   func(p *passing) bool
}

func (r *road) marks(mark func(p *passing) bool) *marker {
	m := &marker{mark: mark}
	r.look = func(p *passing) bool {
		if p.pkt.Opcode == bth.CNP {
			m.cnps = append(m.cnps, *p)
		} else if m.mark != nil && m.mark(p) {
			p.tos |= ce
			m.marked++
		}
		return true
	}
	return m
}

func isData(p *passing) bool { return p.pkt.Info().Has(bth.HasPayload) }

func nothing(*passing) bool { return false }

// fill posts requests as long as the send queue has room.
func (x *node) fill(q *verbs.QP, wr verbs.SendWR) {
	wr.Flags = 0
	for {
		if n, err := q.PostSend([]verbs.SendWR{wr}); n == 0 || err != nil {
			return
		}
	}
}

// cnpTimes are when CNPs left, in microseconds.
func (m *marker) times() (out []int64) {
	for i := range m.cnps {
		out = append(out, m.cnps[i].at/1000)
	}
	return out
}

// TestCNPSpacing: the first mark of a pacing key makes a CNP in the step that sees
// it, one within the gap none, and the first after the gap the next.
func TestCNPSpacing(t *testing.T) {
	for _, gap := range []int64{0, 1, 50, 1000} {
		r := newRoad(t)
		a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
		b.setCC(fmt.Sprint("np_min_time_between_cnps=", gap))
		qa, qb := r.pair(a, b, verbs.RC, verbs.ConnectOptions{})
		m := r.marks(isData)
		var marks []int64
		one := func() {
			post(t, qa, writeTo(a, b, 8))
			marks = append(marks, (r.now+r.delay)/1000)
			r.pass(2 * time.Microsecond)
		}
		// Just before the gap is over, when it is, and in the middle of the next.
		one()
		for range 3 {
			for _, d := range []int64{gap/2 - 2, gap - gap/2 - 3, 1, 1} {
				r.pass(time.Duration(max(0, d)) * time.Microsecond)
				one()
			}
		}
		var want []int64
		for _, at := range marks {
			if len(want) == 0 || at-want[len(want)-1] >= gap {
				want = append(want, at)
			}
		}
		require.Equal(t, want, m.times(), "gap of %d us, marks at %v", gap, marks)
		require.Greater(t, len(m.cnps), 2)
		r.pass(time.Second)
		for _, x := range []struct {
			t    *node
			q    *verbs.QP
			name string
			want int
		}{
			{b, qb, "np_ecn_marked_roce_packets", m.marked},
			{b, qb, "np_cnp_sent", len(m.cnps)},
			{a, qa, "rp_cnp_handled", len(m.cnps)},
			{a, qa, "np_cnp_sent", 0},
			{a, qa, "np_ecn_marked_roce_packets", 0},
			{b, qb, "rp_cnp_handled", 0},
			{a, qa, "rp_cnp_ignored", 0},
		} {
			require.EqualValues(t, x.want, stat(t, x.q, x.name), x.name)
			require.EqualValues(t, x.want, counter(t, x.t, x.name), x.name)
		}
		require.Zero(t, counter(t, b, "np_cnp_delay"), "virtual time stands still in a step")
	}
}

// TestCNPKeys: the gap is kept for each pacing key, whichever shard its queue pairs
// are on: two queue pairs to each of two peers, all marked for 100 gaps.
func TestCNPKeys(t *testing.T) {
	const gap = 50_000
	key := map[string]func(p *passing) string{
		cc.PacingQP:          func(p *passing) string { return fmt.Sprint(p.flow.Dst, p.pkt.DestQP) },
		cc.PacingDestination: func(p *passing) string { return p.flow.Dst.String() },
		cc.PacingPort:        func(*passing) string { return "" },
	}
	for pacing, want := range map[string]int{cc.PacingQP: 4, cc.PacingDestination: 2, cc.PacingPort: 1} {
		r := newRoad(t)
		np := r.open("192.0.2.1", 2, nil)
		np.setCC("np_min_time_between_cnps=50,np_cnp_pacing=" + pacing)
		var rps []*node
		var sends []func()
		for i := range 2 {
			x := r.open(fmt.Sprint("192.0.2.", i+2), 1, nil)
			x.setCC("none") // so that packets go on coming
			rps = append(rps, x)
			for shard := range 2 {
				q, _ := r.join(x, np, x.queuePair(verbs.UC, 0), np.queuePair(verbs.UC, shard), verbs.ConnectOptions{})
				wr := writeTo(x, np, 8)
				wr.Flags = 0
				sends = append(sends, func() { post(t, q, wr) })
			}
		}
		m := r.marks(isData)
		r.tick = func() int64 { return 5000 }
		r.each = func() {
			for _, f := range sends {
				f()
			}
		}
		r.run(r.now+100*gap, nil)
		r.each = nil
		r.pass(10 * time.Microsecond)
		last, n := map[string]int64{}, map[string]int{}
		for i := range m.cnps {
			p := &m.cnps[i]
			k := key[pacing](p)
			if at, seen := last[k]; seen {
				require.Equal(t, int64(gap), p.at-at, "%s: %s", pacing, k)
			}
			last[k] = p.at
			n[k]++
		}
		require.Len(t, n, want, pacing)
		for k, v := range n {
			require.InDelta(t, 100, v, 1, "%s: %s", pacing, k)
		}
		require.EqualValues(t, len(m.cnps), counter(t, np, "np_cnp_sent"))
		require.EqualValues(t, m.marked, counter(t, np, "np_ecn_marked_roce_packets"))
		require.EqualValues(t, len(m.cnps), counter(t, rps[0], "rp_cnp_ignored")+counter(t, rps[1], "rp_cnp_ignored"), "they go by none")
	}
}

// TestCNPForgetsDestinations: more destinations than are remembered make no more
// memory, and no fewer CNPs.
func TestCNPForgetsDestinations(t *testing.T) {
	x := notifications{dest: map[netip.Addr]int64{}}
	a := netip.MustParseAddr("2001:db8::")
	for i := range 3 * maxDests {
		require.True(t, x.pass(int64(i), 1000, a))
		require.False(t, x.pass(int64(i)+999, 1000, a))
		require.LessOrEqual(t, len(x.dest), maxDests)
		a = a.Next()
	}
}

// TestCNPFor: what is marked makes a CNP, and what makes none.
func TestCNPFor(t *testing.T) {
	type ends struct {
		r      *road
		a, b   *node
		qa, qb *verbs.QP
	}
	send := func(e *ends) {
		recv(t, e.qb, verbs.RecvWR{SGL: []verbs.SGE{e.b.mr.SGE(0, 5000)}})
		post(t, e.qa, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{e.a.mr.SGE(0, 5000)}})
	}
	write := func(e *ends) { post(t, e.qa, writeTo(e.a, e.b, 5000)) }
	read := func(e *ends) {
		wr := writeTo(e.a, e.b, 5000)
		wr.Opcode = verbs.WRRead
		post(t, e.qa, wr)
	}
	atomic := func(e *ends) {
		wr := writeTo(e.a, e.b, 8)
		wr.Opcode, wr.CompareAdd = verbs.WRFetchAdd, 1
		post(t, e.qa, wr)
	}
	op := func(ops ...bth.Op) func(*passing) bool {
		return func(p *passing) bool {
			for _, o := range ops {
				if p.pkt.Info().Op == o {
					return true
				}
			}
			return false
		}
	}
	cnpsByA := "192.0.2.1"
	cnpsByB := "192.0.2.2"
	for _, c := range []struct {
		name   string
		typ    verbs.QPType
		do     func(*ends)
		mark   func(*passing) bool
		marks  int
		from   string // who notifies, "" nobody
		change string // of the congestion control of both
	}{
		{"SEND", verbs.RC, send, op(bth.OpSend), 2, cnpsByB, ""},
		{"WRITE", verbs.RC, write, op(bth.OpWrite), 2, cnpsByB, ""},
		{"UC SEND", verbs.UC, send, op(bth.OpSend), 2, cnpsByB, ""},
		{"UC WRITE", verbs.UC, write, op(bth.OpWrite), 2, cnpsByB, ""},
		{"READ request", verbs.RC, read, op(bth.OpReadReq), 1, cnpsByB, ""},
		{"READ response", verbs.RC, read, op(bth.OpReadResp), 2, cnpsByA, ""}, // B91
		{"atomic", verbs.RC, atomic, op(bth.OpFetchAdd), 1, cnpsByB, ""},
		{"atomic acknowledgement", verbs.RC, atomic, op(bth.OpAtomicAck), 1, cnpsByA, ""},
		{"ACK", verbs.RC, write, op(bth.OpAck), 1, cnpsByA, ""},
		{"nothing", verbs.RC, write, nothing, 0, "", ""},
		{"notification off", verbs.RC, write, op(bth.OpWrite), 2, "", "np_enable=0"},
		{"reaction off", verbs.RC, write, op(bth.OpWrite), 2, cnpsByB, "rp_enable=0"},
		{"algorithm none", verbs.RC, write, op(bth.OpWrite), 2, cnpsByB, "none"},
		{"algorithm window", verbs.RC, write, op(bth.OpWrite), 2, cnpsByB, "window"},
		{"algorithm swift", verbs.RC, write, op(bth.OpWrite), 2, cnpsByB, "swift"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoad(t)
			e := &ends{r: r, a: r.open("192.0.2.1", 1, nil), b: r.open("192.0.2.2", 1, nil)}
			if c.change != "" {
				e.a.setCC(c.change)
				e.b.setCC(c.change)
			}
			e.qa, e.qb = r.pair(e.a, e.b, c.typ, verbs.ConnectOptions{})
			for _, x := range []*node{e.a, e.b} {
				x.setCC("np_min_time_between_cnps=1000")
			}
			m := r.marks(c.mark)
			c.do(e)
			r.pass(100 * time.Microsecond)
			require.Equal(t, c.marks, m.marked)
			require.EqualValues(t, c.marks, counter(t, e.a, "np_ecn_marked_roce_packets")+counter(t, e.b, "np_ecn_marked_roce_packets"))
			if c.from == "" {
				require.Empty(t, m.cnps)
				return
			}
			require.Len(t, m.cnps, 1)
			p := &m.cnps[0]
			require.Equal(t, c.from, p.flow.Src.String())
			np, rp, to := e.b, e.a, e.qa
			if c.from == cnpsByA {
				np, rp, to = e.a, e.b, e.qb
			}
			require.Equal(t, to.QPN(), uint32(p.pkt.DestQP))
			require.EqualValues(t, 48<<2|ect0, p.tos)
			require.EqualValues(t, 6, p.flow.Priority)
			require.True(t, p.pkt.BECN)
			require.EqualValues(t, 1, counter(t, np, "np_cnp_sent"))
			handled, ignored := 1, 0
			if c.change != "" {
				handled, ignored = 0, 1
			}
			require.EqualValues(t, handled, counter(t, rp, "rp_cnp_handled"))
			require.EqualValues(t, ignored, counter(t, rp, "rp_cnp_ignored"))
			require.EqualValues(t, ignored, stat(t, to, "rp_cnp_ignored"))
		})
	}
}

// TestCNPForDatagrams: a marked datagram is counted, and nobody is notified.
func TestCNPForDatagrams(t *testing.T) {
	r := newRoad(t)
	a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
	qa, qb := a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
	m := r.marks(isData)
	recv(t, qb, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 4096)}})
	post(t, qa, a.to(1, a.ah(b.addr), qb.QPN(), 100))
	r.pass(time.Millisecond)
	require.Equal(t, 1, m.marked)
	require.EqualValues(t, 1, stat(t, qb, "np_ecn_marked_roce_packets"))
	require.Empty(t, m.cnps)
}

// TestCNPOnlyForWhatIsTaken: a packet that no queue pair admits is no reason for a
// CNP; one that has come before is.
func TestCNPOnlyForWhatIsTaken(t *testing.T) {
	b := newBench(t, 1, func(c *Config) { c.CC.NPMinTimeBetweenCNPs = 0 }).connect()
	marked := func(d wire.Datagram) (cnps int) {
		d.TOS = ce
		b.links[0].arrive(d)
		b.step()
		for _, p := range b.links[0].took() {
			if p.Opcode == bth.CNP {
				cnps++
			}
		}
		return cnps
	}
	seen := func() uint64 { return counter(t, b.node, "np_ecn_marked_roce_packets") }
	write := b.request()
	write.Opcode, write.VA, write.RKey = bth.RCWriteOnly, b.mr.Addr(), b.mr.RKey()
	bad := func(f func(*bth.Packet)) wire.Datagram {
		p := write
		f(&p)
		return datagram(p, 0)
	}
	damaged := datagram(write, 0)
	damaged.Payload[len(damaged.Payload)-1] ^= 1
	for name, d := range map[string]wire.Datagram{
		"address": b.from(netip.MustParseAddr("192.0.2.77"), here, write, 0), "ICRC": damaged,
		"P_Key": bad(func(p *bth.Packet) { p.PKey = 0x8001 }), "QPN": bad(func(p *bth.Packet) { p.DestQP++ }),
		"class": bad(func(p *bth.Packet) { p.Opcode = mustOpcode("UC_WRITE_ONLY") }),
	} {
		require.Zero(t, marked(d), name)
		require.Zero(t, seen(), name)
	}
	require.Equal(t, 1, marked(datagram(write, 0)))
	require.Equal(t, 1, marked(datagram(write, 0)), "a duplicate met congestion too")
	require.EqualValues(t, 1, counter(t, b.node, "duplicate_request"))
	write.PSN = write.PSN.Add(1)
	require.Equal(t, 1, marked(datagram(write, 0)))
	require.EqualValues(t, 3, seen())
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	b.step()
	require.Zero(t, marked(datagram(write, 0)), "in ERR")
	require.EqualValues(t, 3, seen())
}

// TestCNPNoRoom: a CNP that the link has no room for follows when it has, once, and
// is not in the way of others; the gap counts from when it left, and how late it was
// is counted.
func TestCNPNoRoom(t *testing.T) {
	b := newBench(t, 1, func(c *Config) { c.CC.NPMinTimeBetweenCNPs = 50 }).connect()
	l := b.links[0]
	write := b.request()
	write.Opcode, write.VA, write.RKey, write.AckReq = bth.RCWriteOnly, b.mr.Addr(), b.mr.RKey(), false
	mark := func() {
		d := datagram(write, 0)
		d.TOS = ce
		write.PSN = write.PSN.Add(1)
		l.arrive(d)
	}
	l.room = 0
	mark()
	require.Greater(t, b.nic.Step(0, b.now), b.now, "spins while the link is full")
	b.now += 60_000
	mark() // the first is waiting: it says the same
	b.step()
	require.Empty(t, l.took())
	b.now += 40_000
	l.room = -1
	b.step()
	out := l.took()
	require.Len(t, out, 1)
	require.Equal(t, bth.CNP, out[0].Opcode)
	require.EqualValues(t, 1, counter(t, b.node, "np_cnp_sent"))
	require.EqualValues(t, 100_000, counter(t, b.node, "np_cnp_delay"))
	b.now += 49_999
	mark()
	b.step()
	require.Empty(t, l.took(), "less than the gap after the one before")
	b.now++
	mark()
	b.step()
	require.Len(t, l.took(), 1)
	require.EqualValues(t, 2, counter(t, b.node, "np_cnp_sent"))
	require.EqualValues(t, 4, counter(t, b.node, "np_ecn_marked_roce_packets"))
}

// TestCNPOutlived: a queue pair that is destroyed or reset while its CNP waits sends
// none, to nobody.
func TestCNPOutlived(t *testing.T) {
	for _, destroy := range []bool{true, false} {
		b := newBench(t, 1, func(c *Config) { c.CC.NPMinTimeBetweenCNPs = 50 }).connect()
		l := b.links[0]
		write := b.request()
		write.Opcode, write.VA, write.RKey, write.AckReq = bth.RCWriteOnly, b.mr.Addr(), b.mr.RKey(), false
		d := datagram(write, 0)
		d.TOS = ce
		l.room = 0
		l.arrive(d)
		b.step()
		if destroy {
			require.NoError(t, b.qp.Destroy())
		} else {
			require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		}
		l.room = -1
		b.step()
		require.Empty(t, l.took())
		require.Zero(t, counter(t, b.node, "np_cnp_sent"))
		if destroy {
			continue
		}
		b.connect() // and is as new
		l.arrive(d)
		b.step()
		out := l.took()
		require.Len(t, out, 1)
		require.EqualValues(t, peerQPN, out[0].DestQP)
	}
}

// TestCNPToOneself: marks and CNPs of a connection within the device; a traffic class
// of 3 marks its packets from the beginning.
func TestCNPToOneself(t *testing.T) {
	for _, shards := range []int{1, 2} {
		r := newRoad(t)
		x := r.open("192.0.2.1", shards, nil)
		x.setCC("np_min_time_between_cnps=50")
		qa, qb := r.join(x, x, x.queuePair(verbs.RC, 0), x.queuePair(verbs.RC, shards-1), verbs.ConnectOptions{TrafficClass: ce})
		m := r.marks(nothing)
		post(t, qa, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{x.mr.SGE(0, 5000)}, RemoteAddr: x.mr.Addr() + 8192, RKey: x.mr.RKey()})
		r.pass(10 * time.Microsecond)
		require.Empty(t, m.cnps, "none leaves the device")
		require.EqualValues(t, 2, stat(t, qb, "np_ecn_marked_roce_packets"))
		require.EqualValues(t, 1, stat(t, qb, "np_cnp_sent"))
		require.EqualValues(t, 1, stat(t, qa, "rp_cnp_handled"))
		require.EqualValues(t, 1, stat(t, qa, "np_ecn_marked_roce_packets"), "the ACK was marked too")
		require.EqualValues(t, 1, stat(t, qb, "rp_cnp_handled"))
	}
}

// TestCNPOfStrays: the mark goes along when a packet arrives at another shard than
// its queue pair's.
func TestCNPOfStrays(t *testing.T) {
	r := newRoad(t)
	r.astray = true
	a, b := r.open("192.0.2.1", 2, nil), r.open("192.0.2.2", 2, nil)
	m := r.marks(isData)
	qa, qb := r.join(a, b, a.queuePair(verbs.RC, 1), b.queuePair(verbs.RC, 1), verbs.ConnectOptions{})
	post(t, qa, writeTo(a, b, 8))
	r.pass(time.Millisecond)
	require.Positive(t, counter(t, b, trace.DropStray.String()))
	require.EqualValues(t, 1, stat(t, qb, "np_ecn_marked_roce_packets"))
	require.Len(t, m.cnps, 1)
	require.EqualValues(t, 1, stat(t, qa, "rp_cnp_handled"))
}

func mustOpcode(name string) bth.Opcode {
	op, ok := bth.LookupOpcode(name)
	if !ok {
		panic(name)
	}
	return op
}
