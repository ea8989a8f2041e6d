package cc

// heedful is an Adaptive whose window heeds notifications too, as DCTCP's does the
// marks that it is told of (Alizadeh et al., SIGCOMM 2010; RFC 8257): with the first
// in a windowful it shrinks by half the share of packets that brought one, averaged,
// and a windowful without any lets it grow by a packet.
//
// Why, when DCQCN has a rate: its parameters are for NICs, where a notification
// every 4 us is possible. A queue pair that gets 60 Mb/s of its path sends a packet
// every half millisecond and cannot be told more often; ConnectX's alpha has decayed
// by then, and its timer has raised the rate by more than the next cut takes. The
// window is clocked by the round trip, however long that is. On a fast path it is
// the rate that binds.
type heedful struct {
	Adaptive
	heeds bool    // there was a notification since the window was whole
	told  int     // notifications since it last changed
	share float64 // of packets that brought one, 0 to 1
}

// shareGain is the weight of a windowful in the average. RFC 8257, 4.2.
const shareGain = 1.0 / 16

// tell is told of a notification.
func (h *heedful) tell() {
	if !h.heeds {
		h.heeds, h.told, h.share = true, 0, 1
		h.hold()
	}
	if h.told++; h.told == 1 {
		h.window = max(min(h.window, 2), h.window-int(float64(h.window)*h.share/2+0.5))
	}
}

// OnAck makes the window smaller or larger.
func (h *heedful) OnAck(now int64, packets int, rtt int64) {
	if !h.heeds {
		h.Adaptive.OnAck(now, packets, rtt)
		return
	}
	if h.acked += packets; h.acked < h.window {
		return
	}
	share := min(1, float64(h.told)/float64(h.acked))
	h.share += float64(share-h.share) * shareGain
	if h.told == 0 {
		h.window = min(h.limit, h.window+1)
	}
	h.acked, h.told = 0, 0
	h.heeds = h.window < h.limit
}
