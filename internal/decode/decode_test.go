package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden holds the text and JSON of the captures in testdata, which were
// made with two kernels' Soft-RoCE, to the files beside them. In sender-burst,
// tcpdump on lo saw a burst of ours before the kernel split it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pcap")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, name := range files {
		for ext, o := range map[string]Options{".txt": {}, ".json": {JSON: true}} {
			r, err := pcap.Open(name)
			require.NoError(t, err)
			var out bytes.Buffer
			bad, err := Run(&out, r, o)
			require.NoError(t, err)
			require.Zero(t, bad)
			require.NoError(t, r.Close())
			golden := strings.TrimSuffix(name, ".pcap") + ext
			if *update {
				require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String(), golden)
		}
	}
}

// A packet of each family, built by hand: RC WRITE_ONLY_IMM of 5 octets.
var (
	src4, dst4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	src6, dst6 = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
)

// transport returns BTH to ICRC of p with n octets of payload; the ICRC is 0.
func transport(p bth.Packet, n int) []byte {
	p.Pad = uint8(-n & 3)
	b := make([]byte, p.Info().HdrLen+n+int(p.Pad)+bth.ICRCLen)
	p.PutHeaders(b)
	for i := range n {
		b[p.Info().HdrLen+i] = byte(i + 1)
	}
	return b
}

// ipPacket wraps pkt in UDP and IP and seals it, if it is long enough.
func ipPacket(pkt []byte, src, dst netip.Addr) []byte {
	if len(pkt) >= bth.BTHLen+bth.ICRCLen {
		c := wire.ICRC(pkt[:len(pkt)-4], netip.AddrPortFrom(src, 0xc000), netip.AddrPortFrom(dst, wire.Port), 77, true)
		binary.LittleEndian.PutUint32(pkt[len(pkt)-4:], c)
	}
	var b []byte
	n := wire.UDPLen + len(pkt)
	if src.Is4() {
		b = make([]byte, wire.IPv4Len+wire.UDPLen)
		h := wire.IPv4(b)
		b[0] = 0x45
		h.SetTOS(3)
		h.SetTotalLen(wire.IPv4Len + n)
		h.SetID(77)
		h.SetFlagsOffset(wire.FlagDF)
		h.SetTTL(9)
		h.SetProtocol(wire.ProtoUDP)
		h.SetSrc(src.As4())
		h.SetDst(dst.As4())
		h.SetChecksum()
	} else {
		b = make([]byte, wire.IPv6Len+wire.UDPLen)
		h := wire.IPv6(b)
		h.SetClassFlow(3, 0x12345)
		h.SetPayloadLen(n)
		h.SetNextHeader(wire.ProtoUDP)
		h.SetHopLimit(9)
		h.SetSrc(src.As16())
		h.SetDst(dst.As16())
	}
	u := wire.UDP(b[len(b)-wire.UDPLen:])
	u.SetSrcPort(0xc000)
	u.SetDstPort(wire.Port)
	u.SetLength(n)
	return append(b, pkt...)
}

