package nic

import (
	"errors"
	"math"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// transmit sends what queue pairs have ready, a burst each in turn, and
// reports whether there is more that the link has room for.
//
//gorxe:hot
func (s *shard) transmit(now int64, by stepper) (more bool) {
	s.full = false
	rounds, most := txRounds, math.MaxInt
	if s.shared() {
		rounds, most = 1, quantum
	}
	for range rounds {
		n, stuck := s.fill(now, by, most)
		if n > 0 && !s.send(now, n) {
			s.full = true
			return false
		}
		if stuck || s.ready.len() == 0 {
			return stuck
		}
	}
	return true
}

// fill fills and seals up to as many bursts as the link takes at once. Bursts
// for this device itself do not count; stuck tells that one of those found no
// room. Once they hold most octets there are no more.
func (s *shard) fill(now int64, by stepper, most int) (n int, stuck bool) {
	// Each queue pair that is ready now gets its turn, and bursts that go
	// nowhere do not keep the loop going.
	n = s.fillCNPs()
	for turns := s.ready.len() + len(s.bursts); n < len(s.bursts) && most > 0 && turns > 0 && s.ready.len() > 0 && !stuck; turns-- {
		q := s.ready.pop()
		q.queued = false
		if q.dead {
			s.ready.rest(q)
			continue
		}
		if s.waits(now, q, by) {
			q.queued = true
			s.patient = append(s.patient, q)
			s.ready.rest(q)
			continue
		}
		urgent := q.pacer.Next() > now
		if urgent && !q.eng.Urgent() {
			s.ready.rest(q)
			s.touch(q) // it waits for its time
			continue
		}
		b := s.bursts[n]
		b.Reset(nil, s.info.MaxSegments, s.info.MaxBytes)
		if b.Urgent = urgent; !urgent {
			if r := q.rate(now); r != 0 {
				b.Limit(cc.Burst(r))
			}
		}
		filled := q.eng.Fill(now, b)
		s.touch(q)
		if !filled {
			s.ready.rest(q)
			continue
		}
		if !urgent {
			q.charge(now, b)
		}
		switch own := s.isOwn(b.Flow.Dst); {
		case own && slices.Contains(s.owners[:n], q):
			// Datagrams for others that it filled before wait for the link,
			// and must not be overtaken: this burst has its turn after them.
			s.tell(now, q, b, 0)
			b.Reset(nil, 0, 0)
			s.ready.rest(q)
			continue
		case own:
			s.ready.spend(q, b.Len(), b.Bytes())
			stuck = !s.hairpin(q, b)
		default:
			s.ready.spend(q, b.Len(), b.Bytes())
			most -= b.Bytes()
			b.Seal(s.info.IDs)
			s.owners[n] = q
			n++
		}
		if !stuck && q.eng.Ready(now) && (q.pacer.Next() <= now || q.eng.Urgent()) {
			q.queued = true
			s.ready.again(q)
		} else {
			s.ready.rest(q)
		}
	}
	return n, stuck
}

// isOwn reports whether an address is the device's. Mostly the last one asked for
// comes again, and is not.
func (s *shard) isOwn(a netip.Addr) bool {
	if a == s.far {
		return false
	}
	if s.n.isOwn(a) {
		return true
	}
	s.far = a
	return false
}

// send offers the first n bursts to the link. It returns false when the link
// has no room for all of it; what it did not take goes back to its engines.
func (s *shard) send(now int64, n int) bool {
	bs := s.bursts[:n]
	total, bytes := 0, 0
	for _, b := range bs {
		total += b.Len()
		bytes += b.Bytes()
	}
	sent, err := s.link.Send(bs)
	s.stats.sentPkts += uint64(sent)
	s.stats.txSends++
	s.stats.txBursts += uint64(n)
	switch {
	case err != nil:
		// What was not taken is as good as lost on the way: engines send it
		// again in their time, and give up if that does not help.
		if !errors.Is(err, link.ErrClosed) {
			s.stats.sendErr += uint64(total - sent)
			s.complain("send", err)
		}
		sent = total
	case sent < total:
		s.rec.Record(trace.Event{Time: now, Reason: trace.RetryLink, Dir: trace.Tx, Arg: uint32(total - sent)})
	}
	for i, b := range bs {
		k := min(sent, b.Len())
		sent -= k
		total -= k
		for _, seg := range b.Segs[k:] {
			bytes -= seg.Len
		}
		if b.Flow.Dst.IsMulticast() {
			s.loopback(b, k)
		}
		s.tell(now, s.owners[i], b, k)
		b.Reset(nil, 0, 0) // no slice of a user's memory outlives the step
		s.owners[i] = nil
	}
	s.stats.sentBytes += uint64(bytes)
	return total == 0
}

// tell says how many segments of a burst left.
func (s *shard) tell(now int64, q *qp, b *wire.Burst, sent int) {
	if b.Kind == wire.KindCNP {
		s.sentCNP(q, sent > 0)
		return
	}
	if !b.Urgent {
		q.left(now, b, sent)
	}
	q.eng.Sent(b, sent)
	s.touch(q)
}

// hairpin delivers a burst whose destination is this device, to the shard of
// its queue pair. It returns false when there was no room for all of it.
func (s *shard) hairpin(q *qp, b *wire.Burst) bool {
	to := s.shardFor(b)
	n := to.inbox.putBurst(b, b.Len())
	s.stats.hairpin += uint64(n)
	if n > 0 && to != s {
		to.kick()
	}
	total := b.Len()
	s.tell(s.now, q, b, n)
	b.Reset(nil, 0, 0)
	return n == total
}

// shardFor returns the shard of a burst's destination queue pair.
func (s *shard) shardFor(b *wire.Burst) *shard {
	return s.n.shards[int(destQPN(b)&shardMask)%len(s.n.shards)]
}
