package cc

// Fixed is a Controller with a constant window, and no more than the path
// bears, at full rate.
type Fixed struct {
	window int
	limit  int
}

// NewFixed returns a controller with a window of so many packets, or what the
// path bears where that is 0.
func NewFixed(window int) *Fixed { return &Fixed{window: window} }

// Start takes the path's limit.
func (f *Fixed) Start(_ int64, p Path) { f.limit = p.Limit }

// Configure takes Config.Window.
func (f *Fixed) Configure(_ int64, c *Config) { f.window = c.Window }

// Window returns the constant.
func (f *Fixed) Window(int64) int {
	if f.window == 0 || f.limit != 0 && f.limit < f.window {
		return f.limit
	}
	return f.window
}

// Rate returns 0.
func (f *Fixed) Rate(int64) int64 { return 0 }

// OnSent does nothing.
func (f *Fixed) OnSent(int64, int) {}

// OnAck does nothing.
func (f *Fixed) OnAck(int64, int, int64) {}

// OnLoss does nothing.
func (f *Fixed) OnLoss(int64, Loss) Reaction { return TakenForLoss }

// OnCNP does nothing.
func (f *Fixed) OnCNP(int64) {}

// OnMark does nothing.
func (f *Fixed) OnMark(int64) {}

// State says what the window is.
func (f *Fixed) State(now int64) State { return State{Window: f.Window(now)} }
