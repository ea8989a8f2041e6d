package layers_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/layers"
)

// A field is compared with tshark's of that name. ours gives a number, a bool,
// an address or octets; nil when the packet has no such field.
type field struct {
	name string
	ours func(gopacket.Packet) any
}

// in reads a field of a layer of type L, if the packet has one.
func in[L any](name string, get func(L) any) field {
	return field{name, func(p gopacket.Packet) any {
		for _, l := range p.Layers() {
			if l, ok := l.(L); ok {
				return get(l)
			}
		}
		return nil
	}}
}

// either reads a field that tshark has one name for in two layers.
func either(a, b field) field {
	return field{a.name, func(p gopacket.Packet) any {
		if v := a.ours(p); v != nil {
			return v
		}
		return b.ours(p)
	}}
}

// tsharkFields leave out the flow label and packet rate of a path: tshark 4.0 reads
// the wrong bits of the word they share with reserved ones.
var tsharkFields = []field{
	in("infiniband.lrh.vl", func(l *layers.LRH) any { return l.VL }),
	in("infiniband.lrh.lver", func(l *layers.LRH) any { return l.LVer }),
	in("infiniband.lrh.sl", func(l *layers.LRH) any { return l.SL }),
	in("infiniband.lrh.lnh", func(l *layers.LRH) any { return l.LNH }),
	in("infiniband.lrh.dlid", func(l *layers.LRH) any { return l.DLID }),
	in("infiniband.lrh.pktlen", func(l *layers.LRH) any { return l.PktLen }),
	in("infiniband.lrh.slid", func(l *layers.LRH) any { return l.SLID }),
	in("infiniband.grh.ipver", func(l *layers.GRH) any { return l.IPVer }),
	in("infiniband.grh.tclass", func(l *layers.GRH) any { return l.TrafficClass }),
	in("infiniband.grh.flowlabel", func(l *layers.GRH) any { return l.FlowLabel }),
	in("infiniband.grh.paylen", func(l *layers.GRH) any { return l.PayLen }),
	in("infiniband.grh.nxthdr", func(l *layers.GRH) any { return l.NextHeader }),
	in("infiniband.grh.hoplmt", func(l *layers.GRH) any { return l.HopLimit }),
	in("infiniband.grh.sgid", func(l *layers.GRH) any { return l.SGID }),
	in("infiniband.grh.dgid", func(l *layers.GRH) any { return l.DGID }),
	in("infiniband.bth.opcode", func(l *layers.BTH) any { return l.Opcode }),
	in("infiniband.bth.se", func(l *layers.BTH) any { return l.SE }),
	in("infiniband.bth.m", func(l *layers.BTH) any { return l.MigReq }),
	in("infiniband.bth.padcnt", func(l *layers.BTH) any { return l.PadCount }),
	in("infiniband.bth.tver", func(l *layers.BTH) any { return l.TVer }),
	in("infiniband.bth.p_key", func(l *layers.BTH) any { return l.PKey }),
	in("infiniband.bth.destqp", func(l *layers.BTH) any { return l.DestQP }),
	in("infiniband.bth.a", func(l *layers.BTH) any { return l.AckReq }),
	in("infiniband.bth.reserved7", func(l *layers.BTH) any { return l.Resv7 }),
	in("infiniband.bth.psn", func(l *layers.BTH) any { return l.PSN.Uint32() }),
	in("infiniband.rdeth.eecnxt", func(l *layers.RDETH) any { return l.EEContext }),
	in("infiniband.deth.q_key", func(l *layers.DETH) any { return l.QKey }),
	in("infiniband.deth.srcqp", func(l *layers.DETH) any { return l.SrcQP }),
	either(in("infiniband.reth.va", func(l *layers.RETH) any { return l.VA }), in("", func(l *layers.AtomicETH) any { return l.VA })),
	either(in("infiniband.reth.r_key", func(l *layers.RETH) any { return l.RKey }), in("", func(l *layers.AtomicETH) any { return l.RKey })),
	in("infiniband.reth.dmalen", func(l *layers.RETH) any { return l.DMALen }),
	in("infiniband.atomiceth.swapdt", func(l *layers.AtomicETH) any { return l.SwapAdd }),
	in("infiniband.atomiceth.cmpdt", func(l *layers.AtomicETH) any { return l.Compare }),
	in("infiniband.aeth.syndrome", func(l *layers.AETH) any { return l.Syndrome }),
	in("infiniband.aeth.msn", func(l *layers.AETH) any { return l.MSN }),
	in("infiniband.atomicacketh.origremdt", func(l *layers.AtomicAckETH) any { return l.Orig }),
	in("infiniband.immdt", func(l *layers.ImmDt) any { return l.LayerContents() }),
	in("infiniband.ieth", func(l *layers.IETH) any { return l.LayerContents() }),
	in("infiniband.invariant.crc", func(l *layers.ICRC) any { return bits.ReverseBytes32(l.Value) }),
	in("infiniband.mad.baseversion", func(l *layers.MAD) any { return l.BaseVersion }),
	in("infiniband.mad.mgmtclass", func(l *layers.MAD) any { return l.Class }),
	in("infiniband.mad.classversion", func(l *layers.MAD) any { return l.ClassVersion }),
	in("infiniband.mad.method", func(l *layers.MAD) any { return l.Method }),
	in("infiniband.mad.status", func(l *layers.MAD) any { return l.Status }),
	in("infiniband.mad.classspecific", func(l *layers.MAD) any { return l.ClassSpecific }),
	in("infiniband.mad.transactionid", func(l *layers.MAD) any { return l.TransactionID }),
	in("infiniband.mad.attributeid", func(l *layers.MAD) any { return l.AttributeID }),
	in("infiniband.mad.attributemodifier", func(l *layers.MAD) any { return l.AttributeModifier }),
	in("infiniband.cm.req", func(l *layers.CMReq) any { return l.LocalCommID }),
	in("infiniband.cm.req.serviceid", func(l *layers.CMReq) any { return l.ServiceID }),
	in("infiniband.cm.req.localcaguid", func(l *layers.CMReq) any { return l.LocalCAGUID }),
	in("infiniband.cm.req.localqkey", func(l *layers.CMReq) any { return l.LocalQKey }),
	in("infiniband.cm.req.localqpn", func(l *layers.CMReq) any { return l.LocalQPN }),
	in("infiniband.cm.req.responderres", func(l *layers.CMReq) any { return l.ResponderResources }),
	in("infiniband.cm.req.localeecn", func(l *layers.CMReq) any { return l.LocalEECN }),
	in("infiniband.cm.req.initdepth", func(l *layers.CMReq) any { return l.InitiatorDepth }),
	in("infiniband.cm.req.remoteeecn", func(l *layers.CMReq) any { return l.RemoteEECN }),
	in("infiniband.cm.req.remoteresptout", func(l *layers.CMReq) any { return l.RemoteCMResponseTimeout }),
	in("infiniband.cm.req.transpsvctype", func(l *layers.CMReq) any { return l.TransportService }),
	in("infiniband.cm.req.e2eflowctrl", func(l *layers.CMReq) any { return l.EndToEndFlowControl }),
	in("infiniband.cm.req.startpsn", func(l *layers.CMReq) any { return l.StartingPSN.Uint32() }),
	in("infiniband.cm.req.localresptout", func(l *layers.CMReq) any { return l.LocalCMResponseTimeout }),
	in("infiniband.cm.req.retrcount", func(l *layers.CMReq) any { return l.RetryCount }),
	in("infiniband.cm.req.pkey", func(l *layers.CMReq) any { return l.PKey }),
	in("infiniband.cm.req.pppmtu", func(l *layers.CMReq) any { return l.PathMTU }),
	in("infiniband.cm.req.rdcexist", func(l *layers.CMReq) any { return l.RDCExists }),
	in("infiniband.cm.req.rnrretrcount", func(l *layers.CMReq) any { return l.RNRRetryCount }),
	in("infiniband.cm.req.maxcmretr", func(l *layers.CMReq) any { return l.MaxCMRetries }),
	in("infiniband.cm.req.srq", func(l *layers.CMReq) any { return l.SRQ }),
	in("infiniband.cm.req.ext_transport", func(l *layers.CMReq) any { return l.ExtendedTransport }),
	in("infiniband.cm.req.prim_locallid", func(l *layers.CMReq) any { return l.Primary.LocalLID }),
	in("infiniband.cm.req.prim_remotelid", func(l *layers.CMReq) any { return l.Primary.RemoteLID }),
	in("infiniband.cm.req.prim_tfcclass", func(l *layers.CMReq) any { return l.Primary.TrafficClass }),
	in("infiniband.cm.req.prim_hoplim", func(l *layers.CMReq) any { return l.Primary.HopLimit }),
	in("infiniband.cm.req.prim_sl", func(l *layers.CMReq) any { return l.Primary.SL }),
	in("infiniband.cm.req.prim_subnetlocal", func(l *layers.CMReq) any { return l.Primary.SubnetLocal }),
	in("infiniband.cm.req.prim_localacktout", func(l *layers.CMReq) any { return l.Primary.LocalAckTimeout }),
	in("infiniband.cm.req.alt_locallid", func(l *layers.CMReq) any { return l.Alternate.LocalLID }),
	in("infiniband.cm.req.alt_remotelid", func(l *layers.CMReq) any { return l.Alternate.RemoteLID }),
	in("infiniband.cm.req.alt_localgid", func(l *layers.CMReq) any { return l.Alternate.LocalGID.AsSlice() }),
	in("infiniband.cm.req.alt_remotegid", func(l *layers.CMReq) any { return l.Alternate.RemoteGID.AsSlice() }),
	in("infiniband.cm.req.alt_tfcclass", func(l *layers.CMReq) any { return l.Alternate.TrafficClass }),
	in("infiniband.cm.req.alt_hoplim", func(l *layers.CMReq) any { return l.Alternate.HopLimit }),
	in("infiniband.cm.req.alt_sl", func(l *layers.CMReq) any { return l.Alternate.SL }),
	in("infiniband.cm.req.alt_subnetlocal", func(l *layers.CMReq) any { return l.Alternate.SubnetLocal }),
	in("infiniband.cm.req.alt_localacktout", func(l *layers.CMReq) any { return l.Alternate.LocalAckTimeout }),
	in("infiniband.cm.req.ip_cm.sport", ipcm(func(h layers.IPCM) any { return h.SrcPort })),
	in("infiniband.cm.req.ip_cm.ipv", ipcm(func(h layers.IPCM) any { return h.IPVersion })),
	in("infiniband.cm.req.ip_cm.sip4", ipcm(func(h layers.IPCM) any { return only4(h.Src) })),
	in("infiniband.cm.req.ip_cm.dip4", ipcm(func(h layers.IPCM) any { return only4(h.Dst) })),
	in("infiniband.cm.req.serviceid.dport", ipcm(func(h layers.IPCM) any { return h.DstPort })),
	in("infiniband.cm.rep", func(l *layers.CMRep) any { return l.LocalCommID }),
	in("infiniband.cm.rep.remotecommid", func(l *layers.CMRep) any { return l.RemoteCommID }),
	in("infiniband.cm.rep.localqkey", func(l *layers.CMRep) any { return l.LocalQKey }),
	in("infiniband.cm.rep.localqpn", func(l *layers.CMRep) any { return l.LocalQPN }),
	in("infiniband.cm.rep.localeecn", func(l *layers.CMRep) any { return l.LocalEECN }),
	in("infiniband.cm.rep.startpsn", func(l *layers.CMRep) any { return l.StartingPSN.Uint32() }),
	in("infiniband.cm.rep.respres", func(l *layers.CMRep) any { return l.ResponderResources }),
	in("infiniband.cm.rep.initdepth", func(l *layers.CMRep) any { return l.InitiatorDepth }),
	in("infiniband.cm.rep.tgtackdelay", func(l *layers.CMRep) any { return l.TargetAckDelay }),
	in("infiniband.cm.rep.failoveracc", func(l *layers.CMRep) any { return l.FailoverAccepted }),
	in("infiniband.cm.rep.e2eflowctrl", func(l *layers.CMRep) any { return l.EndToEndFlowControl }),
	in("infiniband.cm.rep.rnrretrcount", func(l *layers.CMRep) any { return l.RNRRetryCount }),
	in("infiniband.cm.rep.srq", func(l *layers.CMRep) any { return l.SRQ }),
	in("infiniband.cm.rep.localcaguid", func(l *layers.CMRep) any { return l.LocalCAGUID }),
	in("infiniband.cm.rep.private", func(l *layers.CMRep) any { return l.PrivateData }),
	in("infiniband.cm.rtu.localcommid", func(l *layers.CMRTU) any { return l.LocalCommID }),
	in("infiniband.cm.rtu.remotecommid", func(l *layers.CMRTU) any { return l.RemoteCommID }),
	in("infiniband.cm.rtu.private", func(l *layers.CMRTU) any { return l.PrivateData }),
	in("infiniband.cm.rej.localcommid", func(l *layers.CMRej) any { return l.LocalCommID }),
	in("infiniband.cm.rej.remotecommid", func(l *layers.CMRej) any { return l.RemoteCommID }),
	in("infiniband.cm.rej.msgrej", func(l *layers.CMRej) any { return l.MessageRejected }),
	in("infiniband.cm.rej.rejinfolen", func(l *layers.CMRej) any { return l.RejectInfoLength }),
	in("infiniband.cm.rej.reason", func(l *layers.CMRej) any { return l.Reason }),
	in("infiniband.cm.rej.ari", func(l *layers.CMRej) any { return l.AdditionalInfo }),
	in("infiniband.cm.rej.private", func(l *layers.CMRej) any { return l.PrivateData }),
	in("infiniband.cm.dreq.localcommid", func(l *layers.CMDReq) any { return l.LocalCommID }),
	in("infiniband.cm.dreq.remotecommid", func(l *layers.CMDReq) any { return l.RemoteCommID }),
	in("infiniband.cm.req.remoteqpneecn", func(l *layers.CMDReq) any { return l.RemoteQPN }),
	in("infiniband.cm.dreq.private", func(l *layers.CMDReq) any { return l.PrivateData }),
	in("infiniband.cm.drsp.localcommid", func(l *layers.CMDRep) any { return l.LocalCommID }),
	in("infiniband.cm.drsp.remotecommid", func(l *layers.CMDRep) any { return l.RemoteCommID }),
	in("infiniband.cm.drsp.private", func(l *layers.CMDRep) any { return l.PrivateData }),
}

