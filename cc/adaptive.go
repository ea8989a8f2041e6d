package cc

// minWindow is where Adaptive stops halving: what any receive buffer takes.
const minWindow = 32

// Adaptive is a Controller whose window halves with each loss event and grows
// again by an eighth for each windowful acknowledged, between 32 packets and a
// maximum, at which it starts. What it reacts to is mostly the receive buffer
// of a peer that is smaller than this host's; and under go-back-N, where a
// loss costs everything in flight behind it, a smaller window wastes less on a
// path that loses at random.
type Adaptive struct {
	limit  int
	window int
	acked  int // since the last change
}

// NewAdaptive returns a controller with at most limit packets in flight.
func NewAdaptive(limit int) *Adaptive { return &Adaptive{limit: limit, window: limit} }

// Window returns the present window.
func (a *Adaptive) Window(int64) int { return a.window }

// OnAck grows the window.
func (a *Adaptive) OnAck(_ int64, packets int) {
	if a.window == a.limit {
		return
	}
	if a.acked += packets; a.acked >= a.window {
		a.acked = 0
		a.window = min(a.limit, a.window+max(1, a.window/8))
	}
}

// OnLoss halves the window.
func (a *Adaptive) OnLoss(int64) {
	a.acked = 0
	a.window = max(a.window/2, min(minWindow, a.limit))
}

// OnCNP does nothing.
func (a *Adaptive) OnCNP(int64) {}
