package decode

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
)

// value is what we say a tshark field holds: a number, an address, or nothing
// (nil) when the packet has no such field.
type value any

func num[T uint8 | uint16 | uint32 | uint64 | int](v T) value { return uint64(v) }

func bit(v bool) value {
	if v {
		return uint64(1)
	}
	return uint64(0)
}

// fields are the tshark fields compared. Flow label and packet rate of a CM REQ
// are left out: tshark 4.0 reads the wrong bits of the word they share.
var fields = []struct {
	name string
	ours func(p *Packet) value
}{
	{"ip.src", func(p *Packet) value { return ipField(p, 4, true) }},
	{"ip.dst", func(p *Packet) value { return ipField(p, 4, false) }},
	{"ipv6.src", func(p *Packet) value { return ipField(p, 6, true) }},
	{"udp.srcport", of(func(p *Packet) *UDP { return p.UDP }, func(h *UDP) value { return num(h.SrcPort) })},
	{"udp.checksum", of(func(p *Packet) *UDP { return p.UDP }, func(h *UDP) value { return num(h.Checksum) })},
	{"infiniband.lrh.dlid", of(lrhOf, func(h *LRH) value { return num(h.DLID) })},
	{"infiniband.lrh.slid", of(lrhOf, func(h *LRH) value { return num(h.SLID) })},
	{"infiniband.lrh.vl", of(lrhOf, func(h *LRH) value { return num(h.VL) })},
	{"infiniband.lrh.sl", of(lrhOf, func(h *LRH) value { return num(h.SL) })},
	{"infiniband.grh.paylen", of(func(p *Packet) *GRH { return p.GRH }, func(h *GRH) value { return num(h.Len) })},
	{"infiniband.bth.opcode", of(bthOf, func(h *BTH) value { return num(h.Opcode) })},
	{"infiniband.bth.se", of(bthOf, func(h *BTH) value { return bit(h.SE) })},
	{"infiniband.bth.m", of(bthOf, func(h *BTH) value { return bit(h.MigReq) })},
	{"infiniband.bth.padcnt", of(bthOf, func(h *BTH) value { return num(h.Pad) })},
	{"infiniband.bth.tver", of(bthOf, func(h *BTH) value { return num(h.TVer) })},
	{"infiniband.bth.p_key", of(bthOf, func(h *BTH) value { return num(h.PKey) })},
	{"infiniband.bth.destqp", of(bthOf, func(h *BTH) value { return num(h.DestQP) })},
	{"infiniband.bth.a", of(bthOf, func(h *BTH) value { return bit(h.AckReq) })},
	{"infiniband.bth.reserved7", of(bthOf, func(h *BTH) value { return num(h.Resv7) })},
	{"infiniband.bth.psn", of(bthOf, func(h *BTH) value { return num(h.PSN) })},
	{"infiniband.deth.q_key", of(dethOf, func(h *DETH) value { return num(h.QKey) })},
	{"infiniband.deth.srcqp", of(dethOf, func(h *DETH) value { return num(h.SrcQP) })},
	{"infiniband.reth.va", func(p *Packet) value { // of the AtomicETH too
		switch {
		case p.RETH != nil:
			return num(p.RETH.VA)
		case p.AtomicETH != nil:
			return num(p.AtomicETH.VA)
		}
		return nil
	}},
	{"infiniband.reth.r_key", func(p *Packet) value {
		switch {
		case p.RETH != nil:
			return num(p.RETH.RKey)
		case p.AtomicETH != nil:
			return num(p.AtomicETH.RKey)
		}
		return nil
	}},
	{"infiniband.reth.dmalen", of(func(p *Packet) *RETH { return p.RETH }, func(h *RETH) value { return num(h.DMALen) })},
	{"infiniband.atomiceth.swapdt", of(atomicOf, func(h *AtomicETH) value { return num(h.SwapAdd) })},
	{"infiniband.atomiceth.cmpdt", of(atomicOf, func(h *AtomicETH) value { return num(h.Compare) })},
	{"infiniband.aeth.syndrome", of(func(p *Packet) *AETH { return p.AETH }, func(h *AETH) value { return num(h.Syndrome) })},
	{"infiniband.aeth.msn", of(func(p *Packet) *AETH { return p.AETH }, func(h *AETH) value { return num(h.MSN) })},
	{"infiniband.atomicacketh.origremdt", of(func(p *Packet) *AtomicAckETH { return p.AtomicAckETH }, func(h *AtomicAckETH) value { return num(h.Orig) })},
	{"infiniband.immdt", of(func(p *Packet) *ImmDt { return p.ImmDt }, func(h *ImmDt) value { return num(h.Imm) })},
	{"infiniband.ieth", of(func(p *Packet) *IETH { return p.IETH }, func(h *IETH) value { return num(h.RKey) })},
	{"infiniband.mad.mgmtclass", of(madOf, func(h *MAD) value { return num(h.Class) })},
	{"infiniband.mad.classversion", of(madOf, func(h *MAD) value { return num(h.ClassVersion) })},
	{"infiniband.mad.method", of(madOf, func(h *MAD) value { return num(h.Method) })},
	{"infiniband.mad.transactionid", of(madOf, func(h *MAD) value { return num(h.TID) })},
	{"infiniband.mad.attributeid", of(madOf, func(h *MAD) value { return num(h.Attribute) })},
	{"infiniband.cm.req", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.LocalCommID) })},
	{"infiniband.cm.req.serviceid", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.ServiceID) })},
	{"infiniband.cm.req.localqkey", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.LocalQKey) })},
	{"infiniband.cm.req.localqpn", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.LocalQPN) })},
	{"infiniband.cm.req.responderres", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.ResponderResources) })},
	{"infiniband.cm.req.initdepth", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.InitiatorDepth) })},
	{"infiniband.cm.req.remoteresptout", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.RemoteCMResponseTimeout) })},
	{"infiniband.cm.req.transpsvctype", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.TransportService) })},
	{"infiniband.cm.req.e2eflowctrl", of(cmOf[ConnReq], func(h *ConnReq) value { return bit(h.EndToEndFlowControl) })},
	{"infiniband.cm.req.startpsn", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.StartingPSN) })},
	{"infiniband.cm.req.localresptout", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.LocalCMResponseTimeout) })},
	{"infiniband.cm.req.retrcount", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.RetryCount) })},
	{"infiniband.cm.req.pkey", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.PKey) })},
	{"infiniband.cm.req.rnrretrcount", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.RNRRetryCount) })},
	{"infiniband.cm.req.maxcmretr", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.MaxCMRetries) })},
	{"infiniband.cm.req.srq", of(cmOf[ConnReq], func(h *ConnReq) value { return bit(h.SRQ) })},
	{"infiniband.cm.req.prim_locallid", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.LocalLID) })},
	{"infiniband.cm.req.prim_remotelid", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.RemoteLID) })},
	{"infiniband.cm.req.prim_tfcclass", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.TrafficClass) })},
	{"infiniband.cm.req.prim_hoplim", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.HopLimit) })},
	{"infiniband.cm.req.prim_sl", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.SL) })},
	{"infiniband.cm.req.prim_localacktout", of(cmOf[ConnReq], func(h *ConnReq) value { return num(h.Primary.LocalAckTimeout) })},
	{"infiniband.cm.req.ip_cm.sport", of(ipcmOf, func(h *IPCM) value { return num(h.SrcPort) })},
	{"infiniband.cm.req.ip_cm.sip4", of(ipcmOf, func(h *IPCM) value { return netip.MustParseAddr(h.Src) })},
	{"infiniband.cm.req.ip_cm.dip4", of(ipcmOf, func(h *IPCM) value { return netip.MustParseAddr(h.Dst) })},
	{"infiniband.cm.rep", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.LocalCommID) })},
	{"infiniband.cm.rep.remotecommid", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.RemoteCommID) })},
	{"infiniband.cm.rep.localqkey", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.LocalQKey) })},
	{"infiniband.cm.rep.localqpn", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.LocalQPN) })},
	{"infiniband.cm.rep.startpsn", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.StartingPSN) })},
	{"infiniband.cm.rep.respres", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.ResponderResources) })},
	{"infiniband.cm.rep.initdepth", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.InitiatorDepth) })},
	{"infiniband.cm.rep.tgtackdelay", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.TargetAckDelay) })},
	{"infiniband.cm.rep.failoveracc", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.FailoverAccepted) })},
	{"infiniband.cm.rep.e2eflowctrl", of(cmOf[ConnRep], func(h *ConnRep) value { return bit(h.EndToEndFlowControl) })},
	{"infiniband.cm.rep.rnrretrcount", of(cmOf[ConnRep], func(h *ConnRep) value { return num(h.RNRRetryCount) })},
	{"infiniband.cm.rep.srq", of(cmOf[ConnRep], func(h *ConnRep) value { return bit(h.SRQ) })},
	{"infiniband.cm.rtu.localcommid", of(cmOf[ConnRTU], func(h *ConnRTU) value { return num(h.LocalCommID) })},
	{"infiniband.cm.rtu.remotecommid", of(cmOf[ConnRTU], func(h *ConnRTU) value { return num(h.RemoteCommID) })},
	{"infiniband.cm.rej.localcommid", of(cmOf[ConnRej], func(h *ConnRej) value { return num(h.LocalCommID) })},
	{"infiniband.cm.rej.reason", of(cmOf[ConnRej], func(h *ConnRej) value { return num(h.Reason) })},
	{"infiniband.cm.rej.msgrej", of(cmOf[ConnRej], func(h *ConnRej) value { return num(h.Rejected) })},
	{"infiniband.cm.dreq.localcommid", of(cmOf[ConnDReq], func(h *ConnDReq) value { return num(h.LocalCommID) })},
	{"infiniband.cm.dreq.remotecommid", of(cmOf[ConnDReq], func(h *ConnDReq) value { return num(h.RemoteCommID) })},
	{"infiniband.cm.req.remoteqpneecn", of(cmOf[ConnDReq], func(h *ConnDReq) value { return num(h.RemoteQPN) })},
	{"infiniband.cm.drsp.localcommid", of(cmOf[ConnDRep], func(h *ConnDRep) value { return num(h.LocalCommID) })},
	{"infiniband.cm.drsp.remotecommid", of(cmOf[ConnDRep], func(h *ConnDRep) value { return num(h.RemoteCommID) })},
}

