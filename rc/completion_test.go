package rc

import (
	"testing"

	"github.com/gorxe/gorxe/verbs"
)

// Each operation's completion has its number, length and queue pair, status
// success and no reason; a receive completion also what the sender gave.
func TestCompletionFields(t *testing.T) {
	p := newPair(t, 256, 1<<16, 0)
	for id := range uint64(3) {
		p.b.recv(verbs.RecvWR{ID: 50 + id, SGL: []verbs.SGE{p.b.sge(0, 1000)}})
	}
	remote := func(w verbs.SendWR) verbs.SendWR {
		w.Flags, w.RemoteAddr, w.RKey = verbs.SendSignaled, p.b.reg.IOVA, p.b.reg.Key
		return w
	}
	for i, w := range []verbs.SendWR{
		{Opcode: verbs.WRSend, SGL: []verbs.SGE{p.a.sge(0, 300)}},
		{Opcode: verbs.WRSendImm, Imm: 77, SGL: []verbs.SGE{p.a.sge(0, 5)}},
		{Opcode: verbs.WRWriteImm, Imm: 78, SGL: []verbs.SGE{p.a.sge(0, 600)}},
		{Opcode: verbs.WRWrite, SGL: []verbs.SGE{p.a.sge(0, 5)}},
		{Opcode: verbs.WRRead, SGL: []verbs.SGE{p.a.sge(0, 300)}},
		{Opcode: verbs.WRFetchAdd, SGL: []verbs.SGE{p.a.sge(0, 8)}},
		{Opcode: verbs.WRCmpSwap, SGL: []verbs.SGE{p.a.sge(0, 8)}},
	} {
		w.ID = uint64(i)
		if err := p.a.send(remote(w)); err != nil {
			t.Fatal(err)
		}
	}
	if !p.run(p.a.want(7)) {
		t.Fatalf("stuck: %+v", p.a.wcs)
	}
	for i, want := range []verbs.WC{
		{Opcode: verbs.WCSend},
		{Opcode: verbs.WCSend},
		{Opcode: verbs.WCWrite},
		{Opcode: verbs.WCWrite},
		{Opcode: verbs.WCRead, ByteLen: 300},
		{Opcode: verbs.WCFetchAdd, ByteLen: 8},
		{Opcode: verbs.WCCmpSwap, ByteLen: 8},
	} {
		want.ID, want.QPN = uint64(i), 0x11
		if p.a.wcs[i] != want {
			t.Errorf("send completion %+v\nwant %+v", p.a.wcs[i], want)
		}
	}
	for i, want := range []verbs.WC{
		{Opcode: verbs.WCRecv, ByteLen: 300},
		{Opcode: verbs.WCRecv, ByteLen: 5, Flags: verbs.WCWithImm, Imm: 77},
		{Opcode: verbs.WCRecvWriteImm, ByteLen: 600, Flags: verbs.WCWithImm, Imm: 78},
	} {
		want.ID, want.QPN, want.SrcQP = 50+uint64(i), 0x12, 0x11
		if p.b.wcs[i] != want {
			t.Errorf("receive completion %+v\nwant %+v", p.b.wcs[i], want)
		}
	}
}
