package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// Bounds of what the grammar takes.
const (
	maxBits   = 1e12     // bits a second
	maxBuf    = 64 << 20 // octets
	maxHeldBy = 1 << 16  // packets
)

// ParseError says which word of which rule is wrong.
type ParseError struct {
	Rule string // as it was given
	Word string // the wrong one
	At   int    // where Word begins in Rule, in octets
	Msg  string
}

// Error quotes the rule, and points at the word in the lines below it.
func (e *ParseError) Error() string {
	return fmt.Sprintf("fault rule %q: %s: %q\n\t%s\n\t%s%s", e.Rule, e.Msg, e.Word,
		e.Rule, strings.Repeat(" ", e.At), strings.Repeat("^", max(1, len(e.Word))))
}

// Parse reads rules. An error is a *ParseError.
func Parse(text string) (Rules, error) {
	var rs Rules
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for s := range strings.SplitSeq(line, ";") {
			s = strings.TrimSpace(s)
			if s == "" {
				continue
			}
			r, err := parseRule(s)
			if err != nil {
				return nil, err
			}
			rs = append(rs, *r)
		}
	}
	return rs, nil
}

// MustParse is Parse for rules that are written in a program.
func MustParse(text string) Rules {
	rs, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return rs
}

// parser reads one rule.
type parser struct {
	Rule
	given map[string]bool // words that may come once
}

func parseRule(text string) (*Rule, error) {
	p := parser{Rule: Rule{Chance: always, By: DefaultBy, Within: DefaultWithin, Buf: DefaultBuf}, given: map[string]bool{}}
	end := 0
	for word := range strings.FieldsSeq(text) {
		at := end + strings.Index(text[end:], word)
		end = at + len(word)
		if msg := p.word(word); msg != "" {
			return nil, &ParseError{Rule: text, Word: word, At: at, Msg: msg}
		}
	}
	missing := ""
	switch {
	case p.Effect == 0:
		missing = "an effect is missing after"
	case p.Effect == Delay && !p.given["span"]:
		missing = "delay needs a duration after"
	case p.Effect == Cut && !p.given["span"]:
		missing = "cut needs two times after"
	case p.Effect == Rate && !p.given["bitrate"]:
		missing = "rate needs a bit rate after"
	}
	if missing != "" {
		return nil, &ParseError{Rule: text, Word: text, Msg: missing}
	}
	return &p.Rule, nil
}

// word takes the next word and returns what is wrong with it, or nothing.
func (p *parser) word(w string) string {
	if p.Effect == 0 {
		return p.head(w)
	}
	if name, value, ok := strings.Cut(w, "="); ok {
		return p.option(name, value)
	}
	switch {
	case strings.HasSuffix(w, "%"):
		return p.percent(strings.TrimSuffix(w, "%"))
	case p.Effect == Rate:
		return p.bitrate(w)
	case p.Effect == Delay || p.Effect == Cut:
		return p.span(w)
	}
	return "not a percentage or option of " + p.Effect.String()
}

// head takes direction and effect.
func (p *parser) head(w string) string {
	if p.Dir == trace.Local {
		switch w {
		case "tx":
			p.Dir = trace.Tx
			return ""
		case "rx":
			p.Dir = trace.Rx
			return ""
		}
	}
	for e := Drop; e < numEffects; e++ {
		if w == e.String() {
			p.Effect = e
			return ""
		}
	}
	return "unknown effect (drop, dup, reorder, delay, corrupt, ce, rate, cut)"
}

// once notes a word that may come once; false when it came before.
func (p *parser) once(name string) bool {
	before := p.given[name]
	p.given[name] = true
	return !before
}

func (p *parser) percent(s string) string {
	if p.Effect == Rate || p.Effect == Cut {
		return p.Effect.String() + " takes no percentage"
	}
	if !p.once("percent") {
		return "a second percentage"
	}
	whole, frac, point := strings.Cut(s, ".")
	n, ok := number(whole, 100)
	if !ok || !digits(whole) || point && (!digits(frac) || len(frac) > 7) {
		return "a percentage is 0 to 100 with up to 7 decimals"
	}
	f, _ := strconv.ParseUint((frac + "0000000")[:7], 10, 32)
	if n*1e7+f > always {
		return "a percentage is 0 to 100 with up to 7 decimals"
	}
	p.Chance = uint32(n*1e7 + f)
	return ""
}

