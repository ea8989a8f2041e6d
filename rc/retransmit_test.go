package rc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// timeout14 is how long the timer of timeout code 14 runs, in ns: T, and the
// time that packets are given to leave.
const timeout14 = int64(4096)<<14 + 1e6

// B23: retry_cnt is literal, 0 to 7: n+1 sends, each T after the one before,
// then RETRY_EXC_ERR with the vendor error users look for; the rest is flushed.
func TestRetryCount(t *testing.T) {
	for n := range uint8(8) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rule(t, func(r *raw) {
				r.post(1, verbs.WRSend, 4)
				r.post(2, verbs.WRSend, 4)
				r.postRecv(3, 0, 4)
				for range n + 1 {
					r.wantDone("")
					r.wantSent("SEND_ONLY 0/4!", "SEND_ONLY 1/4!")
					if got := r.expire(); got != timeout14 {
						r.t.Fatalf("timeout after %d ns", got)
					}
				}
				if len(r.wcs) == 0 || r.wcs[0].VendorErr != 129 || r.wcs[0].Reason != trace.FailRetryExceeded {
					r.t.Fatalf("%+v", r.wcs)
				}
				r.wantDone("1 RETRY_EXC, 2 FLUSH, r3 FLUSH")
				r.wantSent("")
				r.wantState(verbs.StateErr)
				if r.expire() != -1 {
					r.t.Fatal("a timer runs in ERR")
				}
			}, func(a *verbs.QPAttr) { a.RetryCnt = n })
		})
	}
}

// Retries start afresh with every packet newly acknowledged, and with nothing
// else: not with a ghost ACK, not with a NAK that acknowledges nothing.
func TestRetriesResetOnProgress(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 600)
		r.sent()
		for i := range 3 {
			r.expire()
			r.sent()
			r.ack(-1) // a ghost
			r.expire()
			r.sent()
			if i < 2 {
				r.ack(i) // a packet further
			}
		}
		r.wantDone("")
		r.expire()
		r.wantDone("1 RETRY_EXC")
	}, func(a *verbs.QPAttr) { a.RetryCnt = 2 })
	rule(t, func(r *raw) { // part of a READ is progress
		r.post(1, verbs.WRRead, 600)
		for i := range 3 {
			r.sent()
			r.expire()
			r.sent()
			if i < 2 {
				r.resp(bth.RCReadRespMiddle, i, bytesOf(256, 0))
			}
		}
		r.wantDone("")
		r.expire()
		r.wantDone("1 RETRY_EXC")
	}, func(a *verbs.QPAttr) { a.RetryCnt = 1 })
}

// T is 4.096 us * 2^timeout, beside the time that packets are given to leave; 0
// is never. Progress starts the timer afresh.
func TestTimeout(t *testing.T) {
	for _, v := range []uint8{0, 1, 8, 14, 18, 31} {
		r := newRaw(t, 0xffffff, func(a *verbs.QPAttr) { a.Timeout = v })
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 4)
		r.sent()
		if v == 0 {
			if r.qp.Deadline() != never {
				t.Error("timeout 0 has a deadline")
			}
			continue
		}
		wait := int64(4096) << v
		wait += min(wait/4, 1e6)
		if r.qp.Deadline() != wait {
			t.Errorf("timeout %d: deadline %d, want %d", v, r.qp.Deadline(), wait)
		}
		r.now = 1000
		r.ack(0)
		if want := 1000 + wait; r.qp.Deadline() != want {
			t.Errorf("timeout %d: deadline %d after progress, want %d", v, r.qp.Deadline(), want)
		}
		r.now = r.qp.Deadline() - 1
		r.qp.HandleTimer(r.now)
		r.wantSent("") // too early
		r.now++
		r.qp.HandleTimer(r.now)
		r.wantSent("SEND_ONLY 1/4!")
		r.ack(1)
		if r.qp.Deadline() != never {
			t.Error("a deadline with nothing in flight")
		}
	}
}

