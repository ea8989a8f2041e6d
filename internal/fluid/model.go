package fluid

import (
	"fmt"
	"math"

	"github.com/gorxe/gorxe/cc"
)

// Model is a bottleneck and the flows through it, all of them with data to send.
type Model struct {
	Flows  int
	Line   float64 // packets a second of the bottleneck: C
	Packet float64 // octets of a packet
	Delay  float64 // seconds from a mark until the rate changes: tau*

	Kmin, Kmax float64 // packets
	Pmax       float64

	CNP       float64 // seconds between notifications: tau
	Alpha     float64 // seconds of a period of alpha: tau'
	G         float64 // weight of the newest period in alpha
	Timer     float64 // seconds between increases: T
	Octets    float64 // packets between increases, +Inf for none: B
	Threshold float64 // increases of fast recovery: F
	Increase  float64 // packets a second: R_AI
}

// New returns the model of flows with a configuration, through a line of so many
// bits a second, in IP packets of so many octets; a mark takes effect after delay
// seconds.
func New(c *cc.Config, red cc.RED, flows int, line float64, packet int, delay float64) Model {
	size := float64(packet)
	m := Model{
		Flows: flows, Line: line / 8 / size, Packet: size, Delay: delay,
		Kmin: float64(red.Kmin) / size, Kmax: float64(red.Kmax) / size, Pmax: red.Pmax,
		CNP:   1e-6 * float64(max(c.NPMinTimeBetweenCNPs, c.RPRateReduceMonitorPeriod)),
		Alpha: 1e-6 * float64(c.RPDCETCPRTT), G: 1 - float64(c.RPDCETCPG)/1024,
		Timer: 1e-6 * float64(c.RPTimeReset), Octets: float64(c.RPByteReset) / size, Threshold: float64(c.RPThreshold),
		Increase: 1e6 * float64(c.RPAIRate) / 8 / size,
	}
	if c.RPByteReset == 0 {
		m.Octets = math.Inf(1)
	}
	return m
}

// State is a moment of a flow and of the queue, or where they settle.
type State struct {
	Rate, Target float64 // of each flow: packets a second, R_C and R_T
	Alpha        float64
	Queue        float64 // packets
	Mark         float64 // probability of a mark: p
}

// RateBits returns the rate of a flow in bits a second.
func (m Model) RateBits(s State) float64 { return s.Rate * m.Packet * 8 }

// QueueOctets returns the queue in octets.
func (m Model) QueueOctets(s State) float64 { return s.Queue * m.Packet }

// Mark is the probability of a mark at a queue of so many packets: equation 3 of
// CoNEXT 2016.
func (m Model) Mark(queue float64) float64 {
	switch {
	case queue <= m.Kmin:
		return 0
	case queue > m.Kmax:
		return 1
	}
	return (queue - m.Kmin) / (m.Kmax - m.Kmin) * m.Pmax
}

// terms are what the equations are made of, for a probability of marks and a rate:
// how likely a cut is in a notification's interval, how many packets lie between
// increases by octets and by the timer, and how many of those are beyond fast
// recovery.
func (m Model) terms(p, rate float64) (cut, octets, timer, octetsAI, timerAI float64) {
	if p >= 1 {
		return 1, 0, 0, 0, 0
	}
	none := math.Log1p(-p) // of (1-p)
	cut = -math.Expm1(m.CNP * rate * none)
	every := func(packets float64) (all, additive float64) {
		switch {
		case math.IsInf(packets, 1):
			return 0, 0
		case p == 0:
			return 1 / packets, 1 / packets
		}
		all = p / math.Expm1(-packets*none)
		return all, all * math.Exp(m.Threshold*packets*none)
	}
	octets, octetsAI = every(m.Octets)
	timer, timerAI = every(m.Timer * rate)
	return cut, octets, timer, octetsAI, timerAI
}

// change returns how fast a state changes, for what was marked, and the rate it was
// marked at, a delay ago: equations 4 to 7.
func (m Model) change(s State, mark, rate float64) (d State) {
	cut, octets, timer, octetsAI, timerAI := m.terms(mark, rate)
	d.Queue = float64(m.Flows)*s.Rate - m.Line
	d.Alpha = m.G / m.Alpha * (-math.Expm1(m.Alpha*rate*math.Log1p(-min(mark, 1-1e-12))) - s.Alpha)
	gap := s.Target - s.Rate
	d.Target = -gap/m.CNP*cut + m.Increase*rate*(octetsAI+timerAI)
	d.Rate = -s.Rate*s.Alpha/(2*m.CNP)*cut + gap/2*rate*(octets+timer)
	return d
}

// FixedPoint returns where the flows settle: each at its share of the line, at
// the only probability of marks that keeps it there (theorem 1). The error says
// that RED cannot give that probability below Kmax; then the queue is held at
// Kmax, by marks that come and go, and the state is that at Kmax.
func (m Model) FixedPoint() (State, error) {
	rate := m.Line / float64(m.Flows)
	settle := func(p float64) float64 { // equation 11: below 0 at too low a p
		cut, octets, timer, octetsAI, timerAI := m.terms(p, rate)
		alpha := -math.Expm1(m.Alpha * rate * math.Log1p(-p))
		return cut*cut*alpha - m.CNP*m.CNP*m.Increase*rate*(octets+timer)*(octetsAI+timerAI)
	}
	low, high := 0.0, 1-1e-12
	for range 200 {
		if mid := (low + high) / 2; settle(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	p := high
	cut, octets, timer, _, _ := m.terms(p, rate)
	s := State{Rate: rate, Mark: p, Alpha: -math.Expm1(m.Alpha * rate * math.Log1p(-p))}
	s.Target = rate * (1 + s.Alpha*cut/(m.CNP*rate*(octets+timer)))
	if p > m.Pmax {
		s.Queue = m.Kmax
		return s, fmt.Errorf("%d flows need %.2f %% of the packets marked, RED marks %.2f %% below Kmax: the queue stays at Kmax", m.Flows, 100*p, 100*m.Pmax)
	}
	s.Queue = m.Kmin + p/m.Pmax*(m.Kmax-m.Kmin)
	return s, nil
}

// Approximate is the probability of marks at the fixed point in closed form, good
// while it is small: equation 14.
func (m Model) Approximate() float64 {
	n := float64(m.Flows)
	increases := 1/m.Octets + n/(m.Timer*m.Line)
	return math.Cbrt(m.Increase * n * n / (m.Alpha * m.Line * m.Line) * increases * increases)
}

// Run follows the flows for so many seconds from a state, in steps of step
// seconds (Euler's), and calls each with the time and the state after each. A flow
// goes no faster than the line.
func (m Model) Run(s State, seconds, step float64, each func(t float64, s State)) {
	type seen struct{ mark, rate float64 }
	past := make([]seen, max(1, int(math.Round(m.Delay/step))))
	s.Mark = m.Mark(s.Queue)
	for i := range past {
		past[i] = seen{s.Mark, s.Rate}
	}
	for i := 0; float64(i)*step < seconds; i++ {
		then := &past[i%len(past)]
		d := m.change(s, then.mark, then.rate)
		*then = seen{s.Mark, s.Rate}
		s.Rate = max(0, min(m.Line, s.Rate+d.Rate*step))
		s.Target = max(s.Rate, min(m.Line, s.Target+d.Target*step))
		s.Alpha = max(0, min(1, s.Alpha+d.Alpha*step))
		s.Queue = max(0, s.Queue+d.Queue*step)
		s.Mark = m.Mark(s.Queue)
		each(float64(i+1)*step, s)
	}
}