// Fields needed for the payload length, which tshark does not give as such:
// it shows a payload only when nothing else claims it.
var lengthFields = []string{
	"udp.length", "infiniband.lrh.pktlen", "infiniband.grh", "infiniband.deth", "infiniband.rdeth", "infiniband.reth",
	"infiniband.atomiceth", "infiniband.aeth", "infiniband.atomicacketh", "infiniband.immdt", "infiniband.ieth",
}

func of[H any](get func(*Packet) *H, v func(*H) value) func(*Packet) value {
	return func(p *Packet) value {
		if h := get(p); h != nil {
			return v(h)
		}
		return nil
	}
}

func cmOf[M any](p *Packet) *M {
	m, _ := any(p.CM).(*M)
	return m
}

func ipcmOf(p *Packet) *IPCM {
	if r := cmOf[ConnReq](p); r != nil && r.IPCM != nil && r.IPCM.IPVersion == 4 {
		return r.IPCM
	}
	return nil
}

func lrhOf(p *Packet) *LRH          { return p.LRH }
func bthOf(p *Packet) *BTH          { return p.BTH }
func dethOf(p *Packet) *DETH        { return p.DETH }
func atomicOf(p *Packet) *AtomicETH { return p.AtomicETH }
func madOf(p *Packet) *MAD          { return p.MAD }

