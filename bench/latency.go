package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// warmUp is how many round trips come before those that count, or a quarter of a
// few.
const warmUp = 1000

// halves makes figures of round trips: half of their median and of their 99th
// percentile, in microseconds.
func halves(trips []time.Duration) (samples, error) {
	if len(trips) < 100 {
		return nil, fmt.Errorf("only %d round trips", len(trips))
	}
	trips = slices.Sorted(slices.Values(trips[min(warmUp, len(trips)/4):]))
	at := func(q float64) float64 { return trips[int(q*float64(len(trips)-1))].Seconds() * 1e6 / 2 }
	return samples{"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}, nil
}

// signalEvery is how many send requests share a completion.
const signalEvery = 16

// pingpong sends a message and waits for one, at the server the other way
// around, until the client has spent the time and says so with immediate data.
func (e *end) pingpong() (samples, error) {
	qp := e.qps[0]
	wr := []verbs.SendWR{{Inline: e.mr.Bytes()[:e.Size]}}
	var trips []time.Duration
	if !e.Server {
		trips = make([]time.Duration, 0, 1<<22)
	}
	start := time.Now()
	last := start
	for n, over := 0, false; ; n++ {
		if e.Server {
			var err error
			if over, err = e.message(); err != nil {
				return nil, err
			}
		} else {
			now := time.Now()
			if n > 0 {
				trips = append(trips, now.Sub(last))
			}
			if over {
				return halves(trips)
			}
			if e.Think > 0 {
				time.Sleep(e.Think)
			}
			last = time.Now()
			over = now.Sub(start) > e.Time || len(trips) == cap(trips)
		}
		if err := e.postRecv(0); err != nil {
			return nil, err
		}
		wr[0].Opcode, wr[0].Flags = verbs.WRSend, verbs.SendInline
		if over {
			wr[0].Opcode, wr[0].ID = verbs.WRSendImm, lastID
		}
		if over || n%signalEvery == 0 {
			wr[0].Flags |= verbs.SendSignaled
		}
		if _, err := qp.PostSend(wr); err != nil {
			return nil, err
		}
		if e.Server && over {
			return nil, e.drained()
		}
		if !e.Server {
			if _, err := e.message(); err != nil {
				return nil, err
			}
		}
	}
}

// message waits for one to arrive, and says whether it is the last.
func (e *end) message() (last bool, err error) {
	var wc [1]verbs.WC
	for {
		n := 0
		if e.Blocked {
			n, err = e.cq.Wait(context.Background(), wc[:])
		} else {
			n = e.cq.Poll(wc[:])
		}
		if err == nil && n == 1 {
			err = wc[0].Err()
		}
		if err != nil {
			return false, err
		}
		if n == 1 && wc[0].ID == recvID {
			return wc[0].Flags&verbs.WCWithImm != 0, nil
		}
	}
}

// drained waits until the last request, which is signaled, is done.
func (e *end) drained() error {
	var wc [64]verbs.WC
	for start := time.Now(); time.Since(start) < stuck; {
		for _, c := range wc[:e.cq.Poll(wc[:])] {
			if err := c.Err(); err != nil {
				return err
			}
			if c.ID == lastID {
				return nil
			}
		}
	}
	return errors.New("the last request is not done")
}

// lastID is of the last request.
const lastID = 7

// theEnd is the last octet of the last WRITE.
const theEnd = 255

// watch writes a value into the other end's memory and polls its own until the
// last octet of the answer is there.
func (e *end) watch() (samples, error) {
	qp := e.qps[0]
	value := make([]byte, e.Size)
	wr := []verbs.SendWR{{Opcode: verbs.WRWrite, Inline: value, RemoteAddr: e.peer.Addr + uint64(e.Region), RKey: e.peer.RKey}}
	last := e.Region + e.Size - 1
	var trips []time.Duration
	if !e.Server {
		trips = make([]time.Duration, 0, 1<<22)
	}
	var wc [8]verbs.WC
	start := time.Now()
	for n, over := 0, false; ; n++ {
		began := time.Now()
		want := byte(1 + n%(theEnd-1))
		if !e.Server {
			if over = began.Sub(start) > e.Time || len(trips) == cap(trips); over {
				want = theEnd
			}
		}
		for posted := e.Server; ; {
			if !posted {
				posted = true
				if err := e.put(qp, wr, want, n); err != nil {
					return nil, err
				}
			}
			for _, c := range wc[:e.cq.Poll(wc[:])] {
				if err := c.Err(); err != nil {
					return nil, err
				}
			}
			if got := e.mr.Bytes()[last]; got == want || e.Server && got == theEnd {
				want = got
				break
			}
		}
		if e.Server {
			if err := e.put(qp, wr, want, n); err != nil {
				return nil, err
			}
			if want == theEnd {
				return nil, e.drained()
			}
			continue
		}
		if trips = append(trips, time.Since(began)); over {
			return halves(trips)
		}
	}
}

// put writes a value.
func (e *end) put(qp *verbs.QP, wr []verbs.SendWR, v byte, n int) error {
	wr[0].Inline[len(wr[0].Inline)-1] = v
	wr[0].ID, wr[0].Flags = 0, verbs.SendInline
	if v == theEnd {
		wr[0].ID = lastID
	}
	if v == theEnd || n%signalEvery == 0 {
		wr[0].Flags |= verbs.SendSignaled
	}
	_, err := qp.PostSend(wr)
	return err
}
