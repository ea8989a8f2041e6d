package cc

// Swift is a controller in the manner of Kumar et al., "Swift: Delay is Simple
// and Effective for Congestion Control in the Datacenter", SIGCOMM 2020 (section
// 3 and algorithm 1). It aims at a delay: with less than that the window grows by
// SwiftAI packets in a round trip; with more it shrinks, in proportion to how much
// more, and once in a round trip at most. Losses shrink it too. A window of less
// than a packet is a rate.
//
// What is left out: the target does not rise with the number of hops or of flows
// (3.1, 3.2); there is one window, for a peer does not say what part of the delay
// is its own (3.3); and where there is no delay, as in UC and in what a responder
// sends to READs, nothing is controlled.
//
// What is added: it begins with a small window, which doubles with each round trip
// as long as the delay is below the target.
type Swift struct {
	c     *Config
	limit float64 // packets
	bits  float64 // of a full packet

	window   float64 // packets
	starting bool
	acked    int   // packets since the delay was last measured
	rtt      int64 // the last delay
	cutAt    int64 // when the window last shrank
	cut      bool  // it has, and cutAt counts
	timeouts int   // in a row
}

const (
	swiftMin      = 0.001 // packets: the smallest window (3.5)
	swiftTimeouts = 5     // as many in a row make it the smallest (3.6)
	swiftHeaders  = 60    // octets of IP, UDP, BTH, RETH and ICRC in a full packet
)

// NewSwift returns a controller with the parameters of a configuration that Check
// has passed.
func NewSwift(c *Config) *Swift { return &Swift{c: c} }

// Start begins with a small window.
func (s *Swift) Start(_ int64, p Path) {
	limit := p.Limit
	if s.c.Window != 0 {
		limit = min(limit, s.c.Window)
	}
	*s = Swift{c: s.c, limit: float64(max(1, limit)), bits: float64(8 * (max(1, p.MTU) + swiftHeaders))}
	s.window = s.limit
	if w := s.c.WindowInitial << 10; w > 0 {
		s.window, s.starting = min(s.limit, float64(max(1, w/max(1, p.MTU)))), true
	}
}

// Configure takes other parameters. What they say of a window is for the next
// beginning.
func (s *Swift) Configure(_ int64, c *Config) { s.c = c }

// Window returns the window in whole packets, of which there is always one.
func (s *Swift) Window(int64) int { return max(1, int(s.window)) }

// Rate returns what a window of less than a packet carries, and 0 for a larger one.
func (s *Swift) Rate(int64) int64 {
	if s.window >= 1 {
		return 0
	}
	return max(1, int64(s.window*s.bits*1e9/float64(s.delay())))
}

// delay is the round trip, or what is aimed at while none was measured.
func (s *Swift) delay() int64 {
	if s.rtt > 0 {
		return s.rtt
	}
	return s.target()
}

func (s *Swift) target() int64 { return int64(s.c.SwiftBaseTarget) * 1000 }

// OnSent does nothing.
func (s *Swift) OnSent(int64, int) {}

// OnAck grows the window, or shrinks it, by the delay. Packets that come without
// one count when the next is measured.
func (s *Swift) OnAck(now int64, packets int, rtt int64) {
	s.timeouts = 0
	s.acked = min(s.acked+packets, maxPkts)
	if rtt <= 0 {
		return
	}
	s.rtt = rtt
	n := float64(s.acked)
	s.acked = 0
	switch target := s.target(); {
	case rtt >= target:
		s.starting = false
		over := float64(rtt-target) / float64(rtt)
		s.shrink(now, 1-float64(s.c.SwiftBeta)/100*over)
	case s.starting:
		s.window += n
	default:
		// More than a windowful at once, as after a window of less than a packet,
		// is no more than one round trip's worth.
		s.window += float64(s.c.SwiftAI) / 100 * min(1, n/max(1, s.window))
	}
	s.window = min(s.window, s.limit)
}

// OnLoss shrinks the window as far as one step may; timeouts in a row, with
// nothing acknowledged between them, to the smallest.
func (s *Swift) OnLoss(now int64, why Loss) Reaction {
	s.starting = false
	if why != LossTimeout {
		s.timeouts = 0
	} else if s.timeouts++; s.timeouts >= swiftTimeouts {
		s.window, s.cutAt, s.cut = swiftMin, now, true
		return TakenForLoss
	}
	s.shrink(now, 0)
	return TakenForLoss
}

// shrink leaves a part of the window, if it has not shrunk for a round trip.
func (s *Swift) shrink(now int64, left float64) {
	if s.cut && now-s.cutAt < s.delay() {
		return
	}
	s.window = max(swiftMin, s.window*max(left, 1-float64(s.c.SwiftMaxMDF)/100))
	s.cutAt, s.cut = now, true
}

// OnCNP does nothing: what it sends is not marked on congestion.
func (s *Swift) OnCNP(int64) {}

// OnMark does nothing.
func (s *Swift) OnMark(int64) {}

// State says what the window and the last delay are.
func (s *Swift) State(now int64) State {
	return State{Rate: s.Rate(now), Window: s.Window(now), RTT: s.rtt, Limited: s.window < 1}
}
