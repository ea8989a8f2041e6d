package nic

// An ACK and the program's answer to what it acknowledges are due at about the
// same time, and on a kernel's sockets each costs more than everything else
// about a small message. So when a message arrives, a SEND or a WRITE, while a
// program polls, the ACK waits for one step: the answer's doorbell brings that, or
// the next look, or the background. The answer then takes the ACK along in its
// own burst. For a program in another process it waits a few microseconds instead,
// since the device takes many steps while that answers.
//
// It is done only
//
//   - for a queue pair whose program has answered at once lately: another's
//     ACK would be late for nothing;
//   - for a peer that is known to send as this device does, in bursts from a
//     socket (wire.Verifier.Counts). The specification lets an ACK follow, but
//     programs over other devices may not expect it: perftest's latency tests
//     with -e hang over Soft-RoCE, which handles the two in threads of their own,
//     when the answer's event comes before that of what it answers.

// stepper is who steps a shard.
type stepper uint8

const (
	byBackground stepper = iota
	byPoller             // a program that looks for completions
	byPoster             // a program that has posted something
)

const (
	// promptness is how soon, in nanoseconds, a prompt program answers.
	promptness = int64(DefaultSpin)
	// promptEnough is how many prompt answers in a row are believed in.
	promptEnough = 16
	// clientPatience is for how long, in nanoseconds, the ACK waits for the answer
	// of a prompt program in another process.
	clientPatience = 10_000
)

// took notes that a message has arrived.
func (q *qp) took(now int64, by stepper) {
	polled := by == byPoller || q.client != nil
	if q.unanswered || !polled {
		q.prompt = 0
	}
	q.unanswered, q.tookAt = polled, now
}

// answered notes that the program has posted something.
func (q *qp) answered(now int64) {
	switch {
	case !q.unanswered:
		return
	case now-q.tookAt > promptness:
		q.prompt = 0
	case q.prompt < promptEnough:
		q.prompt++
	}
	q.unanswered = false
}

// waits reports whether what a queue pair has to send may wait for its program's
// answer: for a step, or where that is in another process, and steps come in quick
// succession, for a short time.
func (s *shard) waits(now int64, q *qp, by stepper) bool {
	turn := !q.waited && by == byPoller
	if q.client != nil {
		turn = now-q.tookAt < clientPatience
	}
	q.waited = turn && q.unanswered && q.prompt >= promptEnough &&
		q.eng.Patient(now) && s.verify.Counts(q.eng.Flow().Dst, q.eng.Flow().Src)
	return q.waited
}

// resume puts what waits where the next step finds it.
func (s *shard) resume() {
	s.waiting = len(s.patient) > 0
	for i, q := range s.patient {
		s.patient[i] = nil
		s.ready.push(q)
	}
	s.patient = s.patient[:0]
}

// lockSent locks the shard for a program that takes away what ACKs are of: those
// that wait are sent first.
func (s *shard) lockSent() {
	s.mu.Lock()
	if s.waiting {
		s.hasten(s.step(s.n.cfg.Clock(), byBackground))
	}
}
