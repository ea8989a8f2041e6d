package tap

import (
	"fmt"
	"time"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// scribe makes records of what passes a link, for whoever owns it. It is not
// safe for concurrent use.
type scribe struct {
	id    int
	info  link.Info
	write func(*record)
	// full, if set, reports whether nobody has room for a packet of so many
	// octets, which it then counts: it need not be made.
	full func(iface, octets int) bool
	// trusts has it take the NIC's verdict on the ICRC of a packet, when there
	// is one, instead of looking itself.
	trusts bool

	// What link/fault tells about the last Send and Recv; nil of other links.
	txNotes interface {
		TxNote(burst, segment int) string
	}
	rxNotes interface{ RxNote(datagram int) string }

	v        *wire.Verifier
	received []received
	at       time.Time // of received
	verdicts []trace.Reason
	frame    []byte
}

func (s *scribe) init(inner link.Link, info link.Info, id int, write func(*record)) {
	s.id, s.info, s.v, s.write = id, info, wire.NewVerifier(), write
	s.txNotes, _ = inner.(interface {
		TxNote(burst, segment int) string
	})
	s.rxNotes, _ = inner.(interface{ RxNote(datagram int) string })
}

// received is a datagram of the last Recv that is not in the file yet.
type received struct {
	wire.Datagram
	note  string
	first int // of its segments' verdicts
}

// untold is the verdict of a segment that the NIC said nothing about.
const untold = trace.NumReasons

// took takes note of what a Recv returned. It is written by the next flush.
func (s *scribe) took(at time.Time, ds []wire.Datagram) {
	s.at = at
	for i := range ds {
		r := received{Datagram: ds[i], first: len(s.verdicts)}
		if s.rxNotes != nil {
			r.note = s.rxNotes.RxNote(i)
		}
		for range ds[i].Segments() {
			s.verdicts = append(s.verdicts, untold)
		}
		s.received = append(s.received, r)
	}
}

// judged is what the NIC made of segment seg of datagram i of the last took.
func (s *scribe) judged(i, seg int, r trace.Reason) {
	if i < len(s.received) && seg < s.received[i].Segments() {
		s.verdicts[s.received[i].first+seg] = r
	}
}

// sent writes the first n segments of some bursts.
func (s *scribe) sent(at time.Time, bs []*wire.Burst, n int) {
	for i, b := range bs {
		for seg := range b.Segs[:min(n, b.Len())] {
			s.writeSent(at, b, i, seg)
		}
		n -= min(n, b.Len())
	}
}

// writeSent writes segment seg of burst i.
func (s *scribe) writeSent(at time.Time, b *wire.Burst, i, seg int) {
	f := b.Flow
	if s.full != nil && s.full(s.id, b.Segs[seg].Len) {
		return
	}
	s.frame = s.frame[:0]
	d := wire.Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TOS: f.TOS, TTL: f.TTL, Payload: b.AppendSegment(s.frame, seg)}
	s.frame = d.Payload
	id := uint16(0)
	if s.info.IDs == wire.IDCount {
		id = uint16(seg)
	}
	r := record{iface: s.id, at: at, flags: flagOutbound}
	if s.txNotes != nil {
		r.comment = faultComment("", s.txNotes.TxNote(i, seg))
	}
	n := len(s.frame)
	s.frame = appendFrame(s.frame, &d, 0, id, wire.FlagDF)
	r.frame = s.frame[n:]
	s.write(&r)
}

// flush writes what the last Recv returned.
func (s *scribe) flush() {
	for i := range s.received {
		r := &s.received[i]
		for seg := range r.Segments() {
			s.writeReceived(r, seg)
		}
		*r = received{} // let go of the buffer
	}
	s.received, s.verdicts = s.received[:0], s.verdicts[:0]
}

func (s *scribe) writeReceived(r *received, seg int) {
	if s.full != nil && s.full(s.id, len(r.Segment(seg))) {
		return
	}
	v := s.verdicts[r.first+seg]
	icrc := v
	if v == untold || !s.trusts {
		icrc = s.v.Check(s.at.UnixNano(), &r.Datagram, seg)
	}
	comment := icrcComment(icrc, s.trusts)
	id, flags := r.ID+uint16(seg), r.Flags
	if r.Src.Is4() && !r.IDKnown {
		var ok bool
		if id, flags, ok = wire.SolveID(&r.Datagram, seg); ok {
			comment += fmt.Sprintf("; IPv4 ID %d solved for", id)
		} else {
			id, flags = uint16(seg), wire.FlagDF
			comment += fmt.Sprintf("; IPv4 ID not seen, %d assumed", id)
		}
	}
	if v != untold {
		comment += verdictComment(v)
	}
	s.frame = appendFrame(s.frame[:0], &r.Datagram, seg, id, flags)
	s.write(&record{
		iface: s.id, at: s.at, flags: flagInbound, frame: s.frame,
		comment: faultComment(comment, r.note),
	})
}

// icrcComment puts the verdict of a Verifier in words, or that of a NIC, which
// drops packets for other reasons after it.
func icrcComment(r trace.Reason, byNIC bool) string {
	switch r {
	case trace.None:
		return "ICRC ok"
	case trace.DropICRC:
		return "ICRC bad"
	case trace.DropICRCWindow:
		return "ICRC ok only for an IPv4 ID out of the peer's window"
	}
	if byNIC && r >= trace.DropQPN {
		return "ICRC ok"
	}
	return "ICRC not checked: " + r.Explain()
}

func verdictComment(r trace.Reason) string {
	switch {
	case r == trace.None:
		return "; taken"
	case r.IsDrop():
		return fmt.Sprintf("; dropped, %v: %s", r, r.Explain())
	}
	return fmt.Sprintf("; %v: %s", r, r.Explain())
}

func faultComment(s, note string) string {
	switch {
	case note == "":
		return s
	case s == "":
		return "fault rule: " + note
	}
	return s + "; fault rule: " + note
}
