package gorxe_test

import (
	"fmt"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// 13. Memory windows: a peer may write to a part of a region until one of the two
// ends it.
func Example_window() {
	a, b, done := connected(gorxe.PairConfig{Faults: "tx drop 10%", Seed: 1})
	defer done()

	buf := make([]byte, 8192)
	mr := must(b.pd.RegMR(buf, verbs.AccessLocalWrite|verbs.AccessMWBind)) // no remote rights of its own
	mw := must(b.pd.AllocMW(verbs.MWType2))
	bind := mw.Bind(mr, mr.Addr()+4096, 512, verbs.AccessRemoteWrite)
	must(b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRBindMW, Bind: bind, Flags: verbs.SendSignaled}}))
	mw.SetRKey(bind.NewKey)
	b.wait()

	// The peer writes, and gives the key back with a message.
	must(b.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{b.mr.SGE(0, 64)}}}))
	copy(a.mr.Bytes(), "hello through the window")
	must(a.qp.PostSend([]verbs.SendWR{
		{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 24)}, RemoteAddr: mr.Addr() + 4096, RKey: mw.RKey()},
		{Opcode: verbs.WRSendInv, Imm: mw.RKey(), SGL: []verbs.SGE{a.mr.SGE(0, 5)}, Flags: verbs.SendSignaled},
	}))
	a.wait()
	wc := b.wait()
	fmt.Println(string(buf[4096:4120]), wc.Flags&verbs.WCWithInv != 0, wc.Imm == mw.RKey())
	check(mr.Deregister()) // nothing is bound to it any more
	// Output: hello through the window true true
}
