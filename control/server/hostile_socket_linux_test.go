package server_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

func wrongHello(t *testing.T, x *arena) {
	for _, h := range []control.Hello{
		{Magic: control.Magic + 1, Major: control.VersionMajor},
		{Magic: control.Magic, Major: control.VersionMajor + 1},
		{Magic: control.Magic},
	} {
		r := x.connect(t)
		st, text, _ := r.call(control.OpHello, &h)
		require.Equal(t, control.BadMessage, st)
		if h.Magic == control.Magic {
			require.Contains(t, string(text), "this rxed speaks 1.0")
		}
		_, err := r.answer()
		require.Error(t, err, "the connection is still there")
	}
}

func callBeforeHello(t *testing.T, x *arena) {
	for _, op := range []control.Op{control.OpAllocPD, control.OpWake, control.OpDestroy, control.OpHello} {
		r := x.connect(t)
		r.cutOff(r.message(op, nil))
	}
}

func secondHello(t *testing.T, x *arena) {
	r := x.raw(t)
	r.cutOff(r.message(control.OpHello, &control.Hello{Magic: control.Magic, Major: control.VersionMajor}))
}

func badFraming(t *testing.T, x *arena) {
	for _, hello := range []bool{false, true} {
		lies := (&raw{}).message(control.OpAllocPD, nil)
		binary.LittleEndian.PutUint32(lies, 17)
		for _, b := range [][]byte{make([]byte, control.HeaderLen/2), make([]byte, control.MaxMessage+1), make([]byte, control.MaxMessage+5000), lies} {
			r := x.connect(t)
			if hello {
				r = x.raw(t)
			}
			r.cutOff(b)
		}
	}
}

func unknownOp(t *testing.T, x *arena) {
	for _, op := range []control.Op{0, 7, 15, 30, 49, control.OpEvent, control.OpAllocPD | control.OpReply, 0xffff} {
		r := x.raw(t)
		r.cutOff(r.message(op, nil))
	}
}

// structs are the bodies that operations need.
var structs = map[control.Op]any{
	control.OpChooseGID: control.ChooseGIDReq{}, control.OpRegMR: control.RegMRReq{}, control.OpAllocMW: control.AllocMWReq{},
	control.OpCreateCQ: control.CreateCQReq{}, control.OpCreateSRQ: control.CreateSRQReq{}, control.OpModifySRQ: control.LimitReq{},
	control.OpQuerySRQ: control.LimitReq{}, control.OpCreateAH: control.CreateAHReq{}, control.OpCreateQP: control.CreateQPReq{},
	control.OpModifyQP: control.ModifyQPReq{}, control.OpQueryQP: control.HandleReq{}, control.OpAttachMcast: control.McastReq{},
	control.OpDetachMcast: control.McastReq{}, control.OpDestroy: control.HandleReq{},
}

func shortBody(t *testing.T, x *arena) {
	for op, v := range structs {
		r := x.raw(t)
		r.cutOff(r.message(op, make([]byte, binary.Size(v)-1)))
	}
	// A longer one is a later minor version's.
	r := x.raw(t)
	sys.CloseFDs(r.must(control.OpCreateCQ, []uint32{8, 0, 1, 2, 3}, nil)...)
}

func descriptors(t *testing.T, x *arena) {
	r := x.raw(t)
	before := openFiles(t)
	for range 50 {
		require.NoError(t, r.write(r.message(control.OpAllocPD, nil), 0, 1, 2))
		m, err := r.answer()
		require.NoError(t, err)
		require.Equal(t, control.OK, m.Status)
	}
	require.Eventually(t, func() bool { return openFiles(t) <= before }, 10*time.Second, time.Millisecond)
	r.cutOff(r.message(control.OpAllocPD, nil), 0, 1, 2, 0, 1, 2)
	r = x.connect(t)
	r.cutOff(make([]byte, 8), 0, 1, 2)
}