// B26, B32: one restart for one loss, whatever repeats the news; it begins
// exactly at the NAK's PSN, in the middle of a message with its opcode.
func TestOneRestart(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 1000)
		r.post(2, verbs.WRWriteImm, 4)
		r.wantSent("SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_MIDDLE 2/256, SEND_LAST 3/232!, WRITE_ONLY_IMM 4/4!")
		r.nak(2, bth.NAKSequence)
		r.nak(2, bth.NAKSequence)
		r.wantSent("SEND_MIDDLE 2/256, SEND_LAST 3/232!, WRITE_ONLY_IMM 4/4!")
		r.nak(2, bth.NAKSequence)
		r.wantSent("")
		r.nak(3, bth.NAKSequence) // progress, and a new gap
		r.wantSent("SEND_LAST 3/232!, WRITE_ONLY_IMM 4/4!")
		r.expire() // that was lost too
		r.nak(3, bth.NAKSequence)
		r.wantSent("SEND_LAST 3/232!, WRITE_ONLY_IMM 4/4!")
		if n := r.qp.Counts()[trace.RetrySequence]; n != 2 {
			r.t.Fatalf("packet_seq_err is %d", n)
		}
		r.ack(4)
		r.wantDone("1 ok, 2 ok")
	})
}

// A late ACK moves on what waits to be sent again.
func TestAckDuringRestart(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 1000)
		r.post(2, verbs.WRWrite, 300)
		r.sent()
		r.expire()
		r.ack(1)
		r.wantSent("SEND_MIDDLE 2/256, SEND_LAST 3/232!, WRITE_FIRST 4/256, WRITE_LAST 5/44!")
		r.expire()
		r.ack(4)
		r.wantDone("1 ok")
		r.wantSent("WRITE_LAST 5/44!")
		r.expire()
		r.ack(5)
		r.wantDone("2 ok")
		r.wantSent("")
	})
}

// B21, B61: nothing leaves before the time of the table is over, whatever is
// posted or acknowledged meanwhile; then sending resumes at the NAK's PSN.
func TestRNRWait(t *testing.T) {
	micros := [32]int64{
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480,
		30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	}
	for code, us := range micros {
		r := newRaw(t, 0xfffffe)
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 600)
		r.post(3, verbs.WRSend, 4)
		r.sent()
		r.now = 5000
		r.nak(1, bth.RNRNAK(uint8(code)))
		r.wantDone("1 ok")
		r.now += us*1000 - 1
		r.qp.HandleTimer(r.now)
		r.nak(1, bth.RNRNAK(1))     // again: the wait is neither shortened nor prolonged
		r.nak(1, bth.NAKSequence)   // a late one
		r.ack(0)                    // a ghost
		r.post(4, verbs.WRWrite, 4) // something new
		r.wantSent("")
		r.now++
		r.qp.HandleTimer(r.now)
		r.wantSent("SEND_FIRST 1/256!")
		if got := r.qp.Deadline() - r.now; got != timeout14 {
			t.Errorf("the timer after an RNR wait is %d", got)
		}
		r.ack(1)
		r.wantSent("SEND_MIDDLE 2/256, SEND_LAST 3/88!, SEND_ONLY 4/4!, WRITE_ONLY 5/4!")
		r.ack(5)
		r.wantDone("2 ok, 3 ok, 4 ok")
	}
}

// An RNR wait ends by its timer even when the transport timer is off, and
// however sequence NAKs, implied NAKs and short sends fall into it.
func TestRNRWaitEnds(t *testing.T) {
	for name, f := range map[string]func(r *raw){
		"nothing":      func(*raw) {},
		"sequence NAK": func(r *raw) { r.nak(0, bth.NAKSequence) },
		"implied NAK":  func(r *raw) { r.resp(bth.RCReadRespOnly, 1, bytesOf(4, 0)) },
	} {
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRead} {
			t.Run(fmt.Sprint(name, op), func(t *testing.T) {
				r := newRaw(t, 100, func(a *verbs.QPAttr) { a.Timeout = 0 })
				r.post(1, op, 4)
				r.post(2, verbs.WRRead, 4)
				first, _, _ := strings.Cut(r.sent(), ", ")
				r.nak(0, bth.RNRNAK(12))
				f(r)
				if r.qp.State() == verbs.StateErr {
					return
				}
				if r.qp.Deadline() != never {
					r.expire()
				}
				if len(r.wcs) > 0 { // the first was acknowledged
					return
				}
				r.wantSent(first)
			})
		}
	}
}

