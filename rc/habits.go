package rc

import "strings"

// Habits are ways of other implementations that the specification leaves open,
// or does not want, and that a queue pair has only when it is asked to: to stand
// in for one of them.
type Habits uint8

const (
	// ResendAll: after the wait that a receiver-not-ready NAK asks for,
	// everything is sent again at once (Soft-RoCE). Otherwise what was refused
	// goes alone until it is acknowledged, since all behind it would be refused
	// with it.
	ResendAll Habits = 1 << iota

	// NAKBehindRNR: a packet beyond the one that met a receiver-not-ready NAK
	// is answered with a sequence NAK (Soft-RoCE). Otherwise, as in hfi1, it is
	// dropped in silence: the requester knows already what to send again.
	NAKBehindRNR

	// NAKDuplicateRead: a READ asked for again whose region is gone is answered
	// with a remote access NAK, which ends the queue pair (Soft-RoCE). Otherwise
	// it is dropped: errors in a duplicate are not reported.
	NAKDuplicateRead
)

// String names them.
func (h Habits) String() string {
	var out []string
	if h&ResendAll != 0 {
		out = append(out, "resends all after an RNR wait")
	}
	if h&NAKBehindRNR != 0 {
		out = append(out, "sends a sequence NAK behind an RNR NAK")
	}
	if h&NAKDuplicateRead != 0 {
		out = append(out, "sends a remote access NAK for a READ asked for again whose region is gone")
	}
	return strings.Join(out, ", ")
}