// foreignHandles tries a client's handles, all kinds of them, as another.
func foreignHandles(t *testing.T, x *arena) {
	v := x.raw(t).queuePair(verbs.UD, nil)
	var srq control.RingReply
	v.r.mapped(v.r.must(control.OpCreateSRQ, &control.CreateSRQReq{PD: v.pd, MaxWR: 8, MaxSGE: 1}, &srq), 4096)
	var ah control.HandleReply
	v.r.must(control.OpCreateAH, &control.CreateAHReq{PD: v.pd, AV: control.AV{DGID: verbs.GIDOf(peerAddr)}}, &ah)
	var mw control.AllocMWReply
	v.r.must(control.OpAllocMW, &control.AllocMWReq{PD: v.pd, Type: 1}, &mw)

	r := x.raw(t)
	pd := r.pd()
	cq, _ := r.createCQ(8)
	for kind, h := range map[verbs.ObjectKind]uint32{
		verbs.KindPD: v.pd, verbs.KindCQ: v.cq, verbs.KindMR: v.mr.Handle, verbs.KindQP: v.qp.Handle, verbs.KindSRQ: srq.Handle,
		verbs.KindAH: ah.Handle, verbs.KindMW: mw.Handle,
	} {
		r.refused(control.Closed, "of this client has handle", control.OpDestroy, &control.HandleReq{Handle: h, Kind: uint32(kind)})
	}
	for op, body := range map[control.Op]any{
		control.OpRegMR: &control.RegMRReq{PD: v.pd, Len: 1}, control.OpAllocMW: &control.AllocMWReq{PD: v.pd, Type: 1},
		control.OpCreateSRQ: &control.CreateSRQReq{PD: v.pd, MaxWR: 1, MaxSGE: 1}, control.OpCreateAH: &control.CreateAHReq{PD: v.pd},
		control.OpModifySRQ: &control.LimitReq{Handle: srq.Handle}, control.OpQuerySRQ: &control.LimitReq{Handle: srq.Handle},
		control.OpModifyQP: &control.ModifyQPReq{Handle: v.qp.Handle}, control.OpQueryQP: &control.HandleReq{Handle: v.qp.Handle},
		control.OpAttachMcast: &control.McastReq{Handle: v.qp.Handle}, control.OpDetachMcast: &control.McastReq{Handle: v.qp.Handle},
	} {
		r.refused(control.Closed, "of this client has handle", op, body)
	}
	good := control.CreateQPReq{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(verbs.RC)}
	for _, change := range []func(*control.CreateQPReq){
		func(q *control.CreateQPReq) { q.PD = v.pd },
		func(q *control.CreateQPReq) { q.SendCQ = v.cq },
		func(q *control.CreateQPReq) { q.RecvCQ = v.cq },
		func(q *control.CreateQPReq) { q.SRQ = srq.Handle },
	} {
		q := good
		change(&q)
		r.refused(control.Closed, "of this client has handle", control.OpCreateQP, &q)
	}
	require.Equal(t, verbs.StateReset, v.state())
}

func staleHandles(t *testing.T, x *arena) {
	r := x.raw(t)
	q := r.queuePair(verbs.RC, nil)
	r.destroy(verbs.KindQP, q.qp.Handle)
	r.refused(control.Closed, "queue pair", control.OpQueryQP, &control.HandleReq{Handle: q.qp.Handle})
	again := r.queuePair(verbs.RC, nil)
	require.NotEqual(t, q.qp.Handle, again.qp.Handle, "the doorbell is the same, and so is the handle")
	r.refused(control.Closed, "queue pair", control.OpDestroy, &control.HandleReq{Handle: q.qp.Handle, Kind: uint32(verbs.KindQP)})
}

func destroyInUse(t *testing.T, x *arena) {
	r := x.raw(t)
	q := r.queuePair(verbs.RC, nil)
	r.refused(control.InUse, "destroy the queue pairs that use it first", control.OpDestroy, &control.HandleReq{Handle: q.cq, Kind: uint32(verbs.KindCQ)})
	r.refused(control.InUse, "destroy them first", control.OpDestroy, &control.HandleReq{Handle: q.pd, Kind: uint32(verbs.KindPD)})
	var mw control.AllocMWReply
	r.must(control.OpAllocMW, &control.AllocMWReq{PD: q.pd, Type: 1}, &mw)
	r.destroy(verbs.KindQP, q.qp.Handle)
	r.destroy(verbs.KindCQ, q.cq)
	r.refused(control.InUse, "1 memory windows", control.OpDestroy, &control.HandleReq{Handle: q.pd, Kind: uint32(verbs.KindPD)})
}

