package script

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with a line is said, with its number.
func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "x:0: there is no qp line"},
		{"# nothing\n", "x:1: there is no qp line"},
		{"0ms quiet\n", "x:1: a qp line comes first"},
		{"qp\n", "the service, rc, uc or ud, is missing"},
		{"qp xrc\n", "xrc is none of rc, uc, ud"},
		{"qp rc\nqp rc\n", "x:2: there is one qp line"},
		{"qp rc mtu=1500\n", "mtu=1500 is none of"},
		{"qp rc mtu=x\n", "mtu=x: not a number"},
		{"qp rc mut=256\n", "unknown word mut=; there are mtu="},
		{"qp rc mtu=256 mtu=512\n", "mtu= is there twice"},
		{"qp rc mtu\n", "mtu needs a value"},
		{"qp rc srq=1\n", "srq takes no value"},
		{"qp rc state=err\n", "a script begins in reset, init, rtr or rts"},
		{"qp rc sq=100000\n", "at most 4096"},
		{"qp rc access=x\n", "letters of l"},
		{"qp rc device engine\n", "exclude each other"},
		{"rule\nqp rc\n", "a rule's name is missing"},
		{"qp rc\nregion m-1\n", "a region's name is letters"},
		{"qp rc\nregion a\nregion a\n", "x:3: there is a region a already"},
		{"qp rc\nregion a size=0x1000000\nregion b size=0x1000000\nregion c\n", "x:4: regions of more than"},
		{"qp rc\nregion a size=2 fill=00*3\n", "3 octets for a region of 2"},
		{"qp rc\nquiet\nregion a\n", "region belongs before the first step"},
		{"qp rc\n0ms\n", "a time and nothing"},
		{"qp rc\n0xs quiet\n", "is not a time"},
		{"qp rc\n-1ms quiet\n", "unknown verb -1ms"},
		{"qp rc\n1000h quiet\n", "a script lasts at most"},
		{"qp rc\n1ms..2ms quiet\n", "quiet has a time, not a range"},
		{"qp rc\n2ms..1ms > ACK\n", "ends before it begins"},
		{"qp rc\n+1ms..2ms > ACK\n", "both ends of a range are relative"},
		{"qp rc\nfrob\n", "unknown verb frob; there are < > count"},
		{"qp rc\nquiet please\n", "please is too much"},
		{"qp rc\n<\n", "an opcode is missing"},
		{"qp rc\n< SEND_ONYL\n", "there is no opcode SEND_ONYL"},
		{"qp rc\n< 0x100\n", "0x100 is not an opcode"},
		{"qp rc\n< SEND_ONLY psn=0x1000000\n", "the field has 24 bits"},
		{"qp rc\n< SEND_ONLY psn=m\n", "psn=m: not a number"},
		{"qp rc\n< SEND_ONLY va=q+1\n", "there is no region q"},
		{"qp rc\n< SEND_ONLY va=m+x\n", "is not an offset"},
		{"qp rc\n< SEND_ONLY len=2 data=00\n", "data are 1 octets, len says 2"},
		{"qp rc\n< SEND_ONLY data=0\n", "is not pairs of hex digits"},
		{"qp rc\n< SEND_ONLY data=00*x\n", "is not how often to repeat"},
		{"qp rc\n< SEND_ONLY data=00*10000000\n", "more than 1048576 octets"},
		{"qp rc\n< ACK credits=5\n", "there is no code for this count; the next below is 4"},
		{"qp rc\n< RNR_NAK timer=32\n", "timer=32: not a number of 5 bits"},
		{"qp rc\n> ACK reserved\n", "unknown word reserved"},
		{"qp rc\npost\n", "the operation is missing"},
		{"qp rc\npost sned\n", "there is no operation sned"},
		{"qp rc\npost send data=00\n", "data are for inline"},
		{"qp rc\npost send sge=m\n", "is not place:length"},
		{"qp rc\npost send sge=m:x\n", "is not a length"},
		{"qp rc\npost send sge=5:4\n", "needs a key"},
		{"qp rc\npost send sge=m:4:q\n", "there is no region q"},
		{"qp rc\nrecv va=1\n", "unknown word va="},
		{"qp rc\ncq both\n", "cq send or cq recv"},
		{"qp rc\ncq send FROB\n", "unknown word FROB"},
		{"qp rc\ncq send op=x\n", "op=x: there are bind cmp_swap"},
		{"qp rc\ncq send reason=x\n", "no reason of package trace"},
		{"qp rc\nmem 5 00\n", "a place in a region"},
		{"qp rc\nmem m\n", "octets such as"},
		{"qp rc\nword m x\n", "is not a number of 64 bits"},
		{"qp rc\nstate up\n", "up is no state"},
		{"qp rc\nmodify state=up\n", "up is no state"},
		{"qp rc\nevent FROB\n", "there is no event FROB"},
		{"qp rc\ncount\n", "count what?"},
		{"qp rc\ncount frob=1\n", "a counter of package trace"},
		{"qp rc\nlink shut\n", "is not a number of packets"},
		{"qp rc\nwithdraw q\n", "there is no region q"},
		{"qp rc\nlimit 3\n", "the shared receive queue of a device"},
		{"qp rc srq device\nlimit x\n", "is not a number of receive requests"},
		{"qp rc cqe=4\n", "only a device has completion queues"},
		{"qp rc device group=239.0.0.1\n", "is for a UD queue pair"},
		{"qp ud device group=10.0.0.1\n", "is for a UD queue pair"},
		{"qp ud device group=x\n", "not an IPv4 address"},
		{"qp rc\n< ACK from=::1\n", "not an IPv4 address"},
		{"qp rc\n> ACK from=10.0.0.1\n", "unknown word from="},
		{"qp rc\n< ACK ecn=4\n", "ecn=4: at most 3"},
		{"qp rc device\n> ACK ecn=4\n", "ecn=4: at most 3"},
		{"qp rc device\n> ACK dscp=64\n", "dscp=64: at most 63"},
		{"qp rc\n> ACK ecn=3\n", "only a device has IP headers"},
		{"qp rc\ncc none\n", "only a device has congestion control"},
		{"qp rc\nsetcc none\n", "only a device has congestion control"},
		{"qp rc device\ncc rp_speed=1\n", "no parameter \"rp_speed\""},
		{"qp rc device\nsetcc rp_min_rate=0\n", "rp_min_rate of \"0\": it takes 1 to 1600000 Mb/s"},
		{"qp rc device\nsetcc cubic\n", "algorithm of \"cubic\""},
		{"qp rc device\nsetcc\n", "setcc np_enable=0"},
	} {
		_, err := Parse("x", c.text)
		var syntax *ErrSyntax
		if !errors.As(err, &syntax) {
			t.Errorf("%q: no syntax error: %v", c.text, err)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v\nwant %s", c.text, err, c.want)
		}
	}
}

// FuzzScript: whatever is parsed, parses again and runs to an end without a
// panic, however it ends.
func FuzzScript(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.pkt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("fuzz", text)
		if err != nil {
			var syntax *ErrSyntax
			if !errors.As(err, &syntax) || s != nil {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if err := s.Run(Options{Shift: 0xfffff0}); err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
	})
}
