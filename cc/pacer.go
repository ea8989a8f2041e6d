package cc

import "math"

const (
	// PaceBurst is how long, in nanoseconds of the rate, a burst may be that is
	// longer than one packet.
	PaceBurst = 50_000
)

// Late is how much time, in nanoseconds, a pacer makes up for that was lost because
// nobody called in time. It takes as long again over it. A rate that a user has
// set is one to be kept; one that comes of congestion control stands for what the
// network bore just now, and what it did not get then is gone.
const (
	LateLimit   = 50_000_000
	LateControl = 1_000_000
)

// Pacer says when the next burst may leave, so that a rate is kept. Who is late,
// as a program that lost its processor, may send at twice the rate until that is
// made good; who had nothing to send may not. The zero value lets the first burst
// go at once.
type Pacer struct {
	due  int64   // when the next should leave
	next int64   // when it may: later where the last was late
	frac float64 // of a nanosecond, that due is too early by
}

// Next returns when the next burst may leave.
func (p *Pacer) Next() int64 { return p.next }

// Behind reports whether lost time is being made good.
func (p *Pacer) Behind() bool { return p.next > p.due }

// Idle says that there was nothing to send until now.
func (p *Pacer) Idle(now int64) { p.due = max(p.due, now) }

// Sent says that octets have left at a rate of bits a second, more than 0; late is
// how much lost time is made up for.
func (p *Pacer) Sent(now int64, octets int, rate, late int64) {
	// What takes longer than a century is as good as that.
	exact := min(float64(octets)*8e9/float64(rate)+p.frac, math.MaxInt64/4)
	cost := int64(exact)
	p.frac = exact - float64(cost)
	p.due = max(p.due, now-late) + cost
	p.next = max(p.due, now+cost/2)
}

// Unsent takes back a part of that: these octets did not leave.
func (p *Pacer) Unsent(now int64, octets int, rate int64) {
	cost := int64(min(float64(octets)*8e9/float64(rate), math.MaxInt64/4))
	p.due -= cost
	p.next = max(now, p.due)
}

// Change says that the rate is another one from now on: what is waited for at the
// old one takes as long as it does at the new one. 0 is as fast as can be, where
// nothing is waited for, and lateness is not made good at another rate.
func (p *Pacer) Change(now, from, to int64) {
	left := p.next - now
	*p = Pacer{}
	if left > 0 && from > 0 && to > 0 {
		p.next = now + int64(min(float64(left)*(float64(from)/float64(to)), math.MaxInt64/4))
		p.due = p.next
	}
}

// Burst returns how many octets may leave at once: what a rate carries in
// PaceBurst. One packet always may.
func Burst(rate int64) int { return int(min(rate/8/(1e9/PaceBurst), math.MaxInt32)) }

// Slower returns the lower of two rates, where 0 is as fast as can be.
func Slower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
