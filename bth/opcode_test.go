package bth

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rcHeaders are the RC opcodes with their names and the octets of headers
// that follow the BTH. IBA table 38; Annex A19 for the last two.
var rcHeaders = []struct {
	op   Opcode
	name string
	ext  int
}{
	{0x00, "SEND_FIRST", 0},
	{0x01, "SEND_MIDDLE", 0},
	{0x02, "SEND_LAST", 0},
	{0x03, "SEND_LAST_IMM", 4},
	{0x04, "SEND_ONLY", 0},
	{0x05, "SEND_ONLY_IMM", 4},
	{0x06, "WRITE_FIRST", 16},
	{0x07, "WRITE_MIDDLE", 0},
	{0x08, "WRITE_LAST", 0},
	{0x09, "WRITE_LAST_IMM", 4},
	{0x0a, "WRITE_ONLY", 16},
	{0x0b, "WRITE_ONLY_IMM", 16 + 4},
	{0x0c, "READ_REQ", 16},
	{0x0d, "READ_RESP_FIRST", 4},
	{0x0e, "READ_RESP_MIDDLE", 0},
	{0x0f, "READ_RESP_LAST", 4},
	{0x10, "READ_RESP_ONLY", 4},
	{0x11, "ACK", 4},
	{0x12, "ATOMIC_ACK", 4 + 8},
	{0x13, "CMP_SWAP", 28},
	{0x14, "FETCH_ADD", 28},
	{0x16, "SEND_LAST_INV", 4},
	{0x17, "SEND_ONLY_INV", 4},
	{0x1c, "FLUSH", 4 + 16},
	{0x1d, "ATOMIC_WRITE", 16},
}

// TestTable holds every opcode to the specification: names, classes, header
// lengths, and that nothing else is valid.
func TestTable(t *testing.T) {
	want := map[Opcode]Info{}
	response := func(name string) bool {
		return strings.HasPrefix(name, "READ_RESP") || name == "ACK" || name == "ATOMIC_ACK"
	}
	for _, h := range rcHeaders {
		want[h.op] = Info{Name: "RC_" + h.name, Class: RC, HdrLen: 12 + h.ext}
		if h.op <= 0x0b {
			want[0x20|h.op] = Info{Name: "UC_" + h.name, Class: UC, HdrLen: 12 + h.ext}
		}
		if h.op <= 0x14 {
			n := 12 + 4 + 8 + h.ext // RDETH and DETH
			if response(h.name) {
				n -= 8
			}
			want[0x40|h.op] = Info{Name: "RD_" + h.name, Class: RD, HdrLen: n}
		}
		if h.op <= 0x17 {
			n := 12 + 4 + h.ext // XRCETH
			if response(h.name) {
				n -= 4
			}
			want[0xa0|h.op] = Info{Name: "XRC_" + h.name, Class: XRC, HdrLen: n}
		}
	}
	want[0x55] = Info{Name: "RD_RESYNC", Class: RD, HdrLen: 12 + 4 + 8}
	want[0x64] = Info{Name: "UD_SEND_ONLY", Class: UD, HdrLen: 12 + 8}
	want[0x65] = Info{Name: "UD_SEND_ONLY_IMM", Class: UD, HdrLen: 12 + 8 + 4}
	want[0x81] = Info{Name: "CNP", Class: ClassCNP, HdrLen: 12 + 16}

	for o := range 256 {
		op := Opcode(o)
		got, w := op.Info(), want[op]
		require.Equal(t, w.HdrLen != 0, op.Valid(), "%#02x", o)
		require.Equal(t, op.Valid(), got.Valid())
		require.Equal(t, w, Info{Name: got.Name, Class: got.Class, HdrLen: got.HdrLen}, "%#02x", o)
		require.LessOrEqual(t, got.HdrLen, MaxHeaderLen)
		if !op.Valid() {
			require.Contains(t, op.String(), "UNKNOWN_0x")
			continue
		}
		require.Equal(t, w.Name, op.String())
		back, ok := LookupOpcode(w.Name)
		require.True(t, ok)
		require.Equal(t, op, back)

		// What the name says, the flags say.
		_, name, _ := strings.Cut(got.Name, "_")
		require.Equal(t, strings.Contains(name, "_IMM"), got.Has(HasImm), got.Name)
		require.Equal(t, strings.HasSuffix(name, "_INV"), got.Has(HasInv), got.Name)
		require.Equal(t, got.Has(HasImm), got.Ext&ExtImmDt != 0, got.Name)
		require.Equal(t, got.Has(HasInv), got.Ext&ExtIETH != 0, got.Name)
		require.Equal(t, response(name), got.Has(Response), got.Name)
		require.NotEqual(t, got.Has(Request), got.Has(Response), got.Name)
		require.Equal(t, strings.Contains(name, "FIRST"), got.Has(First), got.Name)
		require.Equal(t, strings.Contains(name, "MIDDLE"), got.Has(Middle), got.Name)
		require.Equal(t, strings.Contains(name, "LAST"), got.Has(Last), got.Name)
		require.Equal(t, !got.Has(First|Middle|Last), got.Has(Only), got.Name)
		require.Equal(t, got.Has(HasImm) || got.Op == OpSend && got.Has(Ends), got.Has(TakesRecv), got.Name)
		carries := got.Op == OpSend || got.Op == OpWrite || got.Op == OpReadResp || got.Op == OpAtomicWrite
		require.Equal(t, carries, got.Has(HasPayload), got.Name)
	}
	_, ok := LookupOpcode("")
	require.False(t, ok)
	_, ok = LookupOpcode("RC_NOTHING")
	require.False(t, ok)
}