func frame(l pcap.Link, parts ...[]byte) pcap.Frame {
	b := bytes.Join(parts, nil)
	return pcap.Frame{Number: 1, Link: l, Data: b, Len: len(b)}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

var writeImm = bth.Packet{
	Opcode: bth.RCWriteOnlyImm, SE: true, AckReq: true, MigReq: true, PKey: 0x7fff, DestQP: 0xabcdef, PSN: bth.MakePSN(0xfffffe),
	VA: 0xfedcba9876543210, RKey: 0xdeadbeef, DMALen: 5, Imm: 0x01020304,
}

// The same packet behind every link header decodes to the same.
func TestLinks(t *testing.T) {
	ip4, ip6 := ipPacket(transport(writeImm, 5), src4, dst4), ipPacket(transport(writeImm, 5), src6, dst6)
	macs := unhex("020000000002 020000000001")
	for name, f := range map[string]pcap.Frame{
		"ethernet":  frame(pcap.Ethernet, macs, unhex("0800"), ip4),
		"ethernet6": frame(pcap.Ethernet, macs, unhex("86dd"), ip6),
		"padded":    frame(pcap.Ethernet, macs, unhex("0800"), ip4, make([]byte, 17)),
		"vlan":      frame(pcap.Ethernet, macs, unhex("8100 6123 0800"), ip4),
		"qinq":      frame(pcap.Ethernet, macs, unhex("88a8 1001 8100 6123 86dd"), ip6),
		"raw":       frame(pcap.Raw, ip4),
		"ipv6":      frame(pcap.IPv6, ip6),
		"null":      frame(pcap.Null, unhex("02000000"), ip4),
		"loop":      frame(pcap.Loop, unhex("0000001e"), ip6),
		"sll":       frame(pcap.SLL, unhex("0000 0001 0006 020000000001 0000 0800"), ip4),
		"sll2":      frame(pcap.SLL2, unhex("86dd 0000 00000003 0001 00 06 0200000000010000"), ip6),
		"erf eth":   frame(pcap.ERF, unhex("0000000000000000 82 04 0000 0000 0000 0000000000000000 0000"), macs, unhex("0800"), ip4),
	} {
		t.Run(name, func(t *testing.T) {
			p := Decode(f)
			require.Empty(t, p.Reason, p.Why)
			require.Empty(t, p.Notes)
			require.Equal(t, RoCEv2, p.Protocol)
			require.Equal(t, "ok", p.ICRC)
			require.Equal(t, "RC_WRITE_ONLY_IMM", p.Opcode)
			require.Equal(t, uint32(0xabcdef), *p.DestQP)
			require.Equal(t, uint32(0xfffffe), *p.PSN)
			require.Equal(t, []byte{1, 2, 3, 4, 5}, p.Payload)
			require.Equal(t, 5, *p.PayloadLen)
			require.Equal(t, &BTH{
				Opcode: 0x0b, SE: true, MigReq: true, Pad: 3, PKey: 0x7fff, DestQP: 0xabcdef, AckReq: true, PSN: 0xfffffe,
			}, p.BTH)
			require.Equal(t, &RETH{VA: 0xfedcba9876543210, RKey: 0xdeadbeef, DMALen: 5}, p.RETH)
			require.Equal(t, &ImmDt{Imm: 0x01020304}, p.ImmDt)
			require.Equal(t, &UDP{SrcPort: 0xc000, DstPort: wire.Port, Len: len(transport(writeImm, 5)) + 8}, p.UDP)
			require.Equal(t, uint8(3), p.IP.ECN)
			require.Equal(t, uint8(9), p.IP.TTL)
			switch name {
			case "vlan":
				require.Equal(t, []VLAN{{TPID: 0x8100, ID: 0x123, PCP: 3}}, p.VLAN)
			case "qinq":
				require.Equal(t, []VLAN{{TPID: 0x88a8, ID: 1, DEI: true}, {TPID: 0x8100, ID: 0x123, PCP: 3}}, p.VLAN)
			}
			agreeWithWire(t, f, p)
		})
	}
}

// Every opcode of the table decodes with its headers, and tshark has no say.
func TestEveryOpcode(t *testing.T) {
	full := bth.Packet{
		PKey: 0xffff, DestQP: 2, PSN: bth.MakePSN(3), VA: 4, RKey: 5, DMALen: 6, SwapAdd: 7, Compare: 8, Syndrome: 0x60, MSN: 9,
		Orig: 10, Imm: 11, Inv: 12, QKey: 13, SrcQP: 14, XRCSRQ: 15, EECtx: 16, FlushPlacement: 1, FlushSelectivity: 2,
	}
	n := 0
	for o := range 256 {
		full.Opcode = bth.Opcode(o)
		info := full.Info()
		if !info.Valid() {
			continue
		}
		n++
		p := Decode(frame(pcap.Raw, ipPacket(transport(full, 0), src4, dst4)))
		require.Empty(t, p.Reason, info.Name)
		require.Equal(t, info.Name, p.Opcode)
		for _, c := range []struct {
			ext  bth.Ext
			want any
			got  any
		}{
			{bth.ExtRDETH, &RDETH{16}, p.RDETH},
			{bth.ExtXRCETH, &XRCETH{15}, p.XRCETH},
			{bth.ExtDETH, &DETH{13, 14}, p.DETH},
			{bth.ExtFETH, &FETH{1, 2}, p.FETH},
			{bth.ExtRETH, &RETH{4, 5, 6}, p.RETH},
			{bth.ExtAtomicETH, &AtomicETH{4, 5, 7, 8}, p.AtomicETH},
			{bth.ExtAETH, &AETH{0x60, "NAK sequence error", 9}, p.AETH},
			{bth.ExtAtomicAckETH, &AtomicAckETH{10}, p.AtomicAckETH},
			{bth.ExtImmDt, &ImmDt{11}, p.ImmDt},
			{bth.ExtIETH, &IETH{12}, p.IETH},
		} {
			if info.Ext&c.ext != 0 {
				require.Equal(t, c.want, c.got, info.Name)
			} else {
				require.Nil(t, c.got, info.Name)
			}
		}
		require.Contains(t, p.Line(time.Time{}), info.Name)
	}
	require.Equal(t, 25+12+22+2+23+1, n)
}

// What is wrong is said, and decoding goes as far as it can.
func TestBadFrames(t *testing.T) {
	good := func() []byte { return ipPacket(transport(writeImm, 8), src4, dst4) }
	edit := func(f func(b []byte)) []byte { b := good(); f(b); return b }
	fix := func(f func(h wire.IPv4)) []byte {
		return edit(func(b []byte) { f(wire.IPv4(b)); wire.IPv4(b).SetChecksum() })
	}
	for name, c := range map[string]struct {
		frame  pcap.Frame
		proto  string
		reason trace.Reason
		why    string
		bth    bool // decoded as far as the BTH
	}{
		"arp":        {frame(pcap.Ethernet, make([]byte, 12), unhex("0806"), make([]byte, 28)), Other, trace.DropNotIP, "ARP", false},
		"ethertype":  {frame(pcap.Ethernet, make([]byte, 12), unhex("88cc"), make([]byte, 28)), Other, trace.DropNotIP, "0x88cc", false},
		"runt":       {frame(pcap.Ethernet, make([]byte, 13)), Other, trace.DropShort, "", false},
		"empty":      {frame(pcap.Raw), Other, trace.DropShort, "", false},
		"ip version": {frame(pcap.Raw, unhex("75")), Other, trace.DropNotIP, "IP version 7", false},
		"link type":  {frame(pcap.Link(105), good()), Other, trace.DropNotIP, "link type 105", false},
		"tcp":        {frame(pcap.Raw, fix(func(h wire.IPv4) { h.SetProtocol(6) })), Other, trace.DropNotRoCE, "TCP", false},
		"fragment":   {frame(pcap.Raw, fix(func(h wire.IPv4) { h.SetFlagsOffset(0x2000) })), Other, trace.DropFragment, "", false},
		"options":    {frame(pcap.Raw, edit(func(b []byte) { b[0] = 0x46 })), Other, trace.DropNotIP, "24 octets", false},
		"ip length":  {frame(pcap.Raw, fix(func(h wire.IPv4) { h.SetTotalLen(500) })), Other, trace.DropShort, "500", false},
		"port":       {frame(pcap.Raw, edit(func(b []byte) { wire.UDP(b[20:]).SetDstPort(53) })), Other, trace.DropNotRoCE, "UDP to port 53", false},
		"udp length": {frame(pcap.Raw, edit(func(b []byte) { wire.UDP(b[20:]).SetLength(9) })), RoCEv2, trace.DropUDPLen, "9", false},
		"checksum":   {frame(pcap.Raw, edit(func(b []byte) { b[10] ^= 1 })), RoCEv2, trace.DropIPChecksum, "is right", true},
		"icrc":       {frame(pcap.Raw, edit(func(b []byte) { b[len(b)-6] ^= 1 })), RoCEv2, trace.DropICRC, "", true},
		"opcode":     {frame(pcap.Raw, edit(func(b []byte) { b[28] = 0xff })), RoCEv2, trace.DropOpcode, "", true},
		"tver":       {frame(pcap.Raw, edit(func(b []byte) { b[29] |= 1 })), RoCEv2, trace.DropTVer, "", true},
		"short":      {frame(pcap.Raw, ipPacket(transport(writeImm, 0)[:20], src4, dst4)), RoCEv2, trace.DropShort, "", true},
		"very short": {frame(pcap.Raw, ipPacket(make([]byte, 5), src4, dst4)), RoCEv2, trace.DropShort, "", false},
		"lrh length": {frame(pcap.InfiniBand, unhex("0002 0001 07ff 0002"), make([]byte, 30)), InfiniBand, trace.DropShort, "8188", false},
		"erf type":   {frame(pcap.ERF, unhex("0000000000000000 05 04 0000 0000 0000")), Other, trace.DropNotIP, "type 5", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decode(c.frame)
			require.Equal(t, c.reason.String(), p.Reason)
			require.Equal(t, c.proto, p.Protocol)
			require.Contains(t, p.Why, c.why)
			require.Contains(t, p.Why, c.reason.Explain())
			require.Equal(t, c.bth, p.BTH != nil)
			require.Equal(t, c.proto != Other, p.Bad())
			require.Contains(t, p.Line(time.Time{}), p.Why)
			agreeWithWire(t, c.frame, p)
		})
	}
}