func ipcm(get func(layers.IPCM) any) func(*layers.CMReq) any {
	return func(m *layers.CMReq) any {
		if h, _, ok := m.IPCM(); ok {
			return get(h)
		}
		return nil
	}
}

func only4(a netip.Addr) any {
	if a.Is4() {
		return a
	}
	return nil
}

// tsharkKnows is false for opcodes that tshark 4.0 has no name or no layout
// for, and for RD, the headers of which it looks for in the wrong place.
func tsharkKnows(o bth.Opcode) bool {
	switch o {
	case bth.CNP, bth.RCFlush, bth.RCAtomicWrite:
		return false
	}
	class := o.Info().Class
	return class == bth.RC || class == bth.UC || class == bth.UD
}

// recorded is a frame with where it came from. tshark 4.0 does not know the
// link type of InfiniBand, only that of ERF; we are shown what is behind it.
type recorded struct {
	name  string
	link  inet.LinkType
	data  []byte
	first gopacket.Decoder
	ours  []byte
}

const linkTypeERF = inet.LinkType(pcap.ERF)

// erf puts a record header of Endace's in front of an InfiniBand packet: type
// 21, its own length and that on the wire.
func erf(b []byte) []byte {
	h := make([]byte, 16, 16+len(b))
	h[8] = 21
	binary.BigEndian.PutUint16(h[10:], uint16(16+len(b)))
	binary.BigEndian.PutUint16(h[14:], uint16(len(b)))
	return append(h, b...)
}

