package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake is a Provider that keeps its objects in plain fields. It carries out
// send requests when the doorbell rings, each with a completion on queue 1.
type fake struct {
	log    []string // calls of Objects and Close
	err    error    // of every call of Objects, when set
	short  string   // ring to make too short: "send", "recv" or "comp"
	events chan AsyncEvent

	mr MRReq
	// shadows are those of the regions in the program's memory, when it is not
	// nil; their keys are 100 and so on.
	shadows    [][]byte
	destroying func() // called while an object is destroyed, when set
	qpns       uint32 // added to the number of the next queue pair
	cqs        []*CompRing
	sq         *SendRing
	rq         *RecvRing
	sgl        [MaxSGE]SGE
	wqe        SendWQE
	wc         WC
	attr       QPAttr
	mask       []AttrMask

	srq   *RecvRing
	limit int
	av    AV

	bells, progress int
	wait            func(ctx context.Context, q *CompQueue, solicited bool) error
	bell            func() // instead of carrying out
}

func (f *fake) call(format string, a ...any) error {
	f.log = append(f.log, fmt.Sprintf(format, a...))
	return f.err
}

func (f *fake) QueryDevice() (DeviceAttr, error) { return DeviceAttr{Name: "fake0"}, f.err }
func (f *fake) QueryPort() (PortAttr, error)     { return PortAttr{ActiveMTU: 1024}, f.err }
func (f *fake) GIDs() ([]GIDEntry, error) {
	return []GIDEntry{{Index: 0}, {Index: 3, GID: GID{15: 3}}}, f.err
}
func (f *fake) ChooseGID(peer netip.Addr) (int, error)  { return int(peer.As16()[15]), f.err }
func (f *fake) Counters() (map[string]uint64, error)    { return map[string]uint64{"x": 1}, f.err }
func (f *fake) Events() <-chan AsyncEvent               { return f.events }
func (f *fake) Close() error                            { return f.call("Close") }
func (f *fake) AllocPD() (Handle, error)                { return 11, f.call("AllocPD") }
func (f *fake) QueryQP(Handle) (QPAttr, QPStats, error) { return f.attr, QPStats{"y": 2}, f.err }

func (f *fake) Destroy(k ObjectKind, h Handle) error {
	if f.destroying != nil {
		f.destroying()
	}
	return f.call("Destroy %d %d", k, h)
}

func (f *fake) RegMR(r MRReq) (MRInfo, error) {
	f.mr = r
	if r.Mem == nil {
		r.Mem = make([]byte, r.Len)
	}
	if r.DefaultIOVA {
		r.IOVA = 0x1000
	}
	i := MRInfo{Handle: 21, Mem: r.Mem, IOVA: r.IOVA, LKey: 31, RKey: 32}
	if f.shadows != nil && f.mr.Mem != nil {
		i.Shadow, i.LKey = make([]byte, len(r.Mem)), 100+uint32(len(f.shadows))
		f.shadows = append(f.shadows, i.Shadow)
	}
	return i, f.call("RegMR")
}

func (f *fake) AllocMW(r MWReq) (MWInfo, error) {
	return MWInfo{Handle: 71, RKey: 0x12345ff}, f.call("AllocMW %d %d", r.PD, r.Type)
}

func (f *fake) CreateCQ(c CQConfig) (CQInfo, error) {
	if err := f.call("CreateCQ %d %d", c.Depth, c.Vector); err != nil {
		return CQInfo{}, err
	}
	mem := NewRingMem(c.Depth)
	r, _ := NewCompRing(mem)
	f.cqs = append(f.cqs, r)
	return CQInfo{Handle: Handle(len(f.cqs)), Ring: f.ring("comp", mem)}, nil
}

