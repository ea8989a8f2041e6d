package script

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// args are the words of a line behind its verb. A verb takes the keys and flags
// it knows; done complains of the others. The first error is kept.
type args struct {
	words []word
	asked []string // keys and flags the verb takes, for done
	err   error
}

type word struct {
	key, val string
	pair     bool // key=value
	used     bool
}

func makeArgs(words []string) *args {
	a := &args{}
	for _, w := range words {
		k, v, pair := strings.Cut(w, "=")
		a.words = append(a.words, word{key: k, val: v, pair: pair})
	}
	return a
}

func (a *args) fail(format string, v ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, v...)
	}
}

// next takes the first word, if it is no pair. What says what it should be.
func (a *args) next(what string) string {
	if len(a.words) == 0 || a.words[0].pair {
		a.fail("%s is missing", what)
		return ""
	}
	w := a.words[0].key
	a.words = a.words[1:]
	return w
}

// rest takes all words that are no pairs.
func (a *args) rest() (out []string) {
	for i := range a.words {
		if w := &a.words[i]; !w.pair && !w.used {
			w.used = true
			out = append(out, w.key)
		}
	}
	return out
}

func (a *args) flag(name string) bool {
	a.asked = append(a.asked, name)
	for i := range a.words {
		if w := &a.words[i]; !w.pair && !w.used && w.key == name {
			w.used = true
			return true
		}
	}
	return false
}

// str takes the value of a key; ok is false when it is not there.
func (a *args) str(key string) (v string, ok bool) {
	a.asked = append(a.asked, key+"=")
	for i := range a.words {
		if w := &a.words[i]; w.pair && !w.used && w.key == key {
			w.used = true
			return w.val, true
		}
	}
	return "", false
}

// num takes a number of at most so many bits.
func (a *args) num(key string, bits int) (n uint64, ok bool) {
	s, ok := a.str(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		a.fail("%s=%s: not a number of %d bits", key, s, bits)
	}
	return n, true
}

// count takes a small number, or returns def.
func (a *args) count(key string, def, limit int) int {
	n, ok := a.num(key, 31)
	if !ok {
		return def
	}
	if int(n) > limit {
		a.fail("%s=%d: at most %d", key, n, limit)
	}
	return int(n)
}

// addr takes an IPv4 address.
func (a *args) addr(key string) (out netip.Addr) {
	s, ok := a.str(key)
	if !ok {
		return out
	}
	out, err := netip.ParseAddr(s)
	if err != nil || !out.Is4() {
		a.fail("%s=%s: not an IPv4 address", key, s)
	}
	return out
}

// bytes takes octets.
func (a *args) bytes(key string) (b []byte, ok bool) {
	s, ok := a.str(key)
	if !ok {
		return nil, false
	}
	b, err := parseBytes(s)
	if err != nil {
		a.fail("%s=%s: %v", key, s, err)
	}
	return b, true
}

// done returns the first error, or that of a word nobody took.
func (a *args) done() error {
	if a.err != nil {
		return a.err
	}
	for _, w := range a.words {
		if w.used {
			continue
		}
		name := w.key
		if w.pair {
			name += "="
		}
		switch {
		case slices.Contains(a.asked, name):
			return fmt.Errorf("%s is there twice", name)
		case slices.Contains(a.asked, w.key):
			return fmt.Errorf("%s takes no value", w.key)
		case slices.Contains(a.asked, w.key+"="):
			return fmt.Errorf("%s needs a value", w.key)
		case len(a.asked) == 0:
			return fmt.Errorf("%s is too much", name)
		}
		return fmt.Errorf("unknown word %s; there are %s", name, strings.Join(a.asked, " "))
	}
	return nil
}

// maxBytes bounds what a script may write out.
const maxBytes = 1 << 20

// parseBytes reads hex digits and repetitions: 01ff, 5a*256, aa*4+00.
func parseBytes(s string) (out []byte, err error) {
	if s == "" {
		return nil, nil
	}
	for piece := range strings.SplitSeq(s, "+") {
		digits, times, repeated := strings.Cut(piece, "*")
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) == 0 {
			return nil, fmt.Errorf("%q is not pairs of hex digits", digits)
		}
		n := 1
		if repeated {
			if n, err = strconv.Atoi(times); err != nil || n < 0 {
				return nil, fmt.Errorf("%q is not how often to repeat", times)
			}
		}
		if n > maxBytes || len(out)+n*len(b) > maxBytes {
			return nil, fmt.Errorf("more than %d octets", maxBytes)
		}
		for range n {
			out = append(out, b...)
		}
	}
	return out, nil
}

// place is an address: an offset into a region, or a number when the region is
// "".
type place struct {
	region string
	off    uint64
}

func parsePlace(s string) (p place, err error) {
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		p.off, err = strconv.ParseUint(s, 0, 64)
		if err != nil {
			err = fmt.Errorf("%q is not an address", s)
		}
		return p, err
	}
	p.region = s
	i := strings.IndexAny(s, "+-")
	if i < 0 {
		return p, nil
	}
	p.region = s[:i]
	if p.off, err = strconv.ParseUint(s[i+1:], 0, 64); err != nil {
		return p, fmt.Errorf("%q is not an offset", s[i+1:])
	}
	if s[i] == '-' {
		p.off = -p.off
	}
	return p, nil
}

// piece is an entry of a scatter/gather list.
type piece struct {
	at  place
	n   uint32
	key place // a region's key, or a number
}

// parseList reads m+0:64,m+100:32:0xbad.
func parseList(s string) (out []piece, err error) {
	for e := range strings.SplitSeq(s, ",") {
		f := strings.Split(e, ":")
		if len(f) < 2 || len(f) > 3 {
			return nil, fmt.Errorf("%q is not place:length or place:length:key", e)
		}
		var p piece
		if p.at, err = parsePlace(f[0]); err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(f[1], 0, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a length", f[1])
		}
		p.n, p.key = uint32(n), place{region: p.at.region}
		if len(f) == 3 {
			if p.key, err = parsePlace(f[2]); err != nil {
				return nil, err
			}
		} else if p.at.region == "" {
			return nil, fmt.Errorf("%q needs a key, as an address in no region has none", e)
		}
		out = append(out, p)
	}
	return out, nil
}

// when is the time of a step.
type when struct {
	set      bool
	relative bool
	lo, hi   int64
}

// parseWhen reads a time; ok is false when the word is none.
func parseWhen(s string) (w when, ok bool, err error) {
	if s == "" || (s[0] < '0' || s[0] > '9') && s[0] != '+' {
		return w, false, nil
	}
	w.set, w.relative = true, s[0] == '+'
	lo, hi, ranged := strings.Cut(s, "..")
	one := func(s string) int64 {
		if w.relative != strings.HasPrefix(s, "+") {
			err = fmt.Errorf("%q: both ends of a range are relative, or none", s)
			return 0
		}
		d, derr := time.ParseDuration(strings.TrimPrefix(s, "+"))
		if derr != nil || d < 0 {
			err = fmt.Errorf("%q is not a time such as 5ms or 655.36us", s)
		}
		if d > maxTime {
			err = fmt.Errorf("%q: a script lasts at most %v", s, time.Duration(maxTime))
		}
		return int64(d)
	}
	w.lo = one(lo)
	w.hi = w.lo
	if ranged && err == nil {
		if w.hi = one(hi); err == nil && w.hi < w.lo {
			err = fmt.Errorf("%q ends before it begins", s)
		}
	}
	return w, true, err
}

// maxTime is the longest time: a local ACK timeout is at most 2.4 hours.
const maxTime = 100 * time.Hour