// A capture that cuts frames short gives headers and no ICRC verdict.
func TestSnapLength(t *testing.T) {
	whole := ipPacket(transport(writeImm, 100), src4, dst4)
	for n := 20 + 8 + 12; n < len(whole); n++ {
		f := frame(pcap.Raw, whole[:n])
		f.Len = len(whole)
		p := Decode(f)
		require.Empty(t, p.Reason)
		require.Empty(t, p.ICRC)
		require.Equal(t, n, p.Captured)
		require.Equal(t, "RC_WRITE_ONLY_IMM", p.Opcode)
		require.Equal(t, 100, *p.PayloadLen)
		headers := 20 + 8 + writeImm.Info().HdrLen
		require.Equal(t, n >= headers, p.RETH != nil)
		require.Len(t, p.Payload, min(100, max(0, n-headers)))
	}
}

func TestUDPChecksum(t *testing.T) {
	for _, a := range [][2]netip.Addr{{src4, dst4}, {src6, dst6}} {
		b := ipPacket(transport(writeImm, 7), a[0], a[1])
		off := len(b) - len(transport(writeImm, 7)) - wire.UDPLen
		u := wire.UDP(b[off:])
		notes := func(sum uint16) int { u.SetChecksum(sum); return len(Decode(frame(pcap.Raw, b)).Notes) }
		require.Zero(t, notes(0))
		var right []int
		for sum := 1; sum <= 0xffff; sum++ {
			u.SetChecksum(uint16(sum))
			if udpChecksumOK(b[:off], b[off:]) {
				right = append(right, sum)
			}
		}
		require.Len(t, right, 1)
		require.Zero(t, notes(uint16(right[0])))
		require.Equal(t, 1, notes(uint16(right[0]^1)))
	}
	// The checksum that scapy's test suite prints for its UC packet.
	scapy := unhex("45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3")
	p := Decode(frame(pcap.Raw, scapy))
	require.Equal(t, uint16(0xaca2), p.UDP.Checksum)
	require.Empty(t, p.Notes)
	require.Equal(t, "ok", p.ICRC)
}

