package trace

// Dir says which way the packet of an event went.
type Dir uint8

const (
	Local Dir = iota // no packet: a work request, a timer, a state
	Tx
	Rx
)

func (d Dir) String() string {
	if d > Rx {
		return "?"
	}
	return [...]string{"-", ">", "<"}[d]
}

// Event is one thing that happened to one queue pair.
type Event struct {
	Time   int64  // nanoseconds on the clock of whoever recorded
	QPN    uint32 // local queue pair, 0 if none
	PSN    uint32
	Arg    uint32 // depends on Reason: timer code, state, count
	Reason Reason
	Dir    Dir
	Opcode uint8 // of the packet, when Dir is Tx or Rx
}

// Recorder keeps the last events in a ring of fixed size. The zero value
// records nothing. It is not safe for concurrent use; its owner holds the lock
// of its shard.
type Recorder struct {
	ring []Event
	next uint64
}

// NewRecorder returns a recorder of the last n events; with n of 0 or less it
// records nothing.
func NewRecorder(n int) *Recorder { return &Recorder{ring: make([]Event, max(n, 0))} }

// Record adds an event, replacing the oldest when the ring is full. It is safe
// on a nil recorder.
func (r *Recorder) Record(e Event) {
	if r == nil || len(r.ring) == 0 {
		return
	}
	r.ring[r.next%uint64(len(r.ring))] = e
	r.next++
}

// Events returns the recorded events, oldest first.
func (r *Recorder) Events() []Event {
	if r == nil || r.next == 0 {
		return nil
	}
	n := min(r.next, uint64(len(r.ring)))
	out := make([]Event, 0, n)
	for i := r.next - n; i < r.next; i++ {
		out = append(out, r.ring[i%uint64(len(r.ring))])
	}
	return out
}