// B22: rnr_retry n is n waits, then RNR_RETRY_EXC_ERR; 7 has no end. RNR NAKs
// take no transport retries.
func TestRNRRetry(t *testing.T) {
	for n := range uint8(8) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRaw(t, 0xffffff, func(a *verbs.QPAttr) { a.RNRRetry, a.RetryCnt = n, 0 })
			r.post(1, verbs.WRSend, 4)
			r.post(2, verbs.WRSend, 4)
			times := int(n)
			if n == 7 {
				times = 100
			}
			all := []string{"SEND_ONLY 0/4!", "SEND_ONLY 1/4!"}
			for range times {
				r.wantSent(all...)
				all = all[:1]
				r.nak(0, bth.RNRNAK(1))
				r.wantDone("")
				if got := r.expire(); got != 10000 {
					t.Fatalf("waited %d", got)
				}
			}
			r.wantSent(all...)
			if n == 7 {
				r.ack(0)
				r.wantDone("1 ok")
				return
			}
			r.nak(0, bth.RNRNAK(1))
			r.wantDone("1 RNR_EXC, 2 FLUSH")
			r.wantState(verbs.StateErr)
		})
	}
	r := newRaw(t, 100, func(a *verbs.QPAttr) { a.RNRRetry = 1 }) // afresh after progress
	r.post(1, verbs.WRSend, 4)
	r.post(2, verbs.WRSend, 4)
	for i := range 2 {
		r.sent()
		r.nak(i, bth.RNRNAK(1))
		r.expire()
	}
	r.wantDone("1 ok")
	r.sent()
	r.nak(1, bth.RNRNAK(1))
	r.wantDone("2 RNR_EXC")
}

// What a link did not take is sent again from there, as new, with no retry and
// no timer for it, in whatever order several bursts come back.
func TestSent(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 1000)
		r.post(2, verbs.WRRead, 600)
		r.post(3, verbs.WRSend, 4)
		r.burst.Reset(nil, 0, 0)
		r.qp.Fill(0, r.burst)
		r.qp.Sent(r.burst, 0)
		if r.qp.Deadline() != never {
			r.t.Fatal("a timer runs for what was never sent")
		}
		r.ack(0) // a ghost: it never left
		const all = "SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_MIDDLE 2/256, SEND_LAST 3/232!, READ_REQ 4@7000+600!, SEND_ONLY 7/4!"
		r.wantSent(all)
		r.expire()
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
			bs := r.bursts(3, 2)
			for _, k := range order {
				r.qp.Sent(bs[k], 0)
			}
		}
		r.wantSent(all)
		if n := r.qp.Counts()[trace.RetryTimeout]; n != 1 {
			r.t.Fatalf("%d timeouts", n)
		}
		r.ack(3)
		r.wantDone("1 ok")
	})
}

// Packets acknowledged between Fill and Sent do not keep the others from
// being sent again at once.
func TestUnsendAfterAck(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 600)
		r.sent()
		r.expire()
		r.burst.Reset(nil, 0, 0)
		r.qp.Fill(r.now, r.burst)
		r.ack(0)
		r.qp.Sent(r.burst, 0)
		r.wantSent("SEND_MIDDLE 1/256, SEND_LAST 2/88!")
	})
}

// What left before the cut is in flight like everything else.
func TestUnsendPart(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 4)
		r.post(3, verbs.WRSend, 4)
		r.qp.Sent(r.bursts(1, 8)[0], 2)
		if got := r.qp.Deadline(); got != timeout14 {
			r.t.Fatalf("deadline %d", got)
		}
		r.ack(2) // a ghost
		r.ack(1)
		r.wantDone("1 ok, 2 ok")
		r.wantSent("SEND_ONLY 2/4!")
		r.ack(2)
		r.wantDone("3 ok")
	})
}