// RoCE v1: the GRH of the packet takes the place of IP and UDP. There is no
// recorded whole frame at hand; the ICRC here is worked out from the rule.
func TestRoCEv1(t *testing.T) {
	pkt := transport(writeImm, 8)
	grh := unhex("60200000 0000 1b 40")
	s, d := src6.As16(), dst6.As16()
	grh = append(append(grh, s[:]...), d[:]...)
	binary.BigEndian.PutUint16(grh[4:], uint16(len(pkt)))
	masked := append(bytes.Repeat([]byte{0xff}, 8), grh...)
	copy(masked[8:], unhex("6fffffff"))
	masked[8+7] = 0xff
	body := append([]byte(nil), pkt[:len(pkt)-4]...)
	body[4] = 0xff
	binary.LittleEndian.PutUint32(pkt[len(pkt)-4:], crc32.ChecksumIEEE(append(masked, body...)))
	f := frame(pcap.Ethernet, make([]byte, 12), unhex("8915"), grh, pkt, make([]byte, 3))
	p := Decode(f)
	require.Equal(t, RoCEv1, p.Protocol)
	require.Equal(t, "ok", p.ICRC)
	require.Equal(t, "fd00::1", p.GRH.SGID)
	require.Equal(t, "fd00::2", p.Dst)
	require.Equal(t, uint8(2), p.GRH.TrafficClass)
	require.Equal(t, 8, *p.PayloadLen)
	require.Contains(t, p.Line(time.Time{}), "RoCEv1")
	f.Data[14+40+5] ^= 1
	require.Equal(t, "bad", Decode(f).ICRC)
}