func unknownBits(t *testing.T, x *arena) {
	r := x.raw(t)
	q := r.queuePair(verbs.RC, nil)
	for _, k := range []uint32{0, uint32(verbs.KindMW) + 1, 256 + uint32(verbs.KindQP), 1<<32 - 1} {
		r.refused(control.NotSupported, "objects of kind", control.OpDestroy, &control.HandleReq{Handle: q.qp.Handle, Kind: k})
	}
	a := control.QPAttr{State: uint32(verbs.StateInit), Port: 1, AV: control.AV{DGID: verbs.GIDOf(peerAddr)}, PathMTU: 1024}
	m := uint32(verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess)
	for bit := range 32 {
		if m>>bit&1 == 0 {
			r.refused(control.BadState, "does not take", control.OpModifyQP, &control.ModifyQPReq{Handle: q.qp.Handle, Mask: m | 1<<bit, Attr: a})
		}
	}
	for _, state := range []uint32{7, 255, 256 + uint32(verbs.StateInit), 1<<32 - 1} {
		a.State = state
		r.refused(control.BadState, "", control.OpModifyQP, &control.ModifyQPReq{Handle: q.qp.Handle, Mask: m, Attr: a})
	}
	require.Equal(t, verbs.StateReset, q.state())
}

func badRegions(t *testing.T, x *arena) {
	r := x.raw(t)
	pd := r.pd()
	for _, n := range []uint64{0, 1 << 47, 1 << 63, 1<<64 - 1} {
		r.refused(control.Limit, "memory region of", control.OpRegMR, &control.RegMRReq{PD: pd, Len: n})
	}
	for _, at := range []uint64{1<<64 - 1, 1<<64 - 4095} {
		r.refused(control.Failed, "wraps the address space", control.OpRegMR, &control.RegMRReq{PD: pd, Len: 4096, IOVA: at})
	}
	var mr control.RegMRReply
	r.mapped(r.must(control.OpRegMR, &control.RegMRReq{PD: pd, Len: 4096, IOVA: 1<<64 - 4096}, &mr), 4096)
}

func limits(t *testing.T, x *arena) {
	r := x.raw(t)
	pd := r.pd()
	for range 40 {
		r.mapped(r.must(control.OpRegMR, &control.RegMRReq{PD: pd, Len: 1}, nil), 4096)
	}
	r.refused(control.Limit, "per_client.mrs in rxed's configuration), and this one", control.OpRegMR, &control.RegMRReq{PD: pd, Len: 1})
	r.refused(control.Limit, "register fewer, larger regions", control.OpRegMR, &control.RegMRReq{PD: pd, Len: 1})
	r.refused(control.Failed, "is not in 1..", control.OpCreateCQ, &control.CreateCQReq{Depth: 1 << 31})
	r.createCQ(1 << 19)
	r.refused(control.Limit, "per_client.bytes", control.OpCreateSRQ, &control.CreateSRQReq{PD: pd, MaxWR: 32768, MaxSGE: 32})
	r.refused(control.Limit, "no deeper than what is outstanding", control.OpCreateCQ, &control.CreateCQReq{Depth: 1<<19 + 1})
	r.refused(control.Failed, "the limit is", control.OpCreateQP, &control.CreateQPReq{PD: pd, MaxSendWR: 1 << 31})
}

func wakeStorm(t *testing.T, x *arena) {
	r := x.raw(t)
	var n uint32
	x.while(100*time.Millisecond, func() {
		_ = r.write(r.message(control.OpWake, &control.WakeReq{Shard: n}))
		n = n*5 + 1
	})
	r.pd()
}

func silentConnects(t *testing.T, x *arena) {
	for i := range 1000 {
		r := x.connect(t)
		if i%3 == 0 {
			_ = r.write(make([]byte, 3))
		}
		if i%250 == 249 {
			x.raw(t).pd()
			x.traffic()
		}
	}
	x.raw(t).pd()
}

// killed kills a program that is sending and being written to.
func killed(t *testing.T, x *arena) {
	b := newEnd(t, x.peer, verbs.RC, 1<<20)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess$")
	lb, err := b.qp.Endpoint(servedAddr)
	require.NoError(t, err)
	peer, err := json.Marshal(lb)
	require.NoError(t, err)
	cmd.Env = append(os.Environ(), "HELPER_SOCKET="+x.socket, "HELPER_PEER="+string(peer))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var la verbs.Endpoint
	require.NoError(t, json.NewDecoder(out).Decode(&la))
	require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{Timeout: 8}))
	for range 64 {
		b.recv(0, 1<<20)
	}
	b.wait() // it is at it
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	x.traffic()
	require.NoError(t, b.qp.Destroy())
}