// tshark decodes frames of one link type, and returns each one's fields.
func tshark(t *testing.T, link inet.LinkType, frames []recorded) (rows []map[string]string) {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	require.NoError(t, w.WriteFileHeader(65536, link))
	for _, f := range frames {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(f.data), Length: len(f.data)}, f.data))
	}
	name := filepath.Join(t.TempDir(), "frames.pcap")
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
	args := []string{"-r", name, "-n", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"}
	for _, f := range tsharkFields {
		args = append(args, "-e", f.name)
	}
	cmd := exec.Command("tshark", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	for line := range strings.Lines(string(out)) {
		row := map[string]string{}
		for i, v := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			row[tsharkFields[i].name] = v
		}
		rows = append(rows, row)
	}
	return rows
}

// same compares a value with what tshark prints.
func same(t *testing.T, ours any, theirs string) bool {
	t.Helper()
	switch v := ours.(type) {
	case nil:
		return theirs == ""
	case bool:
		n, err := strconv.ParseUint(strings.NewReplacer("True", "1", "False", "0").Replace(theirs), 0, 1)
		return err == nil && (n == 1) == v
	case netip.Addr:
		a, err := netip.ParseAddr(theirs)
		return err == nil && a == v
	case []byte:
		if strings.Contains(theirs, "::") || strings.Count(theirs, ":") == 7 { // a GID
			a, err := netip.ParseAddr(theirs)
			return err == nil && bytes.Equal(a.AsSlice(), v)
		}
		return hex.EncodeToString(v) == strings.ReplaceAll(theirs, ":", "")
	}
	n, err := strconv.ParseUint(theirs, 0, 64)
	return err == nil && n == uintOf(ours)
}