// The capture's comment ends the line, and does nothing else to a terminal.
func TestComment(t *testing.T) {
	f := frame(pcap.Raw, ipPacket(transport(bth.Packet{Opcode: bth.RCSendOnly}, 4), src4, dst4))
	f.Comment = "ICRC ok;\nfault rule: \x1b[2Jdrop"
	p := Decode(f)
	require.True(t, strings.HasSuffix(p.Line(time.Time{}), "  icrc ok  # ICRC ok; fault rule:  [2Jdrop"), p.Line(time.Time{}))
	b, err := json.Marshal(p)
	require.NoError(t, err)
	require.Contains(t, string(b), `"comment":"ICRC ok;\nfault rule: \u001b[2Jdrop"`)
}

// A line of JSON has what the tool promises.
func TestJSON(t *testing.T) {
	f := frame(pcap.Raw, ipPacket(transport(writeImm, 5), src4, dst4))
	f.Time = time.Unix(1700000000, 5000).UTC()
	out, err := json.Marshal(Decode(f))
	require.NoError(t, err)
	require.Contains(t, string(out), `"va":18364758544493064720,`) // exactly: JSONEq compares floats
	require.JSONEq(t, `{"frame":1,"time":"2023-11-14T22:13:20.000005Z","len":72,"protocol":"rocev2","src":"192.0.2.1","dst":"192.0.2.2",
		"opcode":"RC_WRITE_ONLY_IMM","dest_qp":11259375,"psn":16777214,"payload_len":5,"icrc":"ok",
		"ip":{"version":4,"src":"192.0.2.1","dst":"192.0.2.2","dscp":0,"ecn":3,"ttl":9,"protocol":17,"len":72,"id":77,"df":true,"checksum":`+
		jsonChecksum(f.Data)+`},
		"udp":{"src_port":49152,"dst_port":4791,"len":52,"checksum":0},
		"bth":{"opcode":11,"se":true,"mig_req":true,"pad":3,"tver":0,"pkey":32767,"fecn":false,"becn":false,"resv6":0,
			"dest_qp":11259375,"ack_req":true,"resv7":0,"psn":16777214},
		"reth":{"va":18364758544493064720,"rkey":3735928559,"dma_len":5},"immdt":{"imm":16909060}}`, string(out))
}

func jsonChecksum(ip []byte) string {
	b, _ := json.Marshal(wire.IPv4(ip).Checksum())
	return string(b)
}

// FuzzDecode: no octets, behind no link header, make Decode or Line panic,
// and the verdict is that of the data path.
func FuzzDecode(f *testing.F) {
	f.Add(uint16(pcap.Ethernet), append(make([]byte, 12), append(unhex("0800"), ipPacket(transport(writeImm, 5), src4, dst4)...)...))
	f.Add(uint16(pcap.Raw), ipPacket(transport(writeImm, 5), src6, dst6))
	mad := transport(bth.Packet{Opcode: bth.UDSendOnly, DestQP: 1}, 256)
	copy(mad[20:], unhex("01070203 00000000 0000000000000001 0010 0000 00000000"))
	f.Add(uint16(pcap.Raw), ipPacket(mad, src4, dst4))
	f.Add(uint16(pcap.InfiniBand), append(unhex("0002 0001 0007 0002"), transport(bth.Packet{Opcode: bth.RCAck}, 0)...))
	f.Add(uint16(pcap.Raw), burst(src4, dst4, []int{8, 8}, 1).Data)
	f.Add(uint16(pcap.Raw), burst(src6, dst6, []int{8}, 0).Data)
	f.Fuzz(func(t *testing.T, link uint16, data []byte) {
		fr := pcap.Frame{Number: 1, Link: pcap.Link(link), Data: data, Len: len(data)}
		p := Decode(fr)
		_ = p.Line(time.Time{})
		if _, err := json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		agreeWithWire(t, fr, p)
		for _, q := range Packets(fr) {
			_ = q.Line(time.Time{})
		}
		fr.Len++ // as if cut short
		_ = Decode(fr).Line(time.Time{})
	})
}
