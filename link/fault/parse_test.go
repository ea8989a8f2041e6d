package fault

import (
	"errors"
	"strings"
	"testing"
)

// The second column is what String makes of it, when that differs.
var goodRules = [][2]string{
	{"tx drop 2%", ""},
	{"rx drop 1% opcode=RC_ACK", ""},
	{"tx drop qpn=0x12 psn=100 seen=1", ""},
	{"rx dup 2%", ""},
	{"tx reorder 2% by=3", "tx reorder 2%"},
	{"tx delay 1ms..5ms 10%", ""},
	{"tx corrupt 0.1%", ""},
	{"rx ce 5%", ""},
	{"tx rate 100Mbit buf=256k", "tx rate 100Mbit"},
	{"cut 100ms..200ms", ""},
	{"drop psn=0xfffff0..5 first=1", "drop psn=16777200..5 first=1"},
	{"tx drop opcode=RC_WRITE_* every=10 limit=3", ""},
	{"drop", ""},
	{"  rx   dup\tlimit=1   0.0000001% ", "rx dup 0.0000001% limit=1"},
	{"drop 100%", "drop"},
	{"drop 0%", ""},
	{"reorder by=7 within=1.5s", ""},
	{"rate 1000kbit buf=1024k", "rate 1Mbit buf=1M"},
	{"rate 1500bit buf=1000", ""},
	{"delay 3us", "delay 3µs"},
	{"cut 0s..1h rate=", "!"},
	{"drop qpn=18", "drop qpn=0x12"},
	{"# nothing", "-"},
	{"", "-"},
	{" ; \n ;", "-"},
	{"tx drop 1%; rx dup # twice\ncut 1s..2s;", "tx drop 1%; rx dup; cut 1s..2s"},
}

func TestParse(t *testing.T) {
	for _, c := range goodRules {
		rs, err := Parse(c[0])
		want := c[1]
		switch want {
		case "":
			want = c[0]
		case "-":
			want = ""
		case "!":
			if err == nil {
				t.Errorf("%q: no error", c[0])
			}
			continue
		}
		if err != nil || rs.String() != want {
			t.Errorf("%q: %q, %v; want %q", c[0], rs.String(), err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ rule, word, msg string }{
		{"dorp 2%", "dorp", "unknown effect"},
		{"tx rx drop", "rx", "unknown effect"},
		{"tx", "tx", "effect is missing"},
		{"tx drop 101%", "101%", "0 to 100"},
		{"tx drop 100.1%", "100.1%", "0 to 100"},
		{"tx drop 0.00000001%", "0.00000001%", "7 decimals"},
		{"tx drop 0x10%", "0x10%", "0 to 100"},
		{"tx drop -1%", "-1%", "0 to 100"},
		{"tx drop %", "%", "0 to 100"},
		{"tx drop 1.%", "1.%", "0 to 100"},
		{"tx drop 1% 2%", "2%", "second percentage"},
		{"tx drop tx", "tx", "not a percentage or option of drop"},
		{"drop qpm=1", "qpm=1", "unknown option"},
		{"drop qpn=0x1000000", "qpn=0x1000000", "24 bits"},
		{"drop psn=1..", "psn=1..", "24 bits"},
		{"drop psn=1 psn=1", "psn=1", "twice"},
		{"drop opcode=RC_FOO", "opcode=RC_FOO", "no such opcode"},
		{"drop opcode=FOO*", "opcode=FOO*", "no such opcode"},
		{"drop opcode=", "opcode=", "no such opcode"},
		{"drop seen=0", "seen=0", "from 1"},
		{"drop by=3", "by=3", "option of reorder"},
		{"reorder by=0", "by=0", "1 to 65536"},
		{"reorder within=0s", "within=0s", "duration"},
		{"delay 10%", "delay 10%", "needs a duration"},
		{"delay 5ms..1ms", "5ms..1ms", "ends before"},
		{"delay -1ms", "-1ms", "not a duration"},
		{"delay 1ms 2ms", "2ms", "second duration"},
		{"cut 100ms", "100ms", "beginning and an end"},
		{"cut 1s..2s 5%", "5%", "no percentage"},
		{"rate buf=1k", "rate buf=1k", "needs a bit rate"},
		{"rate 100Mbps", "100Mbps", "bit rate"},
		{"rate 0bit", "0bit", "bit rate"},
		{"rate 1001Gbit", "1001Gbit", "bit rate"},
		{"rate 1Mbit buf=65M", "buf=65M", "buf is"},
		{"tx drop 1%; rx dup 2%; ce x", "x", "not a percentage"},
	} {
		_, err := Parse(c.rule)
		pe, ok := errors.AsType[*ParseError](err)
		if !ok {
			t.Errorf("%q: %v", c.rule, err)
			continue
		}
		if pe.Word != c.word || !strings.Contains(pe.Msg, c.msg) || pe.Rule[pe.At:pe.At+len(pe.Word)] != pe.Word {
			t.Errorf("%q: %+v", c.rule, pe)
		}
		if !strings.HasSuffix(c.rule, pe.Rule) {
			t.Errorf("%q: the error quotes %q", c.rule, pe.Rule)
		}
	}
	_, err := Parse("drop psn=1 psn=1")
	want := "fault rule \"drop psn=1 psn=1\": option given twice: \"psn=1\"\n" +
		"\tdrop psn=1 psn=1\n" +
		"\t           ^^^^^"
	if err.Error() != want {
		t.Errorf("error reads\n%v\nwant\n%v", err, want)
	}
}

// What Parse takes, String gives back, and Parse takes that as the same.
func FuzzParseRules(f *testing.F) {
	for _, c := range goodRules {
		f.Add(c[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Parse(text)
		if err != nil {
			pe, ok := errors.AsType[*ParseError](err)
			if !ok || pe.Rule[pe.At:pe.At+len(pe.Word)] != pe.Word {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		again, err := Parse(rs.String())
		if err != nil || len(again) != len(rs) {
			t.Fatalf("%q became %q: %v", text, rs.String(), err)
		}
		for i := range rs {
			if again[i] != rs[i] {
				t.Fatalf("%q became %q: %+v and %+v", text, rs.String(), rs[i], again[i])
			}
		}
	})
}
