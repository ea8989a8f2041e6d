// Command embed is the program of the README: a NIC in 30 lines, twice.
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

type end struct {
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
	ep verbs.Endpoint // what the peer must know, beside the region's address and key
}

func open(addr, peer string) (e end) {
	dev := must(gorxe.Open(gorxe.Config{Addr: addr})) // or Interface: "eth0"
	pd := must(dev.AllocPD())
	e.mr = must(pd.AllocMR(1<<20, verbs.AccessAll))
	e.cq = must(dev.CreateCQ(verbs.CQConfig{Depth: 16}))
	e.qp = must(pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq}))
	e.ep = must(e.qp.Endpoint(netip.MustParseAddr(peer)))
	return e
}

func main() {
	a, b := open("127.0.0.3", "127.0.0.4"), open("127.0.0.4", "127.0.0.3")
	check(a.qp.Connect(a.ep, b.ep, verbs.ConnectOptions{})) // endpoints travel over TCP, say
	check(b.qp.Connect(b.ep, a.ep, verbs.ConnectOptions{}))
	n := copy(a.mr.Bytes(), "hello from the other side")
	must(a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(0, n)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}}))
	var wc [1]verbs.WC
	must(a.cq.Wait(context.Background(), wc[:]))
	check(wc[0].Err()) // on failure it says what that usually means
	fmt.Printf("%s\n", b.mr.Bytes()[:n])
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
