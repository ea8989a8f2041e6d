package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gorxe/gorxe/bth"
)

// Verdict is what became of a packet.
type Verdict string

const (
	Played     Verdict = "played"     // of the recorded side that is played
	Same       Verdict = "same"       // ours and theirs agree, up to what is allowed
	Different  Verdict = "different"  // and they do not
	Unrecorded Verdict = "unrecorded" // ours, lost by theirs on the way to the capture
	Unheard    Verdict = "unheard"    // the peer's, played before and lost behind the recorder
	Outside    Verdict = "outside"    // not compared: the capture lacks what it would take
)

// Line is one packet of a replay: the recorded one, the engine's, or both.
type Line struct {
	Frame   int       `json:"frame,omitempty"` // 0 when only the engine sent it
	Seconds *float64  `json:"seconds,omitempty"`
	From    string    `json:"from"` // A or B
	Theirs  string    `json:"theirs,omitempty"`
	Ours    string    `json:"ours,omitempty"`
	Verdict Verdict   `json:"verdict"`
	Allowed []Allowed `json:"allowed,omitempty"`
	Diffs   []string  `json:"differences,omitempty"`
	Why     string    `json:"why,omitempty"`

	event int // index, or -1
	ours  *bth.Packet
}

// MarshalText names it, as JSON has it.
func (a Allowed) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Result is a replay of one conversation.
type Result struct {
	A           Endpoint        `json:"a"`
	B           Endpoint        `json:"b"`
	Side        string          `json:"side"` // the one that is played
	Compared    int             `json:"compared"`
	Differences int             `json:"differences"`
	Allowed     map[Allowed]int `json:"allowed,omitempty"`
	// Lost counts packets of ours that the recorded side must have sent too, and
	// that the capture lacks.
	Lost int `json:"lost_before_capture,omitempty"`
	// Unheard counts packets of the peer that were recorded and then lost.
	Unheard int `json:"lost_behind_capture,omitempty"`
	// Outside counts packets that have no counterpart to compare with.
	Outside int `json:"not_compared,omitempty"`
	// MSNOffset was added to the engine's MSN, for a capture that began late.
	MSNOffset int `json:"msn_offset,omitempty"`
	// Changed is how many octets of its memory the recorded side's own program
	// changed between two requests.
	Changed int `json:"changed_octets,omitempty"`
	// Habits of the recorded side that the engine was given, in words.
	Habits string `json:"habits,omitempty"`

	Lines []Line `json:"-"`
	plan  *plan
}

// Options say how to replay.
type Options struct {
	Side Side // the one that is played; the engine is the other
	// Plain leaves the engine as it is where the recorded side has habits of its
	// own (rc.Habits).
	Plain bool
}

// Run plays one side of a conversation against an engine in place of the other.
// The error says why that cannot be done; differences are in the result.
func Run(c *Conversation, o Options) (*Result, error) {
	p, err := newPlan(c, o.Side.Other())
	if err != nil {
		return nil, err
	}
	if o.Plain {
		p.habits = 0
	}
	var best *path
	for _, width := range widths {
		r := &align{plan: p, width: width}
		if best != nil {
			r.limit = best.cost - best.cost%costWrong // fewer differences, or none the better
		}
		w, err := r.run()
		if err != nil {
			return nil, err
		}
		if best == nil || w != nil && w.cost < best.cost {
			best = w
		}
		if best.cost < costWrong || len(c.events) > maxWide {
			break
		}
	}
	res := &Result{
		A: c.Ends[A], B: c.Ends[B], Side: o.Side.String(), Allowed: map[Allowed]int{}, MSNOffset: p.msn, Changed: best.player.changed,
		Habits: p.habits.String(), plan: p,
	}
	for _, l := range best.lines.slice() {
		res.add(l)
	}
	return res, nil
}