// What met an RNR NAK goes alone until it is taken, and sequence NAKs for it
// take no retry: Soft-RoCE says both of a message of several packets. Its loss
// shows by the timeout.
func TestRNRProbe(t *testing.T) {
	rule(t, func(r *raw) {
		r.qp.attr.RetryCnt, r.qp.req.retries = 1, 1
		r.post(1, verbs.WRSend, 1000)
		r.post(2, verbs.WRSend, 4)
		r.wantSent("SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_MIDDLE 2/256, SEND_LAST 3/232!, SEND_ONLY 4/4!")
		for range 5 {
			r.nak(0, bth.RNRNAK(1))
			r.expire()
			r.wantSent("SEND_FIRST 0/256!")
			r.nak(0, bth.NAKSequence)
			r.wantSent("")
		}
		if got := r.expire(); got != timeout14 {
			r.t.Errorf("a lost probe shows after %d", got)
		}
		r.wantSent("SEND_FIRST 0/256!")
		r.ack(0)
		r.wantSent("SEND_MIDDLE 1/256, SEND_MIDDLE 2/256, SEND_LAST 3/232!, SEND_ONLY 4/4!")
		r.nak(1, bth.NAKSequence) // now it is a loss
		r.wantSent("SEND_MIDDLE 1/256, SEND_MIDDLE 2/256, SEND_LAST 3/232!, SEND_ONLY 4/4!")
		r.ack(4)
		r.wantDone("1 ok, 2 ok")
	})
}

// Each of these is another loss, and restarts at once: a sequence NAK of what
// a timeout sent again, and a timeout after that.
func TestLossOfRepetition(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 4)
		const all = "SEND_ONLY 0/4!, SEND_ONLY 1/4!"
		r.wantSent(all)
		r.expire()
		r.wantSent(all)
		r.nak(0, bth.NAKSequence)
		r.wantSent(all)
		r.expire()
		r.wantSent(all)
	})
}

// What a NAK asked for is sent once more when it is not acknowledged within four
// round trips or a millisecond, which takes a retry; after that the timer counts from
// the first packet sent again.
func TestAdaptive(t *testing.T) {
	for _, rtt := range []int64{0, 3e6} {
		rule(t, func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.sent()
			r.now = rtt
			r.ack(0)
			r.post(2, verbs.WRSend, 4)
			r.post(3, verbs.WRSend, 4)
			const all = "SEND_ONLY 1/4!, SEND_ONLY 2/4!"
			r.wantSent(all)
			r.now += 1000
			r.nak(1, bth.NAKSequence)
			r.wantSent(all)
			for i, want := range []int64{max(1e6, 4*rtt), timeout14, timeout14} {
				if got := r.expire(); got != want {
					r.t.Fatalf("timer %d after %d, want %d", i, got, want)
				}
				r.wantSent(all)
			}
			if c := r.qp.Counts(); c[trace.RetryAdaptive] != 1 || c[trace.RetryTimeout] != 2 || c[trace.RetrySequence] != 1 {
				r.t.Error(c)
			}
			r.ack(2)
			r.wantDone("1 ok, 2 ok, 3 ok")
		}, func(a *verbs.QPAttr) { a.RetryCnt = 4 })
	}
}

// A timeout shorter than that is none but itself, and so is one after an RNR NAK,
// after progress, or with the last retry taken.
func TestNotAdaptive(t *testing.T) {
	for name, c := range map[string]struct {
		timeout uint8
		retries uint8
		then    func(r *raw)
	}{
		"short":    {1, 7, func(*raw) {}},
		"rnr":      {14, 7, func(r *raw) { r.nak(0, bth.RNRNAK(1)); r.expire() }},
		"progress": {14, 7, func(r *raw) { r.ack(0) }},
		"last":     {14, 1, func(*raw) {}},
	} {
		rule(t, func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.post(2, verbs.WRSend, 4)
			r.sent()
			r.nak(0, bth.NAKSequence)
			r.sent()
			c.then(r)
			r.sent()
			r.expire()
			if n := r.qp.Counts(); n[trace.RetryAdaptive] != 0 || n[trace.RetryTimeout]+n[trace.FailRetryExceeded] == 0 {
				r.t.Error(name, n)
			}
		}, func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = c.timeout, c.retries })
	}
}

// An RNR wait is over when the packet it is for turns out to have got through.
func TestRNRWaitOverByAck(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 4)
		r.sent()
		r.nak(0, bth.RNRNAK(1))
		r.ack(0)
		r.wantDone("1 ok")
		r.wantSent("SEND_ONLY 1/4!")
	})
}