// TestHelperProcess is the program that is killed.
func TestHelperProcess(t *testing.T) {
	socket := os.Getenv("HELPER_SOCKET")
	if socket == "" {
		return // nothing by itself: the test that kills it gives the socket
	}
	c, err := control.Dial(t.Context(), socket, control.Want{})
	require.NoError(t, err)
	e := newEnd(t, verbs.NewContext(c), verbs.RC, 1<<20)
	var lb verbs.Endpoint
	require.NoError(t, json.Unmarshal([]byte(os.Getenv("HELPER_PEER")), &lb))
	la, err := e.qp.Endpoint(peerAddr)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(la))
	require.NoError(t, e.qp.Connect(la, lb, verbs.ConnectOptions{}))
	for {
		e.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{e.mr.SGE(0, 1<<20)}})
		e.wait()
	}
}

// neverReads has the clients that stop in the middle.
func neverReads(t *testing.T, x *arena) {
	base := len(x.server.Clients())
	answers, events, silent := x.raw(t), x.raw(t), x.connect(t)
	// One breaks its queue pairs, all at once, and reads no event.
	q := events.queuePair(verbs.RC, nil)
	q.cq, _ = events.createCQ(4096)
	all := []*rawQP{q}
	for range 1500 {
		n := *q
		fds := events.must(control.OpCreateQP, &control.CreateQPReq{PD: q.pd, SendCQ: q.cq, RecvCQ: q.cq, Type: uint32(verbs.RC), MaxSendWR: 1, MaxRecvWR: 1}, &n.qp)
		n.sq = events.mapped(fds, n.qp.MapBytes)
		n.up(verbs.RC, verbs.Endpoint{QPN: 5})
		all = append(all, &n)
	}
	for i, q := range all[1:] {
		word(q.sq, atProducer).Store(1 << 31)
		if q.ring(); i%50 == 0 { // the device's own queue of events is short, too
			x.traffic()
		}
	}
	lost := func() (n uint64) {
		for _, c := range x.server.Clients() {
			n += c.EventsLost
		}
		return n
	}
	require.Eventually(t, func() bool { return lost() > 0 }, 10*time.Second, time.Millisecond, "all events found room")
	// One asks, and reads no answer.
	for i, b := 0, answers.message(control.OpCounters, nil); ; i++ {
		require.Less(t, i, 100000, "the daemon takes calls for ever")
		_ = answers.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, _, err := answers.conn.WriteMsgUnix(b, nil, nil); err != nil {
			break
		}
	}
	for end := time.Now().Add(15 * time.Second); len(x.server.Clients()) > base; {
		require.True(t, time.Now().Before(end), "clients that do not read are still there: %v", x.server.Clients())
		x.traffic()
	}
	_, err := silent.answer()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "who says nothing is waited for")
	x.raw(t).pd()
}

// Clients that come at once are no more than the limit lets in, and none is let in
// once the device is closed: nobody would end it.
func TestClientLimitHolds(t *testing.T) {
	const most = 3
	s := newSite(t, gorxe.PairConfig{}, server.Config{Device: server.Limits{Clients: most}})
	var in, full atomic.Int32
	var wg sync.WaitGroup
	hold := make(chan struct{})
	for range 40 {
		wg.Go(func() {
			c, err := control.Dial(t.Context(), s.socket, control.Want{})
			if err != nil {
				assert.ErrorIs(t, err, verbs.ErrLimit)
				assert.ErrorContains(t, err, "3 clients of rxe0")
				full.Add(1)
				return
			}
			in.Add(1)
			<-hold
			assert.NoError(t, c.Close())
		})
	}
	require.Eventually(t, func() bool { return in.Load()+full.Load() == 40 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, most, in.Load())
	close(hold)
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.server.Close(ctx))
	_, err := control.Dial(t.Context(), s.socket, control.Want{})
	require.ErrorIs(t, err, verbs.ErrClosed)
}
