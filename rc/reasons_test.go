package rc

import (
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// TestReasons checks that an event is counted once under its reason, and that
// the receives flushed at a responder tell why: nothing else there does.
func TestReasons(t *testing.T) {
	p := newPair(t, 1024, 1<<16, 0, func(a, _ *verbs.QPAttr) { a.PathMTU = 4096 })
	for range 2 {
		p.b.recv(verbs.RecvWR{SGL: []verbs.SGE{p.b.sge(0, 20000)}})
	}
	for range 2 {
		if err := p.a.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{p.a.sge(0, 10000)}, Flags: verbs.SendSignaled}); err != nil {
			t.Fatal(err)
		}
	}
	if !p.run(p.a.want(2)) || len(p.b.wcs) != 2 {
		t.Fatalf("completions: %+v, %+v", p.a.wcs, p.b.wcs)
	}
	if w := p.a.wcs[0]; w.Status != verbs.WCRemInvReqErr || w.Reason != trace.FailInvalidReq {
		t.Errorf("requester: %+v", w)
	}
	for _, w := range append(p.b.wcs, p.a.wcs[1]) {
		if w.Status != verbs.WCWRFlushErr {
			t.Errorf("flushed: %+v", w)
		}
	}
	if w := p.b.wcs[0]; w.Reason != trace.FailReqLength {
		t.Errorf("responder: %v, want %v", w.Reason, trace.FailReqLength)
	}
	for _, c := range []struct {
		s    *side
		r    trace.Reason
		want uint64
	}{
		{p.a, trace.FailInvalidReq, 1}, {p.a, trace.FailFlushed, 1}, {p.b, trace.FailReqLength, 1}, {p.b, trace.FailFlushed, 2},
	} {
		if got := c.s.qp.Counts()[c.r]; got != c.want {
			t.Errorf("%s: %v counted %d times, want %d", c.s.name, c.r, got, c.want)
		}
	}
}
