// Package replay holds recorded conversations against the engine of package rc.
//
// A capture of a reliable connection shows what each of two sides did on
// hearing the other. One side is played as it was recorded; the engine stands
// in for the other, is configured from what is seen, and must say what the
// recorded one said:
//
//	capture -> decode -> conversations -> plan -> player (rc.QP) <-> align -> lines, summary
//	                     conversation.go  plan.go player.go          align.go report.go
//
// What is configured from what is seen: path MTU, PSNs, timers and depths (from
// the connection manager's messages, else from the packets); regions under the
// addresses and keys that requests name, with the contents that READs and
// atomics returned; one receive request for each message that took one, none
// where a receiver-not-ready NAK says so; work requests, posted when their
// first packet was recorded.
//
// A capture is made somewhere between two hosts. What it shows of a host's own
// packets left before it was recorded, and what it shows of the peer's arrived
// after. So a recorded packet of the peer may have been heard late, behind
// packets of the host that were recorded after it, but never early; and how
// late is not known. The replay delivers the peer's packets no earlier than
// recorded and no later than an answer needs them: at each recorded packet of
// our side it searches for the least that makes the engine say it. Engines do
// no I/O and have no clock, so a state is reached again by giving the same
// inputs again, and the search is cheap.
//
// Timers run when the recorded side's did, at the engine's deadline or later:
// a retransmission timer may take four times its nominal time (IBA 9.7.6.1.3), so
// that it could have run earlier is no difference. What the capture shows to be
// lost before it was recorded (a gap in the PSNs that a side sent, an answer
// asked for again) cannot be compared, and is counted as such; what was lost
// behind the recorder, as the side that did not hear it says by a sequence NAK or
// by asking again, is not delivered.
//
// What may differ is a closed list (compare.go); everything else is a
// difference.
package replay