func uintOf(v any) uint64 {
	switch v := v.(type) {
	case uint8:
		return uint64(v)
	case uint16:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint64:
		return v
	case bth.Opcode:
		return uint64(v)
	case bth.QPN:
		return uint64(v)
	case bth.Syndrome:
		return uint64(v)
	case layers.GUID:
		return uint64(v)
	}
	panic("no number")
}

// TestTshark compares every field that both know of every frame of the
// captures, and of a packet of each opcode on each carrier, which this package
// built. It was written for tshark 4.0.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark (Debian package tshark), which is not installed")
	}
	t.Run("built", func(t *testing.T) {
		var frames []recorded
		for _, s := range samples(t) {
			f := recorded{s.name, inet.LinkTypeEthernet, s.frame, s.on.first(), s.frame}
			if s.on >= overLRH {
				f.link, f.data = linkTypeERF, erf(s.frame)
			}
			frames = append(frames, f)
		}
		compareWithTshark(t, frames, 20000)
	})
	t.Run("testdata", func(t *testing.T) { compareWithTshark(t, record(t, ownCaptures(t)), 1000) })
	t.Run("captures", func(t *testing.T) {
		dir := captureDir(t)
		compareWithTshark(t, record(t, glob(t, dir+"/*.pcap", dir+"/*.hex", dir+"/rxe/*.pcap")), 30000)
	})
}