// tsharkName turns a name of ours into tshark's.
func tsharkName(i *Info) string {
	class := map[Class]string{
		RC: "Reliable Connection (RC)", UC: "Unreliable Connection (UC)", RD: "Reliable Datagram (RD)", UD: "Unreliable Datagram (UD)",
		XRC: "Extended Reliable Connection (XRC)",
	}[i.Class]
	_, op, _ := strings.Cut(i.Name, "_")
	if i.Class == UD { // spelled otherwise there
		return class + " - " + strings.NewReplacer("SEND_ONLY", "SEND only", "_IMM", " with Immediate").Replace(op)
	}
	switch op {
	case "ACK":
		op = "Acknowledge"
	case "ATOMIC_ACK":
		op = "ATOMIC Acknowledge"
	case "CMP_SWAP":
		op = "CmpSwap"
	case "FETCH_ADD":
		op = "FetchAdd"
	case "READ_REQ":
		op = "RDMA READ Request"
	default:
		op = strings.NewReplacer(
			"WRITE_", "RDMA WRITE ", "READ_RESP_", "RDMA READ response ", "SEND_", "SEND ", "FIRST", "First", "MIDDLE", "Middle", "LAST", "Last",
			"ONLY", "Only", "_IMM", " with Immediate", "_INV", " with Invalidate",
		).Replace(op)
	}
	return class + " - " + op
}

// TestTableAgainstTshark compares names and numbers with another decoder's.
// tshark 4.0 lacks FLUSH, ATOMIC WRITE and has CNP under another number.
func TestTableAgainstTshark(t *testing.T) {
	if testing.Short() {
		t.Skip("starts tshark, which takes seconds: not with -short")
	}
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark (Debian package tshark), which is not installed")
	}
	out, err := exec.Command("tshark", "-G", "values").Output()
	require.NoError(t, err)
	theirs := map[Opcode]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t") // V, field, value, name
		if len(f) != 4 || f[1] != "infiniband.bth.opcode" {
			continue
		}
		v, err := strconv.ParseUint(f[2], 0, 8)
		require.NoError(t, err)
		theirs[Opcode(v)] = f[3]
	}
	require.Greater(t, len(theirs), 80)
	for o := range 256 {
		op, name := Opcode(o), theirs[Opcode(o)]
		switch {
		case op == RCFlush, op == RCAtomicWrite, op == CNP: // ours alone
			require.Empty(t, name)
		case name == "CNP", strings.HasSuffix(name, "Reserved"): // theirs alone
			require.False(t, op.Valid(), "%#02x", o)
		case name == "":
			require.False(t, op.Valid(), "%#02x", o)
		case op == 0x55:
			require.Equal(t, "Reliable Datagram (RD) - RESYNC", name)
		default:
			require.True(t, op.Valid(), "%#02x %s", o, name)
			require.Equal(t, name, tsharkName(op.Info()), "%#02x", o)
		}
	}
}
