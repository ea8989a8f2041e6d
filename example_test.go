package gorxe_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// must keeps the examples short.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// end is one end of a connection with what a program makes of it: the first
// three programs in one.
type end struct {
	dev *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func newEnd(dev *verbs.Context) *end {
	e := &end{dev: dev}
	e.pd = must(dev.AllocPD())
	e.mr = must(e.pd.RegMR(make([]byte, 1<<20), verbs.AccessAll))
	e.cq = must(dev.CreateCQ(verbs.CQConfig{Depth: 256}))
	e.qp = must(e.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq}))
	return e
}

func (e *end) addr() netip.Addr { return must(e.dev.GIDs())[0].GID.Addr() }

// connected returns the two ends of a connection in memory.
func connected(cfg gorxe.PairConfig) (a, b *end, closeBoth func()) {
	da, db := gorxe.NewPair(cfg)
	a, b = newEnd(da), newEnd(db)
	la, lb := must(a.qp.Endpoint(b.addr())), must(b.qp.Endpoint(a.addr()))
	check(a.qp.Connect(la, lb, verbs.ConnectOptions{}))
	check(b.qp.Connect(lb, la, verbs.ConnectOptions{}))
	return a, b, func() { check(da.Close()); check(db.Close()) }
}

// wait returns the next completion, which must be a success.
func (e *end) wait() verbs.WC {
	var wc [1]verbs.WC
	must(e.cq.Wait(context.Background(), wc[:]))
	check(wc[0].Err())
	return wc[0]
}

// 2. Register memory: the program's own, or the NIC's.
func Example_registerMemory() {
	dev, peer := gorxe.NewPair(gorxe.PairConfig{})
	defer dev.Close()
	defer peer.Close()

	pd := must(dev.AllocPD())
	buf := make([]byte, 1<<20)
	mr := must(pd.RegMR(buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	big := must(pd.AllocMR(64<<20, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	fmt.Println(mr.Addr() != 0, mr.RKey() != big.RKey(), len(big.Bytes()))
	// Output: true true 67108864
}

// 3. Connect a pair of queue pairs. Endpoints travel by any other way, such as
// TCP.
func Example_connect() {
	devA, devB := gorxe.NewPair(gorxe.PairConfig{})
	defer devA.Close()
	defer devB.Close()

	cq := must(devA.CreateCQ(verbs.CQConfig{Depth: 256}))
	pd := must(devA.AllocPD())
	qp := must(pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: cq, RecvCQ: cq}))
	peer := newEnd(devB)

	local := must(qp.Endpoint(peer.addr())) // QPN, first PSN, GID for that peer
	remote := must(peer.qp.Endpoint(netip.MustParseAddr("192.0.2.1")))
	check(qp.Connect(local, remote, verbs.ConnectOptions{}))
	fmt.Println(must(qp.Query()).State)
	// Output: RTS
}

// 4. SEND and RECV.
func Example_send() {
	a, b, done := connected(gorxe.PairConfig{})
	defer done()

	must(b.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 4096)}}}))
	copy(a.mr.Bytes(), "hello")
	must(a.qp.PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, 5)}, Flags: verbs.SendSignaled}}))
	got := b.wait()
	fmt.Println(got.ID, got.ByteLen, string(b.mr.Bytes()[:got.ByteLen]))
	fmt.Println(a.wait().ID)
	// Output:
	// 1 5 hello
	// 2
}

// 5. RDMA WRITE: the peer's program takes no part.
func Example_write() {
	a, b, done := connected(gorxe.PairConfig{})
	defer done()

	copy(a.mr.Bytes(), "written")
	must(a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 7)},
		RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
	}}))
	a.wait()
	fmt.Println(string(b.mr.Bytes()[100:107]))
	// Output: written
}

// 6. RDMA READ.
func Example_read() {
	a, b, done := connected(gorxe.PairConfig{})
	defer done()

	copy(b.mr.Bytes(), "read")
	must(a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRRead, SGL: []verbs.SGE{a.mr.SGE(0, 4)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
	}}))
	a.wait()
	fmt.Println(string(a.mr.Bytes()[:4]))
	// Output: read
}

// 7. FetchAdd: the value before comes back, in host order.
func Example_fetchAdd() {
	a, b, done := connected(gorxe.PairConfig{})
	defer done()

	for range 3 {
		must(a.qp.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
			CompareAdd: 5, Flags: verbs.SendSignaled,
		}}))
		a.wait()
	}
	fmt.Println(a.mr.Uint64(0), b.mr.Uint64(0))
	// Output: 10 15
}

// 8. Poll: never blocks, and drives the NIC in the caller's own thread.
func Example_poll() {
	a, b, done := connected(gorxe.PairConfig{})
	defer done()

	const want = 100
	for i := range want {
		must(a.qp.PostSend([]verbs.SendWR{{
			ID: uint64(i), Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
		}}))
	}
	var wc [16]verbs.WC
	for n := 0; n < want; {
		for _, c := range wc[:a.cq.Poll(wc[:])] {
			check(c.Err()) // status, vendor error, queue pair, and why in words
			n++
		}
	}
	fmt.Println("done")
	// Output: done
}

// 9. Wait with a context: spins briefly, then sleeps.
func Example_wait() {
	a, _, done := connected(gorxe.PairConfig{})
	defer done()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	var wc [16]verbs.WC
	n, err := a.cq.Wait(ctx, wc[:])
	fmt.Println(n, err)
	// Output: 0 context deadline exceeded
}

// 10. Two NICs in a test, on a network that loses packets.
func ExampleNewPair() {
	a, b, done := connected(gorxe.PairConfig{Faults: "tx drop 1%", Seed: 1})
	defer done()

	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i >> 8)
	}
	must(a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
	}}))
	a.wait()
	fmt.Println(string(a.mr.Bytes()) == string(b.mr.Bytes()))
	fmt.Println(must(a.dev.Counters())["repeated_requests"] > 0)
	// Output:
	// true
	// true
}
