package transport

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// C9-95 to C9-98 at path MTU 256: which lengths each position may have.
func TestLengthOK(t *testing.T) {
	for op, want := range map[bth.Opcode]func(n int) bool{
		bth.RCSendFirst:   func(n int) bool { return n == 256 },
		bth.RCWriteMiddle: func(n int) bool { return n == 256 },
		bth.RCSendLast:    func(n int) bool { return n > 0 && n < 257 },
		bth.RCWriteOnly:   func(n int) bool { return n < 257 },
		bth.RCReadReq:     func(n int) bool { return n == 0 },
		bth.RCFetchAdd:    func(n int) bool { return n == 0 },
	} {
		for _, n := range []int{0, 1, 2, 3, 4, 252, 255, 256, 257, 258, 260, 512} {
			for pad := range uint8(4) {
				p := bth.Packet{Opcode: op, Payload: make([]byte, n), Pad: pad}
				assert.Equal(t, want(n) && (n+int(pad))%4 == 0, LengthOK(&p, 256), "%v with %d octets and %d of pad", op, n, pad)
			}
		}
	}
}

// IBA 9.7.4.1.6: a WRITE has the length that its first packet's RETH says.
func TestWriteLength(t *testing.T) {
	check := func(left int, op bth.Opcode, dma uint32, n int) bool {
		w := WriteCursor{Left: left}
		return w.LengthOK(&bth.Packet{Opcode: op, DMALen: dma, Payload: make([]byte, n)})
	}
	for _, c := range []struct {
		op   bth.Opcode
		left int
		dma  uint32
		n    int
		want bool
	}{
		{bth.RCWriteFirst, 0, 257, 256, true},
		{bth.RCWriteFirst, 0, 256, 256, false},
		{bth.RCWriteFirst, 0, 0, 256, false},
		{bth.RCWriteFirst, 0, 1 << 31, 256, true},
		{bth.RCWriteFirst, 0, 1<<31 + 1, 256, false},
		{bth.RCWriteOnly, 0, 5, 5, true},
		{bth.RCWriteOnly, 5, 6, 5, false},
		{bth.RCWriteOnly, 5, 4, 5, false},
		{bth.RCWriteOnlyImm, 0, 0, 0, true},
		{bth.RCWriteMiddle, 257, 0, 256, true},
		{bth.RCWriteMiddle, 256, 0, 256, false},
		{bth.RCWriteLast, 7, 0, 7, true},
		{bth.RCWriteLast, 8, 0, 7, false},
		{bth.RCWriteLast, 6, 0, 7, false},
	} {
		assert.Equal(t, c.want, check(c.left, c.op, c.dma, c.n), "%+v", c)
	}
}

// A WRITE goes front to back through remote memory, and ends with its cursor at
// the end of it.
func TestPlaceWrite(t *testing.T) {
	mrs := mr.NewTable(1)
	reg, err := mrs.Register(mr.Region{PD: 1, IOVA: 0x1000, Mem: make([]byte, 16), Access: verbs.AccessRemoteWrite})
	require.NoError(t, err)
	m := new(Memory)
	m.Init(&Config{MRs: mrs, PD: 1})
	var w WriteCursor
	first := bth.Packet{Opcode: bth.RCWriteFirst, VA: 0x1002, RKey: reg.Key, DMALen: 6, Payload: []byte{1, 2, 3, 4}}
	assert.Equal(t, trace.None, w.Place(m, &first))
	assert.Equal(t, WriteCursor{VA: 0x1006, RKey: reg.Key, Left: 2, Total: 6}, w)
	assert.Equal(t, trace.None, w.Place(m, &bth.Packet{Opcode: bth.RCWriteMiddle, Payload: []byte{5}}))
	assert.Equal(t, trace.None, w.Place(m, &bth.Packet{Opcode: bth.RCWriteLast, Payload: []byte{6}}))
	assert.Equal(t, WriteCursor{VA: 0x1008, RKey: reg.Key, Left: 0, Total: 6}, w)
	assert.Equal(t, []byte{0, 0, 1, 2, 3, 4, 5, 6, 0}, reg.Mem[:9])

	// Nothing needs no key; one octet does.
	assert.Equal(t, trace.None, w.Place(m, &bth.Packet{Opcode: bth.RCWriteOnly}))
	assert.Equal(t, trace.FailAccess, w.Place(m, &bth.Packet{Opcode: bth.RCWriteOnly, DMALen: 1, Payload: []byte{1}}))
}

