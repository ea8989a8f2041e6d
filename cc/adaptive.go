package cc

// minWindow is where Adaptive stops halving: what any receive buffer takes.
const minWindow = 32

// Adaptive is a Controller whose window halves with each loss event and grows
// again by an eighth for each windowful acknowledged, between 32 packets and
// the path's limit, at which it starts. What it reacts to is mostly the receive
// buffer of a peer that is smaller than this host's; and under go-back-N, where
// a loss costs everything in flight behind it, a smaller window wastes less on a
// path that loses at random. It has no rate, and does not heed congestion
// notifications.
type Adaptive struct {
	limit  int
	window int
	acked  int  // since the last change
	slow   bool // it grows by what is acknowledged: see begin
}

// Start begins with the whole window.
func (a *Adaptive) Start(_ int64, p Path) { *a = Adaptive{limit: p.Limit, window: p.Limit} }

// begin makes it start with a smaller window, which doubles with each round
// trip until something speaks against it (hold): what lies ahead is not known.
func (a *Adaptive) begin(window int) {
	if window < a.window {
		a.window, a.slow = max(1, window), true
	}
}

// hold ends that, and begins the count of what has to be acknowledged before the
// window grows again.
func (a *Adaptive) hold() { a.slow, a.acked = false, 0 }

// Configure does nothing: there are no parameters.
func (a *Adaptive) Configure(int64, *Config) {}

// Window returns the present window.
func (a *Adaptive) Window(int64) int { return a.window }

// Rate returns 0.
func (a *Adaptive) Rate(int64) int64 { return 0 }

// OnSent does nothing.
func (a *Adaptive) OnSent(int64, int) {}

// OnAck grows the window.
func (a *Adaptive) OnAck(_ int64, packets int, _ int64) {
	switch {
	case a.window == a.limit:
	case a.slow:
		a.window = min(a.limit, a.window+packets)
	default:
		if a.acked += packets; a.acked >= a.window {
			a.acked = 0
			a.window = min(a.limit, a.window+max(1, a.window/8))
		}
	}
}

// OnLoss halves the window.
func (a *Adaptive) OnLoss(int64, Loss) Reaction {
	a.hold()
	a.window = max(a.window/2, min(minWindow, a.window))
	return TakenForLoss
}

// OnCNP does nothing.
func (a *Adaptive) OnCNP(int64) {}

// OnMark does nothing.
func (a *Adaptive) OnMark(int64) {}

// State says what the window is.
func (a *Adaptive) State(int64) State { return State{Window: a.window} }
