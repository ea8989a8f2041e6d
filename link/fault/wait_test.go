package fault_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/wire"
)

// A Wait ends when a held packet is due, whichever way it goes, and also when
// the packet came to be held while it was waiting.
func TestWait(t *testing.T) {
	for _, dir := range []string{"tx", "rx"} {
		synctest.Test(t, func(t *testing.T) {
			as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := fault.Config{Rules: fault.MustParse(dir + " delay 5ms")}
			a, b := link.Link(fault.Wrap(as[0], cfg)), link.Link(bs[0])
			at := a
			if dir == "rx" {
				a, b = as[0], fault.Wrap(bs[0], cfg)
				at = b
			}
			ds := make([]wire.Datagram, 2)
			recv := func() int {
				if _, err := a.Recv(nil); err != nil {
					t.Fatal(err)
				}
				n, err := b.Recv(ds)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 5, Op: bth.RCSendOnly, Lens: []int{8}})
			hold := func() {
				a.Send([]*wire.Burst{burst})
				recv()
			}
			hold()
			start := time.Now()
			for recv() == 0 {
				if err := at.Wait(time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			if got := time.Since(start); got != 5*time.Millisecond {
				t.Errorf("%s: released after %v", dir, got)
			}
			if err := at.Wait(time.Millisecond); err != nil { // may be early once
				t.Fatal(err)
			}
			start = time.Now()
			if err := at.Wait(time.Millisecond); err != nil || time.Since(start) != time.Millisecond {
				t.Errorf("%s: nothing held: %v, %v", dir, time.Since(start), err)
			}
			// Send runs beside Wait here, as the link's contract allows.
			start = time.Now()
			woken := make(chan time.Duration)
			go func() {
				at.Wait(-1)
				woken <- time.Since(start)
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
			hold()
			if got := <-woken; got != time.Millisecond {
				t.Errorf("%s: a Wait for ever slept %v although a packet came to be held after 1ms", dir, got)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t, "tx delay 1ms", mem.Config{})
	r.send(r.burst(1))
	for range 2 {
		if err := r.a.Close(); err != nil {
			t.Error(err)
		}
	}
	r.now += 1e9
	_, s := r.a.Send([]*wire.Burst{r.burst(1)})
	_, v := r.a.Recv(make([]wire.Datagram, 1))
	for _, err := range []error{s, v, r.a.Wait(-1)} {
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, rules := range []string{"", "tx drop qpn=9; rx drop psn=99 seen=2", "tx drop 5%; tx dup 5%; tx delay 1us 5%", "rx drop 5%; rx dup 5%; rx delay 1us 5%"} {
		r := newRig(t, rules, mem.Config{})
		bs := []*wire.Burst{r.burst(15), r.burst(15)}
		ds := make([]wire.Datagram, 16)
		if avg := testing.AllocsPerRun(300, func() {
			r.now += 1e6
			r.a.Send(bs)
			for n := 1; n > 0; {
				n, _ = r.b.Recv(ds)
			}
		}); avg != 0 {
			t.Errorf("%q: %v allocations a round", rules, avg)
		}
	}
}