// The opcodes of IBA table 38 for packet i of n, of every operation that sends
// data, for RC and UC.
func TestPacketOpcode(t *testing.T) {
	for op, want := range map[verbs.WROpcode][4]string{ // only, first, middle, last
		verbs.WRSend:     {"SEND_ONLY", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"},
		verbs.WRSendImm:  {"SEND_ONLY_IMM", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST_IMM"},
		verbs.WRSendInv:  {"SEND_ONLY_INV", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST_INV"},
		verbs.WRWrite:    {"WRITE_ONLY", "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST"},
		verbs.WRWriteImm: {"WRITE_ONLY_IMM", "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM"},
	} {
		w := SendEntry{SendWQE: verbs.SendWQE{Opcode: op}}
		assert.Equal(t, "RC_"+want[0], w.PacketOpcode(bth.RCSendFirst, 0, 1).String())
		if op != verbs.WRSendInv { // UC has none
			assert.Equal(t, "UC_"+want[0], w.PacketOpcode(0x20, 0, 1).String())
		}
		for n := 2; n < 5; n++ {
			for i := range n {
				k := 2
				switch i {
				case 0:
					k = 1
				case n - 1:
					k = 3
				}
				assert.Equal(t, "RC_"+want[k], w.PacketOpcode(bth.RCSendFirst, i, n).String(), fmt.Sprint(op, i, n))
			}
		}
	}
}

func TestPackets(t *testing.T) {
	for _, c := range []struct{ n, mtu, want int }{
		{0, 256, 1}, {1, 256, 1}, {256, 256, 1}, {257, 256, 2}, {512, 256, 2}, {513, 256, 3}, {MaxMessage, 4096, 1 << 19}, {5, 0, 1}, {2, 1, 2},
	} {
		assert.Equal(t, c.want, Packets(c.n, c.mtu), "%+v", c)
	}
}

// IBA 11.4.2.1: what a completion says of a send request, by operation.
func TestCompletion(t *testing.T) {
	for op, want := range map[verbs.WROpcode]verbs.WC{
		verbs.WRSend:     {Opcode: verbs.WCSend},
		verbs.WRSendImm:  {Opcode: verbs.WCSend},
		verbs.WRSendInv:  {Opcode: verbs.WCSend},
		verbs.WRWrite:    {Opcode: verbs.WCWrite},
		verbs.WRWriteImm: {Opcode: verbs.WCWrite},
		verbs.WRRead:     {Opcode: verbs.WCRead, ByteLen: 99},
		verbs.WRCmpSwap:  {Opcode: verbs.WCCmpSwap, ByteLen: 8},
		verbs.WRFetchAdd: {Opcode: verbs.WCFetchAdd, ByteLen: 8},
	} {
		w := SendEntry{SendWQE: verbs.SendWQE{Opcode: op, ID: 7}, Length: 99}
		got := verbs.WC{Imm: 5, Flags: verbs.WCWithImm, VendorErr: 3} // of the one before
		w.Completion(&got, 0x11, verbs.WCRemOpErr, trace.FailRemoteOp)
		want.ID, want.QPN, want.Status, want.Reason = 7, 0x11, verbs.WCRemOpErr, trace.FailRemoteOp
		assert.Equal(t, want, got, op)
	}
}

// What the headers say of a request; only SENDs and WRITEs with immediate can be
// solicited, at their last packet.
func TestDescribe(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWriteImm} {
		for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited, ^verbs.SendSolicited} {
			for _, last := range []bool{false, true} {
				w := SendEntry{SendWQE: verbs.SendWQE{Opcode: op, Flags: flags, RemoteAddr: 1 << 40, RKey: 2, Imm: 3}, Length: 4}
				var p bth.Packet
				w.Describe(&p, last)
				se := last && flags == verbs.SendSolicited && op != verbs.WRWrite
				assert.Equal(t, bth.Packet{VA: 1 << 40, RKey: 2, DMALen: 4, Imm: 3, Inv: 3, SE: se}, p)
			}
		}
	}
}

func TestErrStatus(t *testing.T) {
	for why := range trace.Reason(255) {
		s, ok := ErrStatus(why)
		want := map[trace.Reason]verbs.WCStatus{
			trace.FailLocalLen: verbs.WCLocLenErr, trace.FailLocalProt: verbs.WCLocProtErr, trace.FailLocalQPOp: verbs.WCLocQPOpErr,
			trace.FailInvalidate: verbs.WCRemInvReqErr,
		}[why]
		assert.Equal(t, want, s, why)
		assert.Equal(t, want != 0, ok, why)
	}
}
