// Package trace is the vocabulary of what happened: one Reason for every
// dropped packet, failed work request and retransmission, one Event type, and
// a Recorder that keeps the last of them. Engines, links, the NIC, scripts and
// the simulator all use it, so a reason has one name everywhere and one
// sentence that says what it means and what probably caused it.
//
// It is a leaf: it imports nothing of gorxe, and has no clock and no lock.
package trace
