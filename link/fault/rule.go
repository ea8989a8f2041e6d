package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// Effect is what a rule does to a packet.
type Effect uint8

// The effects, in the order of the grammar.
const (
	Drop Effect = iota + 1
	Dup
	Reorder
	Delay
	Corrupt
	CE
	Rate
	Cut
	numEffects
)

var effectNames = [numEffects]string{
	Drop: "drop", Dup: "dup", Reorder: "reorder", Delay: "delay", Corrupt: "corrupt", CE: "ce", Rate: "rate", Cut: "cut",
}

// String returns the effect's word in the grammar.
func (e Effect) String() string {
	if e > 0 && e < numEffects {
		return effectNames[e]
	}
	return "none"
}

// Effects is a set of effects.
type Effects uint16

// Has reports whether e is in the set.
func (s Effects) Has(e Effect) bool { return s>>e&1 != 0 }

// String lists the set's words.
func (s Effects) String() string {
	var b strings.Builder
	for e := Drop; e < numEffects; e++ {
		if s.Has(e) {
			if b.Len() > 0 {
				b.WriteByte('+')
			}
			b.WriteString(e.String())
		}
	}
	return b.String()
}

// Defaults of options.
const (
	DefaultBy     = 3
	DefaultWithin = 10 * time.Millisecond
	DefaultBuf    = 256 << 10 // octets
)

// always is the Chance of a rule without a percentage.
const always = 1_000_000_000

// Rule is one rule. Options of value 0 were not given.
type Rule struct {
	Dir    trace.Dir // Tx, Rx, or Local for both
	Effect Effect
	Chance uint32 // of 10^9

	QPN    bth.QPN // with HasQPN
	HasQPN bool
	PSN    [2]bth.PSN // first and last, with HasPSN
	HasPSN bool
	Opcode string // name, or prefix ending in "*"; empty for any

	Seen, First, Every, Limit uint32

	By     int              // Reorder
	Within time.Duration    // Reorder
	Span   [2]time.Duration // Delay, Cut
	Bits   int64            // Rate: bits a second
	Buf    int              // Rate: octets

	opcodes [4]uint64 // set of the opcodes that Opcode names
}

// Rules are rules in the order in which they are applied.
type Rules []Rule

// String returns the rules in the grammar; Parse gives the same rules back.
func (rs Rules) String() string {
	s := make([]string, len(rs))
	for i := range rs {
		s[i] = rs[i].String()
	}
	return strings.Join(s, "; ")
}

// String returns the rule in the grammar. What has its default is left out.
func (r *Rule) String() string {
	var w []string
	add := func(format string, a ...any) { w = append(w, fmt.Sprintf(format, a...)) }
	switch r.Dir {
	case trace.Tx:
		add("tx")
	case trace.Rx:
		add("rx")
	}
	add("%v", r.Effect)
	switch r.Effect {
	case Delay, Cut:
		if r.Span[0] == r.Span[1] {
			add("%v", r.Span[0])
		} else {
			add("%v..%v", r.Span[0], r.Span[1])
		}
	case Rate:
		add("%s", formatBits(r.Bits))
	}
	if r.Chance != always {
		add("%s%%", formatPercent(r.Chance))
	}
	if r.HasQPN {
		add("qpn=%#x", uint32(r.QPN))
	}
	if r.HasPSN {
		if r.PSN[0] == r.PSN[1] {
			add("psn=%v", r.PSN[0])
		} else {
			add("psn=%v..%v", r.PSN[0], r.PSN[1])
		}
	}
	if r.Opcode != "" {
		add("opcode=%s", r.Opcode)
	}
	for _, o := range []struct {
		name string
		v    uint32
	}{{"seen", r.Seen}, {"first", r.First}, {"every", r.Every}, {"limit", r.Limit}} {
		if o.v != 0 {
			add("%s=%d", o.name, o.v)
		}
	}
	if r.Effect == Reorder && r.By != DefaultBy {
		add("by=%d", r.By)
	}
	if r.Effect == Reorder && r.Within != DefaultWithin {
		add("within=%v", r.Within)
	}
	if r.Effect == Rate && r.Buf != DefaultBuf {
		add("buf=%s", formatSize(r.Buf))
	}
	return strings.Join(w, " ")
}

func formatPercent(chance uint32) string {
	whole, frac := chance/1e7, chance%1e7
	if frac == 0 {
		return strconv.Itoa(int(whole))
	}
	return strings.TrimRight(fmt.Sprintf("%d.%07d", whole, frac), "0")
}

func formatBits(n int64) string {
	for i := len(bitUnits) - 1; ; i-- {
		if u := bitUnits[i]; n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
}

func formatSize(n int) string {
	for i := len(sizeUnits) - 1; ; i-- {
		if u := sizeUnits[i]; int64(n)%u.n == 0 {
			return strconv.FormatInt(int64(n)/u.n, 10) + u.name
		}
	}
}

type unit struct {
	name string
	n    int64
}

// Units in ascending order.
var (
	bitUnits  = []unit{{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}}
	sizeUnits = []unit{{"", 1}, {"k", 1 << 10}, {"M", 1 << 20}}
)
