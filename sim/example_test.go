package sim_test

import (
	"fmt"
	"time"

	"github.com/gorxe/gorxe/sim"
	"github.com/gorxe/gorxe/verbs"
)

// Two NICs with 5 us of line between them, where the first sending of the
// first packet is lost: the WRITE takes a timeout and a round trip, in virtual
// time and in no time.
func Example() {
	s, err := sim.New(sim.Config{Latency: 5 * time.Microsecond, Faults: "tx drop limit=1"})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	type end struct {
		node *sim.Node
		cq   *verbs.CQ
		qp   *verbs.QP
		mr   *verbs.MR
	}
	open := func(faults string) (e end) {
		e.node, _ = s.Add(sim.NodeConfig{Faults: faults})
		pd, _ := e.node.Ctx.AllocPD()
		e.mr, _ = pd.AllocMR(4096, verbs.AccessAll)
		e.cq, _ = e.node.Ctx.CreateCQ(verbs.CQConfig{Depth: 16})
		e.qp, _ = pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq})
		return e
	}
	a, b := open(""), open("tx drop 0%")
	if err := sim.Connect(a.node, b.node, a.qp, b.qp, sim.Conn{}); err != nil {
		panic(err)
	}
	a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 4096)}, Flags: verbs.SendSignaled,
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}})
	var wc [1]verbs.WC
	s.RunUntil(func() bool { return a.cq.Poll(wc[:]) == 1 }, time.Second)
	fmt.Println(wc[0].Status, "after", s.Now())
	// Output: success after 67.118864ms
}