func ipField(p *Packet, version uint8, src bool) value {
	if p.IP == nil || p.IP.Version != version {
		return nil
	}
	if src {
		return netip.MustParseAddr(p.IP.Src)
	}
	return netip.MustParseAddr(p.IP.Dst)
}

// tsharkKnows is false for opcodes that tshark 4.0 has no name or no layout
// for.
func tsharkKnows(o bth.Opcode) bool {
	switch o {
	case bth.CNP, bth.RCFlush, bth.RCAtomicWrite:
		return false
	}
	return o.Info().Class != bth.XRC
}

// tshark runs it on a file and returns the values of the fields for each
// frame, by name; no name may be given twice.
func tshark(t *testing.T, file string, names []string) []map[string]string {
	t.Helper()
	args := []string{"-r", file, "-n", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"}
	for _, n := range names {
		args = append(args, "-e", n)
	}
	cmd := exec.Command("tshark", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	var rows []map[string]string
	for line := range strings.Lines(string(out)) {
		row := map[string]string{}
		for i, v := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			row[names[i]] = v
		}
		rows = append(rows, row)
	}
	return rows
}

// origin says where a frame of a merged file came from.
type origin struct {
	file  string
	frame pcap.Frame
}

// merge writes the frames of all files into one pcap for each link type, so
// that tshark, which is slow to start, starts once for each.
func merge(t *testing.T, files []string) map[string][]origin {
	t.Helper()
	byLink := map[pcap.Link][]origin{}
	for _, name := range files {
		for _, f := range readFrames(t, name) {
			byLink[f.Link] = append(byLink[f.Link], origin{filepath.Base(name), f})
		}
	}
	out := map[string][]origin{}
	for link, frames := range byLink {
		var b bytes.Buffer
		w := pcapgo.NewWriter(&b)
		require.NoError(t, w.WriteFileHeader(65536, layers.LinkType(link)))
		for _, o := range frames {
			ci := gopacket.CaptureInfo{Timestamp: o.frame.Time, CaptureLength: len(o.frame.Data), Length: o.frame.Len}
			require.NoError(t, w.WritePacket(ci, o.frame.Data))
		}
		name := filepath.Join(t.TempDir(), "merged.pcap")
		require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
		out[name] = frames
	}
	return out
}

// parse reads a value as tshark prints it: a number in some base, True or
// False, octets with or without colons, or an address.
func parse(t *testing.T, text string, like value) value {
	t.Helper()
	switch {
	case text == "":
		return nil
	case text == "True":
		return uint64(1)
	case text == "False":
		return uint64(0)
	}
	if _, ok := like.(netip.Addr); ok {
		return netip.MustParseAddr(text)
	}
	v, err := strconv.ParseUint(text, 0, 64)
	require.NoError(t, err, text)
	return v
}

// octets counts those of a field that tshark prints as octets.
func octets(text string) int { return len(strings.ReplaceAll(text, ":", "")) / 2 }

// TestTshark compares every field of every frame of every capture that both
// decode. It needs tshark; it was written for version 4.0.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark (Debian package tshark), which is not installed")
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	for _, n := range lengthFields {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	t.Run("testdata", func(t *testing.T) {
		files, err := filepath.Glob("testdata/*.pcap")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		compareWithTshark(t, files, names)
	})
	t.Run("captures", func(t *testing.T) { compareWithTshark(t, captures(t), names) })
}

func compareWithTshark(t *testing.T, files, names []string) {
	for merged, frames := range merge(t, files) {
		rows := tshark(t, merged, names)
		require.Len(t, rows, len(frames))
		for i, row := range rows {
			compareFrame(t, frames[i], row)
		}
	}
}

func compareFrame(t *testing.T, o origin, row map[string]string) {
	t.Helper()
	p := Decode(o.frame)
	known := p.BTH != nil && tsharkKnows(bth.Opcode(p.BTH.Opcode))
	for _, f := range fields {
		ib := strings.HasPrefix(f.name, "infiniband.")
		if !ib && p.Protocol == InfiniBand { // of the IP inside it
			continue
		}
		ours := f.ours(p)
		theirs := parse(t, octetsAsNumber(f.name, row[f.name]), ours)
		if ib && !known && theirs == nil {
			continue
		}
		if theirs != ours {
			t.Errorf("%s frame %d (%s): %s is %v, tshark says %v", o.file, p.Frame, p.Opcode, f.name, ours, theirs)
		}
	}
	if known {
		require.Equal(t, tsharkPayload(t, row, p), *p.PayloadLen, "%s frame %d (%s): payload", o.file, p.Frame, p.Opcode)
	}
}

// octetsAsNumber turns the two fields that are octets into a number.
func octetsAsNumber(name, text string) string {
	if text != "" && (name == "infiniband.immdt" || name == "infiniband.ieth") {
		return "0x" + strings.ReplaceAll(text, ":", "")
	}
	return text
}

// tsharkPayload works the payload length out of the lengths of what tshark
// found around it.
func tsharkPayload(t *testing.T, row map[string]string, p *Packet) int {
	t.Helper()
	var n int
	if p.Protocol == InfiniBand {
		v, err := strconv.Atoi(row["infiniband.lrh.pktlen"])
		require.NoError(t, err)
		n = v*4 - lrhLen
	} else {
		v, err := strconv.Atoi(row["udp.length"])
		require.NoError(t, err)
		n = v - 8
	}
	n -= bth.BTHLen + p.BTH.Pad + bth.ICRCLen
	for _, name := range lengthFields[2:] {
		n -= octets(row[name])
	}
	return n
}
