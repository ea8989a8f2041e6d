package rc

import "github.com/gorxe/gorxe/bth"

const (
	// minHurry is how long, in nanoseconds, what a NAK has asked for may remain
	// unacknowledged at least, hurryRTTs how many round trips.
	minHurry  = int64(1e6)
	hurryRTTs = 4
)

// rttClock measures round trips: from a packet that asks for an ACK, sent for the
// first time, to what acknowledges it (Karn and Partridge, SIGCOMM 1987).
type rttClock struct {
	most    int64 // nanoseconds; longer ones count at once, shorter ones slowly
	running bool
	psn     bth.PSN
	at      int64
}

func (c *rttClock) sent(now int64, psn bth.PSN) {
	if !c.running {
		c.running, c.psn, c.at = true, psn, now
	}
}

// acked returns what was measured, or 0.
func (c *rttClock) acked(now int64, una bth.PSN) (rtt int64) {
	if c.running && una.After(c.psn) {
		c.running = false
		rtt = now - c.at
		c.most = max(rtt, c.most-c.most/8)
	}
	return rtt
}

// refused is told of a NAK: it took no less than a round trip.
func (c *rttClock) refused(now int64) {
	if c.running {
		c.most = max(c.most, now-c.at)
	}
}

// stop forgets the packet: it may be sent twice.
func (c *rttClock) stop() { c.running = false }