func (p *parser) bitrate(w string) string {
	if !p.once("bitrate") {
		return "a second bit rate"
	}
	n, ok := scaled(w, bitUnits, maxBits)
	if !ok || n == 0 {
		return "a bit rate is a whole number of bit, kbit, Mbit or Gbit, up to 1000Gbit"
	}
	p.Bits = n
	return ""
}

func (p *parser) span(w string) string {
	if !p.once("span") {
		return "a second duration"
	}
	from, to, ok := strings.Cut(w, "..")
	if !ok {
		if p.Effect == Cut {
			return "cut needs a beginning and an end, as in 100ms..200ms"
		}
		to = from
	}
	a, errA := time.ParseDuration(from)
	b, errB := time.ParseDuration(to)
	switch {
	case errA != nil || errB != nil || a < 0 || b < 0:
		return "not a duration, or a percentage or option, of " + p.Effect.String()
	case a > b || a == b && p.Effect == Cut:
		return "a span that ends before it begins"
	}
	p.Span = [2]time.Duration{a, b}
	return ""
}

func (p *parser) option(name, value string) string {
	only := Effect(0)
	switch name {
	case "by", "within":
		only = Reorder
	case "buf":
		only = Rate
	}
	if only != 0 && p.Effect != only {
		return name + " is an option of " + only.String()
	}
	if !p.once(name) {
		return "option given twice"
	}
	switch name {
	case "qpn":
		n, ok := number(value, bth.QPNMask)
		if !ok {
			return "a QPN is a number of 24 bits"
		}
		p.QPN, p.HasQPN = bth.QPN(n), true
	case "psn":
		return p.psn(value)
	case "opcode":
		return p.opcode(value)
	case "seen":
		return count(value, &p.Seen)
	case "first":
		return count(value, &p.First)
	case "every":
		return count(value, &p.Every)
	case "limit":
		return count(value, &p.Limit)
	case "by":
		n, ok := number(value, maxHeldBy)
		if !ok || n == 0 {
			return "by is a whole number from 1 to 65536"
		}
		p.By = int(n)
	case "within":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return "within is a duration"
		}
		p.Within = d
	case "buf":
		n, ok := scaled(value, sizeUnits, maxBuf)
		if !ok || n == 0 {
			return "buf is a whole number of octets, k or M, up to 64M"
		}
		p.Buf = int(n)
	default:
		return "unknown option (qpn, psn, opcode, seen, first, every, limit, by, within, buf)"
	}
	return ""
}

func (p *parser) psn(value string) string {
	from, to, ok := strings.Cut(value, "..")
	if !ok {
		to = from
	}
	a, okA := number(from, bth.PSNMask)
	b, okB := number(to, bth.PSNMask)
	if !okA || !okB {
		return "a PSN is a number of 24 bits"
	}
	p.PSN, p.HasPSN = [2]bth.PSN{bth.MakePSN(uint32(a)), bth.MakePSN(uint32(b))}, true
	return ""
}

func (p *parser) opcode(value string) string {
	prefix, star := strings.CutSuffix(value, "*")
	found := false
	for i := range 256 {
		o := bth.Opcode(i)
		if o.Valid() && (o.String() == value || star && strings.HasPrefix(o.String(), prefix)) {
			p.opcodes[i/64] |= 1 << (i % 64)
			found = true
		}
	}
	if !found {
		return "no such opcode (as RC_WRITE_ONLY_IMM, or a prefix as RC_READ_RESP_*)"
	}
	p.Opcode = value
	return ""
}

func count(value string, to *uint32) string {
	n, ok := number(value, 1<<31)
	if !ok || n == 0 {
		return "not a whole number from 1"
	}
	*to = uint32(n)
	return ""
}

// number reads a decimal or 0x number up to max.
func number(s string, max uint64) (uint64, bool) {
	base := 10
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		s, base = h, 16
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil && n <= max
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// scaled reads a whole number with a unit.
func scaled(s string, units []unit, max int64) (int64, bool) {
	i := strings.LastIndexAny(s, "0123456789") + 1
	for _, u := range units {
		if s[i:] == u.name {
			n, ok := number(s[:i], uint64(max/u.n))
			return int64(n) * u.n, ok
		}
	}
	return 0, false
}
