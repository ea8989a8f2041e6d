package rc

import (
	"testing"

	"github.com/gorxe/gorxe/verbs"
)

// The window of a small path MTU is twice as many packets, up to 256, but for a
// window that is larger itself.
func TestWindowOfSmallMTU(t *testing.T) {
	for _, c := range []struct {
		window int
		mtu    verbs.MTU
		want   int
	}{{1, 1024, 2}, {64, 2048, 128}, {128, 256, 256}, {129, 256, 256}, {200, 1024, 256}, {256, 256, 256}, {257, 256, 257}, {300, 256, 300}, {200, 4096, 200}} {
		r := newRawMem(t, 100, 1<<21)
		cfg := r.qp.cfg
		cfg.Window = c.window
		r.qp = New(cfg)
		r.connect(verbs.QPAttr{PathMTU: c.mtu, SQPSN: 100, RQPSN: 100, Timeout: 14, RetryCnt: 7, RNRRetry: 7})
		r.post(1, verbs.WRWrite, 400*int(c.mtu))
		r.sent()
		if len(r.pkts) != c.want {
			t.Errorf("window %d, MTU %d: %d packets in flight, want %d", c.window, c.mtu, len(r.pkts), c.want)
		}
	}
}

// READs are asked for by half a window, of a window of one by single packets.
func TestReadsOfSmallWindows(t *testing.T) {
	for _, c := range []struct {
		window int
		mtu    verbs.MTU
		part   int
	}{{1, 256, 1}, {1, 4096, 1}, {2, 4096, 1}, {3, 4096, 1}, {4, 4096, 2}} {
		r := newRaw(t, 100)
		cfg := r.qp.cfg
		cfg.Window = c.window
		r.qp = New(cfg)
		r.connect(verbs.QPAttr{PathMTU: c.mtu, SQPSN: 100, RQPSN: 100, MaxRdAtomic: 4, Timeout: 14, RetryCnt: 7, RNRRetry: 7})
		r.post(1, verbs.WRRead, 8*int(c.mtu))
		r.sent()
		if got := int(r.pkts[0].DMALen); got != c.part*int(c.mtu) {
			t.Errorf("window %d, MTU %d: asks for %d octets, want %d packets", c.window, c.mtu, got, c.part)
		}
	}
}
