package cc

// Controller bounds what a requester has in flight. Times are nanoseconds of
// the engine's clock.
type Controller interface {
	// Window returns how many packets may be unacknowledged.
	Window(now int64) int
	// OnAck is told of packets newly acknowledged.
	OnAck(now int64, packets int)
	// OnLoss is told of each loss event: a NAK, an implied NAK, a timeout.
	OnLoss(now int64)
	// OnCNP is told of each congestion notification.
	OnCNP(now int64)
}

// Fixed is a Controller with a constant window. It is what there is until
// rate control: go-back-N within the receive buffer of a peer like this host.
type Fixed int

// Window returns the constant.
func (f Fixed) Window(int64) int { return int(f) }

// OnAck does nothing.
func (f Fixed) OnAck(int64, int) {}

// OnLoss does nothing.
func (f Fixed) OnLoss(int64) {}

// OnCNP does nothing.
func (f Fixed) OnCNP(int64) {}