// add takes a line and counts it.
func (r *Result) add(l Line) {
	ev := r.plan.conv.events
	l.From = r.plan.ours.String()
	if l.event >= 0 {
		e := &ev[l.event]
		l.Frame, l.From, l.Theirs = e.frame, e.from.String(), text(&e.pkt)
		if !e.time.IsZero() {
			s := e.time.Sub(r.plan.conv.Begins).Seconds()
			l.Seconds = &s
		}
	}
	if l.ours != nil {
		l.Ours = text(l.ours)
	}
	switch l.Verdict {
	case Same:
		if l.event >= 0 {
			r.Compared++
		}
	case Different:
		r.Differences++
		if l.event >= 0 {
			r.Compared++
		}
	case Unrecorded:
		r.Lost++
	case Unheard:
		r.Unheard++
	case Outside:
		r.Outside++
	}
	for _, a := range l.Allowed {
		r.Allowed[a]++
	}
	r.Lines = append(r.Lines, l)
}

// Text is the line for people.
func (l *Line) Text() string {
	var b strings.Builder
	frame, at := "", ""
	if l.Frame > 0 {
		frame = fmt.Sprint(l.Frame)
	}
	if l.Seconds != nil {
		at = fmt.Sprintf("%.6f", *l.Seconds)
	}
	theirs, ours, sign := l.Theirs, l.Ours, "="
	switch {
	case l.Verdict == Played:
		fmt.Fprintf(&b, "%5s %11s %s  %s", frame, at, l.From, theirs)
		return b.String()
	case l.Verdict == Different:
		sign = "!"
	case l.Verdict != Same:
		sign = "."
	case len(l.Allowed) > 0:
		sign = "~"
	}
	if theirs == "" {
		theirs = "-"
	}
	if ours == "" {
		ours = "-"
	}
	fmt.Fprintf(&b, "%5s %11s %s  %-60s %s %s", frame, at, l.From, theirs, sign, ours)
	var notes []string
	for _, a := range l.Allowed {
		notes = append(notes, a.String())
	}
	notes = append(notes, l.Diffs...)
	if l.Why != "" {
		notes = append(notes, l.Why)
	}
	if len(notes) > 0 {
		fmt.Fprintf(&b, "   (%s)", strings.Join(notes, "; "))
	}
	return b.String()
}

// Summary is the result in one line.
func (r *Result) Summary() string {
	var s strings.Builder
	s.WriteString(fmt.Sprintf("%s, %s", count(r.Compared, "answer")+" compared", count(r.Differences, "difference")))
	sep := "; allowed: "
	for a := range numAllowed {
		if n := r.Allowed[a]; n > 0 {
			s.WriteString(fmt.Sprintf("%s%v %d", sep, a, n))
			sep = ", "
		}
	}
	if r.Lost > 0 {
		s.WriteString(fmt.Sprintf("; lost before the capture: %d", r.Lost))
	}
	if r.Unheard > 0 {
		s.WriteString(fmt.Sprintf("; lost behind it: %d", r.Unheard))
	}
	if r.Outside > 0 {
		s.WriteString(fmt.Sprintf("; not compared: %d", r.Outside))
	}
	if r.MSNOffset > 0 {
		s.WriteString(fmt.Sprintf("; the capture begins late: %d added to our MSN", r.MSNOffset))
	}
	if r.Changed > 0 {
		s.WriteString("; its program changed " + count(r.Changed, "octet"))
	}
	if r.Habits != "" {
		s.WriteString("; the engine was told that its side " + r.Habits)
	}
	return s.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Write writes a replay: a line for each packet, and the summary.
func (r *Result) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for i := range r.Lines {
			if err := enc.Encode(&r.Lines[i]); err != nil {
				return err
			}
		}
		return enc.Encode(r)
	}
	ours := "B"
	if r.Side == "B" {
		ours = "A"
	}
	if _, err := fmt.Fprintf(w, "A %v, B %v: %s as recorded, %s by this engine (theirs = ours)\n", r.A, r.B, r.Side, ours); err != nil {
		return err
	}
	for i := range r.Lines {
		if _, err := fmt.Fprintln(w, r.Lines[i].Text()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, r.Summary())
	return err
}
