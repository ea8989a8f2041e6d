package oob

import (
	"encoding/binary"
	"fmt"
	"math"
)

// BWReport is one end's result of a bandwidth run. BWPeak and BWAvg are in
// MiB/s (2^20 octets), or Gb/s (10^9 bits) with --report_gbits; MsgRate is in
// millions of messages a second.
type BWReport struct {
	Size                   uint64 // octets of a message
	Iters                  uint64 // messages, of all queue pairs
	BWPeak, BWAvg, MsgRate float64
}

// words returns the report as the five steps that carry it, in order: of 64
// bits each, big endian, which versions before 5.33 did otherwise.
func (r *BWReport) words() [5]uint64 {
	return [5]uint64{r.Size, r.Iters, math.Float64bits(r.BWPeak), math.Float64bits(r.BWAvg), math.Float64bits(r.MsgRate)}
}

// report exchanges bandwidth reports. What a peer says that measured nothing
// happened to be in its memory, and is not looked at.
func (c *Conn) report(local BWReport, measured bool) (r BWReport, told bool, err error) {
	var w [5]uint64
	look := lookReport
	if !measured {
		look = nil
	}
	for i, x := range local.words() {
		var out [8]byte
		binary.BigEndian.PutUint64(out[:], x)
		in, err := c.step("exchanging results", out[:], look)
		if err != nil {
			return r, false, err
		}
		w[i], look = binary.BigEndian.Uint64(in), nil
	}
	if !measured {
		return r, false, nil
	}
	r = BWReport{w[0], w[1], math.Float64frombits(w[2]), math.Float64frombits(w[3]), math.Float64frombits(w[4])}
	switch {
	case r.Size > maxSize || r.Iters > maxIters || !rate(r.BWPeak) || !rate(r.BWAvg) || !rate(r.MsgRate):
		return BWReport{}, false, fmt.Errorf("%w: the peer's result is impossible: %d messages of %d octets, %g at peak and %g on average, %g million messages a second; was it started without -b?",
			ErrProtocol, r.Iters, r.Size, r.BWPeak, r.BWAvg, r.MsgRate)
	case c.cfg.Both && r == BWReport{} && local != BWReport{}:
		return r, true, fmt.Errorf("%w: the peer has measured nothing; give both or neither of them -b", ErrMismatch)
	case local.Size != 0 && r.Size != local.Size:
		return r, true, fmt.Errorf("%w: the peer's messages had %d octets, this side's %d; give both the same -s", ErrMismatch, r.Size, local.Size)
	case local.Iters != 0 && r.Iters != local.Iters && !c.cfg.Duration && !c.cfg.Infinite:
		return r, true, fmt.Errorf("%w: the peer counts %d messages, this side %d; give both the same -n and -q", ErrMismatch, r.Iters, local.Iters)
	}
	return r, true, nil
}

// lookReport refuses an address, whose first octet is a digit's, while a size
// begins with 0.
func lookReport(b []byte) error {
	if b[0] >= '0' {
		return fmt.Errorf("%w: the peer sent an address where its result was due: give both or neither of them -b, -a, -D and --run_infinitely, and the same -q", ErrMismatch)
	}
	return nil
}

func rate(x float64) bool { return x >= 0 && x <= maxRate } // false of NaN
