package report

import (
	"fmt"
	"io"
	"time"
)

// Progress rewrites one line of a terminal during long runs.
type Progress struct {
	w           io.Writer
	total       uint64
	start, last time.Time
	shown       bool
}

// NewProgress returns one that writes to w, and nothing if tty is false. total
// is the messages of the whole run, 0 if not known.
func NewProgress(w io.Writer, tty bool, total uint64) *Progress {
	if !tty {
		w = nil
	}
	return &Progress{w: w, total: total}
}

// Update may rewrite the line, with what has been done up to now.
func (p *Progress) Update(now time.Time, messages, octets uint64) {
	if p.w == nil {
		return
	}
	if p.start.IsZero() {
		p.start = now
	}
	d := now.Sub(p.start)
	if d < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf(" of %d", p.total)
	}
	fmt.Fprintf(p.w, "\r\x1b[K %d%s messages in %.1f s, %.2f MiB/s", messages, of, d.Seconds(), float64(octets)/d.Seconds()/(1<<20))
}

// Done erases the line.
func (p *Progress) Done() {
	if p.w != nil && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
