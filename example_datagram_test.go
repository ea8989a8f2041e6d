package gorxe_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// qKey is what the senders and receivers of these datagrams have in common.
const qKey = 0x11111111

// datagramEnd is a program's end for datagrams: one queue pair serves any
// number of peers.
type datagramEnd struct {
	dev *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func newDatagramEnd(dev *verbs.Context) *datagramEnd {
	e := &datagramEnd{dev: dev, pd: must(dev.AllocPD()), cq: must(dev.CreateCQ(verbs.CQConfig{Depth: 256}))}
	e.mr = must(e.pd.AllocMR(1<<16, verbs.AccessLocalWrite))
	return e
}

// open returns a queue pair that sends and receives, from srq if there is one.
func (e *datagramEnd) open(srq *verbs.SRQ) *verbs.QP {
	qp := must(e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq}))
	check(qp.Activate(verbs.DatagramOptions{QKey: qKey}))
	return qp
}

// to returns the address handle of a peer or of a multicast group.
func (e *datagramEnd) to(peer netip.Addr) *verbs.AH {
	from := must(e.dev.ChooseGID(peer))
	return must(e.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(peer), SGIDIndex: from.Index}))
}

func (e *datagramEnd) wait() verbs.WC {
	var wc [1]verbs.WC
	must(e.cq.Wait(context.Background(), wc[:]))
	check(wc[0].Err())
	return wc[0]
}

const slot = verbs.GRHLen + 1024 // a receive: the GRH, and a datagram behind it

func (e *datagramEnd) recv(i int) verbs.RecvWR {
	return verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{e.mr.SGE(i*slot, slot)}}
}

// payload is what came into a receive; grh is what was before it.
func (e *datagramEnd) payload(wc *verbs.WC) (grh, data []byte) {
	b := e.mr.Bytes()[int(wc.ID)*slot:][:wc.ByteLen]
	return b[:verbs.GRHLen], b[verbs.GRHLen:]
}

// 11. Datagrams: two queue pairs take their receives from one shared queue, and
// answer whoever wrote to them.
func Example_datagrams() {
	devA, devB := gorxe.NewPair(gorxe.PairConfig{})
	defer devA.Close()
	defer devB.Close()
	client, server := newDatagramEnd(devA), newDatagramEnd(devB)

	srq := must(server.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 64}))
	must(srq.PostRecv([]verbs.RecvWR{server.recv(0), server.recv(1), server.recv(2)}))
	check(srq.SetLimit(2)) // tell when fewer than two are left
	services := []*verbs.QP{server.open(srq), server.open(srq)}

	qp := client.open(nil)
	there := client.to(must(devB.GIDs())[0].GID.Addr())
	for i, s := range services {
		must(qp.PostRecv([]verbs.RecvWR{client.recv(i)})) // for the answer
		must(qp.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: fmt.Appendf(nil, "question %d", i),
			AH: there.Handle(), RemoteQPN: s.QPN(), RemoteQKey: qKey,
		}}))
	}

	for _, s := range services {
		wc := server.wait()
		grh, question := server.payload(&wc)
		fmt.Printf("%s, to the right service: %v\n", question, wc.QPN == s.QPN())
		back := must(server.pd.CreateAH(must(devB.AVFrom(&wc, grh))))
		must(s.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: fmt.Appendf(nil, "answer to %s", question),
			AH: back.Handle(), RemoteQPN: wc.SrcQP, RemoteQKey: qKey,
		}}))
		wc = client.wait()
		_, answer := client.payload(&wc)
		fmt.Printf("%s\n", answer)
	}
	fmt.Println((<-devB.Events()).Type == verbs.EventSRQLimit)
	// Output:
	// question 0, to the right service: true
	// answer to question 0
	// question 1, to the right service: true
	// answer to question 1
	// true
}

// 12. Multicast: one datagram reaches every queue pair of a group.
func Example_multicast() {
	devA, devB := gorxe.NewPair(gorxe.PairConfig{})
	defer devA.Close()
	defer devB.Close()
	sender, hearer := newDatagramEnd(devA), newDatagramEnd(devB)

	group := netip.MustParseAddr("239.1.2.3")
	for i := range 2 {
		qp := hearer.open(nil)
		check(qp.AttachMulticast(verbs.GIDOf(group)))
		must(qp.PostRecv([]verbs.RecvWR{hearer.recv(i)}))
	}

	must(sender.open(nil).PostSend([]verbs.SendWR{{
		Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("to everybody"),
		AH: sender.to(group).Handle(), RemoteQPN: 0xffffff, RemoteQKey: qKey, // no queue pair: the group
	}}))
	for range 2 {
		wc := hearer.wait()
		_, data := hearer.payload(&wc)
		fmt.Printf("%s\n", data)
	}
	// Output:
	// to everybody
	// to everybody
}
