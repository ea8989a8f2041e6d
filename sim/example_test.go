package sim_test

import (
	"errors"
	"fmt"
	"net/netip"
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
	// Output: success after 68.118864ms
}

// A datagram to a multicast group, that each of three nodes but the sender
// receives, behind the 40 octets that tell where it came from.
func Example_multicast() {
	s, err := sim.New(sim.Config{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	const qkey = 0x11111111
	group := verbs.GIDOf(netip.MustParseAddr("239.1.2.3"))
	for i := range 3 {
		n, _ := s.Add(sim.NodeConfig{})
		pd, _ := n.Ctx.AllocPD()
		mr, _ := pd.AllocMR(4096, verbs.AccessLocalWrite)
		cq, _ := n.Ctx.CreateCQ(verbs.CQConfig{Depth: 16})
		qp, _ := pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, RecvCQ: cq})
		if err := errors.Join(qp.Activate(verbs.DatagramOptions{QKey: qkey}), qp.AttachMulticast(group)); err != nil {
			panic(err)
		}
		qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{mr.SGE(0, 4096)}}})
		n.OnStep = func() {
			var wc [1]verbs.WC
			for cq.Poll(wc[:]) == 1 {
				from, _ := n.Ctx.AVFrom(&wc[0], mr.Bytes())
				fmt.Printf("%v: %s from %v\n", n.Addr, mr.Bytes()[verbs.GRHLen:wc[0].ByteLen], from.DGID.Addr())
			}
		}
		if i == 2 {
			ah, _ := pd.CreateAH(verbs.AV{DGID: group})
			qp.PostSend([]verbs.SendWR{{
				Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("hello"),
				AH: ah.Handle(), RemoteQPN: 0xffffff, RemoteQKey: qkey,
			}})
		}
	}
	s.Run(time.Second)
	// Output:
	// 10.0.0.1: hello from 10.0.0.3
	// 10.0.0.2: hello from 10.0.0.3
}

// Of ten messages that fail together, those that it takes: the receiver has one
// buffer of 100 octets for each, and the messages are posted in order.
func ExampleShrink() {
	fails := func(lengths []int) bool {
		s, err := sim.New(sim.Config{})
		if err != nil {
			panic(err)
		}
		defer s.Close()
		var cq [2]*verbs.CQ
		var qp [2]*verbs.QP
		var mr [2]*verbs.MR
		var nodes [2]*sim.Node
		for i := range nodes {
			nodes[i], _ = s.Add(sim.NodeConfig{})
			pd, _ := nodes[i].Ctx.AllocPD()
			mr[i], _ = pd.AllocMR(4096, verbs.AccessAll)
			cq[i], _ = nodes[i].Ctx.CreateCQ(verbs.CQConfig{Depth: 64})
			qp[i], _ = pd.CreateQP(verbs.QPConfig{SendCQ: cq[i], RecvCQ: cq[i]})
		}
		if err := sim.Connect(nodes[0], nodes[1], qp[0], qp[1], sim.Conn{}); err != nil {
			panic(err)
		}
		for _, n := range lengths {
			qp[1].PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{mr[1].SGE(0, 100)}}})
			qp[0].PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{mr[0].SGE(0, n)}, Flags: verbs.SendSignaled}})
		}
		s.Run(time.Second)
		wc := make([]verbs.WC, len(lengths))
		for _, c := range wc[:cq[0].Poll(wc)] {
			if c.Status == verbs.WCRemInvReqErr {
				return true
			}
		}
		return false
	}
	fmt.Println(sim.Shrink([]int{8, 16, 0, 100, 99, 101, 7, 50, 3000, 1}, fails))
	// Output: [3000]
}