func (f *fake) CreateQP(r QPReq) (QPInfo, error) {
	if err := f.call("CreateQP %d %d %d %v %v", r.PD, r.SendCQ, r.RecvCQ, r.Type, r.SigAll); err != nil {
		return QPInfo{}, err
	}
	f.limit = int(r.SRQ)
	sm := NewRingMem(r.Cap.MaxSendWR * SendUnits(r.Cap.MaxSendSGE, r.Cap.MaxInline))
	rm := NewRingMem(r.Cap.MaxRecvWR * RecvUnits(r.Cap.MaxRecvSGE))
	f.sq, _ = NewSendRing(sm)
	f.rq, _ = NewRecvRing(rm, r.Cap.MaxRecvSGE)
	return QPInfo{Handle: 41, QPN: 0x123 + f.qpns, PSN: 0x456, SendRing: f.ring("send", sm), RecvRing: f.ring("recv", rm)}, nil
}

func (f *fake) CreateSRQ(r SRQReq) (SRQInfo, error) {
	if err := f.call("CreateSRQ %d %d %d", r.PD, r.MaxWR, r.MaxSGE); err != nil {
		return SRQInfo{}, err
	}
	mem := NewRingMem(r.MaxWR * RecvUnits(r.MaxSGE))
	f.srq, _ = NewRecvRing(mem, r.MaxSGE)
	return SRQInfo{Handle: 51, Ring: f.ring("recv", mem)}, nil
}

func (f *fake) ModifySRQ(h Handle, limit int) error {
	f.limit = limit
	return f.call("ModifySRQ %d %d", h, limit)
}
func (f *fake) QuerySRQ(Handle) (int, error) { return f.limit, f.err }

func (f *fake) CreateAH(pd Handle, av *AV) (Handle, error) {
	f.av = *av
	return 61, f.call("CreateAH %d", pd)
}

func (f *fake) AttachMulticast(q Handle, g GID) error { return f.call("Attach %d %v", q, g.Addr()) }
func (f *fake) DetachMulticast(q Handle, g GID) error { return f.call("Detach %d %v", q, g.Addr()) }

func (f *fake) ring(name string, mem []byte) []byte {
	if f.short == name {
		return mem[:192+64]
	}
	return mem
}

func (f *fake) ModifyQP(h Handle, a *QPAttr, m AttrMask) error {
	if f.err == nil {
		if m&AttrState != 0 && a.State == StateReset {
			f.sq.Reset()
			f.rq.Reset()
		}
		f.attr = *a
		f.mask = append(f.mask, m)
	}
	return f.err
}

// carryOut ends every posted send request with success, as long as there is
// room for completions. It returns false when that was not so.
func (f *fake) carryOut() bool {
	c := f.cqs[0]
	for c.prod-c.ring.cons.Load() < c.ring.Units() {
		more, ok := f.sq.Fetch(&f.wqe, f.sgl[:])
		if !more {
			return true
		}
		f.wc = WC{}
		f.wqe.Name(&f.wc)
		if !ok {
			f.wc.Status = WCLocQPOpErr
		}
		f.sq.Retire(&f.wqe)
		c.Push(&f.wc)
	}
	return false
}

func (f *fake) Doorbell(Handle) {
	f.bells++
	if f.bell != nil {
		f.bell()
		return
	}
	f.carryOut()
}

func (f *fake) Progress(Handle) { f.progress++ }

func (f *fake) WaitCQ(ctx context.Context, _ Handle, q *CompQueue, solicited bool) error {
	return f.wait(ctx, q, solicited)
}

// open makes a QP over a fake, in a state.
func open(t testing.TB, cfg QPConfig, s QPState) (*fake, *QP, *CQ) {
	t.Helper()
	f := &fake{}
	ctx := NewContext(f)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	cfg.SendCQ, cfg.RecvCQ = cq, cq
	q, err := pd.CreateQP(cfg)
	require.NoError(t, err)
	require.NoError(t, q.Modify(&QPAttr{State: s}, AttrState))
	f.log, f.mask = nil, nil
	return f, q, cq
}