func record(t *testing.T, files []string) (frames []recorded) {
	for _, name := range files {
		for _, f := range readFrames(t, name) {
			first, data := firstLayer(t, f)
			frames = append(frames, recorded{filepath.Base(name) + " frame " + strconv.Itoa(f.Number), inet.LinkType(f.Link), f.Data, first, data})
		}
	}
	return frames
}

// compareWithTshark fails if fewer than atLeast values could be compared.
func compareWithTshark(t *testing.T, frames []recorded, atLeast int) {
	byLink := map[inet.LinkType][]recorded{}
	for _, f := range frames {
		byLink[f.link] = append(byLink[f.link], f)
	}
	compared := 0
	for link, frames := range byLink {
		rows := tshark(t, link, frames)
		require.Len(t, rows, len(frames))
		for i, row := range rows {
			compared += compareFrame(t, frames[i], row)
		}
	}
	t.Logf("%d frames, %d values", len(frames), compared)
	require.GreaterOrEqual(t, compared, atLeast)
}

func compareFrame(t *testing.T, f recorded, row map[string]string) (compared int) {
	t.Helper()
	p := gopacket.NewPacket(f.ours, f.first, gopacket.Default)
	require.Nil(t, p.ErrorLayer(), "%s: %v", f.name, p)
	op := p.Layer(layers.LayerTypeBTH).(*layers.BTH).Opcode
	for _, w := range tsharkFields {
		ours, theirs := w.ours(p), row[w.name]
		header := strings.Split(w.name, ".")[1]
		switch {
		case theirs == "" && (!tsharkKnows(op) || header == "invariant"): // not shown behind every payload
			continue
		case op.Info().Class == bth.RD && header != "lrh" && header != "grh" && header != "bth":
			continue
		}
		if !same(t, ours, theirs) {
			t.Errorf("%s: %s is %v, tshark says %q", f.name, w.name, ours, theirs)
		}
		if ours != nil {
			compared++
		}
	}
	return compared
}
