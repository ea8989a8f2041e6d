package daemon

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Problem is an error in a configuration file, and where.
type Problem struct {
	File         string
	Line, Column int    // from 1; Line 0 is the file as a whole
	Source       string // the line
	Width        int    // characters of it that are meant
	Message      string // what is wrong, and what is allowed
}

// Error quotes the line and points at the place.
//
//	rxed.toml:7:10: link "tcp": it takes auto, udp, packet or xdp
//	    link   = "tcp"
//	             ^~~~~
func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	indent := []rune(p.Source)
	indent = indent[:min(p.Column-1, len(indent))]
	for i, r := range indent {
		if r != '\t' {
			indent[i] = ' '
		}
	}
	return fmt.Sprintf("%s:%d:%d: %s\n    %s\n    %s^%s", p.File, p.Line, p.Column, p.Message,
		p.Source, string(indent), strings.Repeat("~", max(0, p.Width-1)))
}

// Problems are all errors that were found in a file, in its order.
type Problems []*Problem

func (ps Problems) Error() string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Error()
	}
	return strings.Join(out, "\n")
}

// span is a piece of a document.
type span struct{ off, n int }

// whole is no place in particular.
var whole = span{off: -1}

// document is a file as errors quote it.
type document struct {
	name string
	text []byte
	all  Problems
}

func (d *document) add(at span, format string, args ...any) {
	d.all = append(d.all, d.problem(at, fmt.Sprintf(format, args...)))
}

func (d *document) problem(at span, message string) *Problem {
	p := &Problem{File: d.name, Message: message}
	if at == whole {
		return p
	}
	at.off = min(at.off, len(d.text))
	start := bytes.LastIndexByte(d.text[:at.off], '\n') + 1
	line, _, _ := bytes.Cut(d.text[start:], []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	end := min(at.off+at.n, start+len(line))
	p.Line = bytes.Count(d.text[:start], []byte("\n")) + 1
	p.Column = utf8.RuneCount(d.text[start:at.off]) + 1
	p.Width = utf8.RuneCount(d.text[at.off:max(at.off, end)])
	p.Source = string(line)
	return p
}

// err returns what was found, or nil.
func (d *document) err() error {
	if len(d.all) == 0 {
		return nil
	}
	slices.SortStableFunc(d.all, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.all
}
