package lab

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/sim/scenarios"
)

var update = flag.Bool("update", false, "write the golden files")

// parse parses a text that must be a scenario.
func parse(t testing.TB, text string, settings ...string) *Scenario {
	t.Helper()
	s, err := Parse("test.toml", "test", []byte(text), settings...)
	require.NoError(t, err)
	return s
}

func runs(t testing.TB, s *Scenario) *Report {
	t.Helper()
	r, err := s.Run()
	require.NoError(t, err)
	for _, f := range r.Flows {
		require.Empty(t, f.Failed, f.Name)
	}
	return r
}

// pair is two hosts at a switch, and what flows come after.
const pair = `
duration = "5ms"
[topology]
hosts = 3
rate = "10Gbit"
[cc]
algorithm = "window"
`

// A flow by itself has the line's rate but for headers, whatever it asks for, and
// its messages take as long as that takes.
func TestAlone(t *testing.T) {
	// BTH and ICRC, UDP and IP, around 1024 octets.
	share4, share6 := 1024.0/(1024+12+4+8+20), 1024.0/(1024+12+4+8+40)
	for _, c := range []struct {
		name, keys, top string
		want            float64 // Mb/s
	}{
		{"write", ``, ``, 1e4 * share4},
		{"send", `op = "send"`, ``, 1e4 * share4},
		{"read", `op = "read"`, ``, 1e4 * share4},
		{"uc", `service = "uc"`, ``, 1e4 * share4},
		{"uc send", `service = "uc"
			op = "send"`, ``, 1e4 * share4},
		{"ipv6", ``, `ipv6 = true`, 1e4 * share6},
		{"rate limit", `rate_limit = "2Gbit"`, ``, 2e3 * share4},
		{"mtu", ``, `mtu = 4096`, 1e4 * 4096 / (4096 + 44)},
		{"copies", `copies = 4`, ``, 2.5e3 * share4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, c.top+pair+"[[flow]]\nfrom = 'h1'\nto = 'h2'\nsize = '256KiB'\n"+c.keys)
			r := runs(t, s)
			for _, f := range r.Flows {
				// Copies take turns of a burst, of which there are not many.
				require.InEpsilon(t, c.want, f.LastHalf, 0.03+0.05*float64(len(r.Flows)-1))
				require.Positive(t, f.Messages)
				require.InEpsilon(t, 256*1024*8/c.want, f.Mean, 0.1*float64(len(r.Flows)), "us a message")
				require.GreaterOrEqual(t, f.P99, f.Mean*0.9)
				require.Zero(t, f.Retries+f.Marks+f.CNPs)
			}
			if len(r.Flows) == 1 {
				require.Zero(t, r.Jain)
			} else {
				require.Greater(t, r.Jain, 0.98)
			}
			if !strings.Contains(c.keys, "rate") {
				require.InDelta(t, 1, r.Utilisation, 0.02)
			}
		})
	}
}

// A count of messages is kept, and a stop.
func TestCount(t *testing.T) {
	s := parse(t, pair+`
[[flow]]
from = "h1"
to = "h2"
size = 1000
count = 7
start = "1ms"
[[flow]]
from = "h2"
to = "h3"
size = "100KB"
stop = "2ms"
[[flow]]
from = "h3"
to = "h1"
size = 0
count = 3
`)
	r := runs(t, s)
	require.Equal(t, 7, r.Flows[0].Messages)
	require.EqualValues(t, 7000, r.Flows[0].Octets)
	require.InDelta(t, 2000/100, r.Flows[1].Messages, 8) // 83 us each
	require.EqualValues(t, r.Flows[1].Messages*100_000, r.Flows[1].Octets)
	require.InDelta(t, 9600, r.Flows[1].Goodput, 500)
	require.Equal(t, 3, r.Flows[2].Messages)
	require.Zero(t, r.Flows[2].Octets)
}

// What is measured of a network that loses packets: the payload is counted once.
func TestLosses(t *testing.T) {
	s := parse(t, "faults = 'tx drop 0.2%'\n"+pair+"[[flow]]\nfrom = 'h1'\nto = 'h2'\nsize = '64KiB'\ncount = 40\n")
	r := runs(t, s)
	require.EqualValues(t, r.Flows[0].Messages*64<<10, r.Flows[0].Octets/(64<<10)*(64<<10))
	require.Positive(t, r.Flows[0].Retries)
}

// The table of a small scenario, whose figures follow: 10 Gb/s of which 1024 of
// 1068 octets are payload, halved while there are two flows.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/small.toml")
	require.NoError(t, err)
	s, err := Parse("small.toml", "small", text)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, runs(t, s).WriteTable(&b))
	if *update {
		require.NoError(t, os.WriteFile("testdata/small.txt", b.Bytes(), 0o644))
	}
	want, err := os.ReadFile("testdata/small.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

// Two flows that DCQCN governs share fairly in the end, and use the line; the same
// scenario gives the same report, and another seed another one.
func TestTwoFlows(t *testing.T) {
	text, err := scenarios.Read("two-flows")
	require.NoError(t, err)
	report := func(seed uint64, part time.Duration) (*Report, string) {
		s, err := Parse("two-flows.toml", "two-flows", text)
		require.NoError(t, err)
		s.Seed = seed
		s.Duration = 120 * time.Millisecond / part // the second flow comes at 50
		for i := range s.Flows {
			s.Flows[i].Start /= part
			s.Flows[i].Stop = s.Duration
		}
		r := runs(t, s)
		var b bytes.Buffer
		require.NoError(t, r.WriteJSON(&b))
		return r, b.String()
	}
	r, _ := report(1, 1)
	require.GreaterOrEqual(t, r.Jain, 0.95)
	require.GreaterOrEqual(t, r.Utilisation, 0.9)
	require.Zero(t, r.Drops+r.Pauses)
	require.Positive(t, r.CNPs)
	require.Greater(t, r.Marks, r.CNPs)
	require.Len(t, r.Settled, 2)
	_, first := report(1, 10)
	_, again := report(1, 10)
	require.True(t, first == again, "the same seed gives another report")
	_, other := report(99, 10)
	require.False(t, first == other, "another seed gives the same report")
}

// Every scenario that comes along runs, and has a page, series and figures that
// agree; for a tenth of its time, which is long enough for something to happen.
func TestScenarios(t *testing.T) {
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := scenarios.Read(name)
			require.NoError(t, err)
			s, err := Parse(name+".toml", name, text)
			require.NoError(t, err)
			require.NotEmpty(t, s.Title)
			require.NotEmpty(t, s.About)
			full := s.Duration
			s.Duration /= 10
			s.Sample = s.Duration / 50
			for i := range s.Flows {
				s.Flows[i].Start /= 10
				s.Flows[i].Stop = min(s.Flows[i].Stop/10, s.Duration)
			}
			s.Settle = s.Duration / 10
			r := runs(t, s)
			require.Positive(t, r.Utilisation, full)
			require.Positive(t, r.Flows[0].Octets)
			wellFormed(t, r)
			agrees(t, r)
		})
	}
}

// wellFormed checks that the page is XML, and that it has nothing from elsewhere.
func wellFormed(t *testing.T, r *Report) {
	var b bytes.Buffer
	require.NoError(t, r.WriteHTML(&b))
	for _, bad := range []string{"http:", "https:", "<script", "src=", "href=", "url(", "@import", "NaN", "Inf", "//"} {
		require.NotContains(t, b.String(), bad)
	}
	d := xml.NewDecoder(&b)
	plots, depth := 0, 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := tok.(type) {
		case xml.StartElement:
			depth++
			if e.Name.Local == "figure" {
				plots++
			}
		case xml.EndElement:
			depth--
		}
	}
	require.Zero(t, depth)
	require.Equal(t, 7, plots)
}

// agrees checks that the series add up to the figures.
func agrees(t *testing.T, r *Report) {
	var b bytes.Buffer
	require.NoError(t, r.WriteCSV(&b))
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, len(r.Series.Time)+1)
	require.Len(t, rows[0], 1+4*len(r.Series.Flows)+4*len(r.Series.Ports))
	step := r.Series.Time[0] / 1e3
	for i, f := range r.Series.Flows {
		sum, marks := 0.0, 0.0
		for k := range f.Rate {
			sum += f.Rate[k] * step * 1e6 / 8
			marks += f.Marks[k]
		}
		require.InDelta(t, float64(r.Flows[i].Octets), sum, 0.03*sum+1)
		require.LessOrEqual(t, marks, float64(r.Flows[i].Marks))
	}
	for i, p := range r.Series.Ports {
		require.Equal(t, r.Queues[i].Port, p.Name)
		require.LessOrEqual(t, slices.Max(p.Queue), float64(r.Queues[i].Max))
		require.LessOrEqual(t, slices.Max(p.Paused), 1.0000001)
	}
	b.Reset()
	require.NoError(t, r.WriteJSON(&b))
	var back Report
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, r.Flows[0].Octets, back.Flows[0].Octets)
}

// Parameters reach the NICs: the scenario's, a flow's, and those of the command
// line, which go before.
func TestParameters(t *testing.T) {
	const text = pair + `
[[flow]]
from = "h1"
to = "h3"
[[flow]]
from = "h3"
to = "h2"
op = "read"
cc = { rp_ai_rate = 77 }
`
	s := parse(t, text, "algorithm=dcqcn", "rp_min_rate=10")
	require.Equal(t, "dcqcn", s.CC.Algorithm)
	require.Equal(t, 77, s.ccOf("h2").RPAIRate, "a READ's data is that of the host that is asked")
	require.NotEqual(t, 77, s.ccOf("h1").RPAIRate)
	require.Equal(t, 10, s.ccOf("h2").RPMinRate)
	_, err := Parse("x", "x", []byte(text), "rp_min_rate")
	require.ErrorContains(t, err, "NAME=VALUE")
	_, err = Parse("x", "x", []byte(text), "rp_min_rate=0")
	require.ErrorContains(t, err, "1 to 1600000 Mb/s")
}

// Mistakes are refused where they stand, with what is allowed. All of a file are
// told of at once.
func TestRefused(t *testing.T) {
	const flow = "\n[[flow]]\nfrom = 'h1'\nto = 'h2'\n"
	for text, want := range map[string]string{
		"duration = '5'" + flow:                                     `t.toml:1: duration = "5": it takes a time from 10µs to 1m0s, such as`,
		"duration = 5" + flow:                                       `t.toml:1: duration = 5: it takes a time`,
		"durations = '5ms'" + flow:                                  `t.toml:1: unknown key durations in scenario; there are title, about, seed, duration`,
		"seed = -1" + flow:                                          `t.toml:1: seed = -1: it takes a number from 0`,
		"mtu = 1500" + flow:                                         `t.toml:1: mtu = 1500: it takes 256, 512, 1024, 2048 or 4096 octets`,
		"faults = 'tx lose'" + flow:                                 `t.toml:1: faults = "tx lose": it takes rules such as`,
		"ipv6 = 1" + flow:                                           `t.toml:1: ipv6 = 1: it takes true or false`,
		"title = [1]" + flow:                                        `t.toml:1: title = [...]: it takes a string`,
		"x = = 1":                                                   `t.toml:1: `,
		"":                                                          `t.toml:1: there is no [[flow]]`,
		"\n[topology]\nkind = 'ring'" + flow:                        `t.toml:3: kind = "ring": it takes star, dumbbell, parking-lot, leaf-spine`,
		"[topology]\nhosts = 0" + flow:                              `t.toml:2: hosts = 0: it takes 1 to 256 at each switch`,
		"[topology]\nrate = 40" + flow:                              `t.toml:2: rate = 40: it takes bits a second of IP packets, 1000 to 1600000000000, such as "40Gbit"`,
		"[topology]\nrate = '40Gb'" + flow:                          `t.toml:2: rate = "40Gb": it takes bits a second`,
		"[topology]\nrate = '40Pbit'" + flow:                        `t.toml:2: rate = "40Pbit": it takes bits a second`,
		"[topology]\ndelay = '2s'" + flow:                           `t.toml:2: delay = "2s": it takes a time from 0s to 1s`,
		"[topolgy]\nhosts = 5" + flow:                               `t.toml:1: there is no section [topolgy]; there are [topology], [switch], [cc], and any number of [[flow]] and [[host]]`,
		"[[topology]]" + flow:                                       `t.toml:1: section topology is there once: [topology]`,
		"[flow]\nfrom = 'h1'":                                       `t.toml:1: a flow is one of a list: [[flow]]`,
		"[switch]\nbuffer = '12 Mb'" + flow:                         `t.toml:2: buffer = "12 Mb": it takes octets, 1000 to 1073741824`,
		"[switch]\npmax = 2" + flow:                                 `t.toml:2: pmax = 2: it takes a probability from 0 to 1`,
		"[switch]\npmax = nan" + flow:                               `t.toml:2: pmax = nan: it takes a probability from 0 to 1`,
		"[switch]\nkmin = 9\nkmax = 8" + flow:                       `t.toml:2: kmin of 9 is above kmax of 8: kmax takes kmin octets or more`,
		"[switch]\nmark = 'later'" + flow:                           `t.toml:2: mark = "later": it takes dequeue or enqueue`,
		"[switch]\nxoff = '5KB'" + flow:                             `t.toml:2: xoff, xon, alpha and headroom take pfc = true`,
		"[switch]\nxoff=5\nxon=5\npfc=true" + flow:                  `t.toml:1: switch s1: xon of 5 with xoff of 5: xon takes fewer octets than xoff`,
		"[switch]\nbuffer='9KB'\npfc=true" + flow:                   `all of a buffer of 9000 octets`,
		"[cc]\nrp_ai = 5" + flow:                                    `t.toml:2: no parameter "rp_ai": there are profile, algorithm`,
		"[cc]\nrp_ai_rate = 0" + flow:                               `t.toml:2: rp_ai_rate of "0": it takes 1 to 1600000 Mb/s`,
		"[cc]\nrp_ai_rate = 5\nprofile = 'paper'" + flow:            `t.toml:3: profile goes before all other parameters`,
		"[cc]\nrp_max_rate = 5\nrp_min_rate = 6" + flow:             `t.toml:3: rp_min_rate of 6 Mb/s is above rp_max_rate of 5 Mb/s`,
		"[cc]\nrp_enable = [1]" + flow:                              `t.toml:2: rp_enable: it takes a number or a name`,
		"[[host]]\nname = 'h7'" + flow:                              `t.toml:1: name = "h7": there is no such host; there are h1 to h2`,
		flow + "size = '1TB'":                                       `t.toml:5: size = "1TB": it takes octets, 0 to 67108864`,
		flow + "op = 'atomic'":                                      `t.toml:5: op = "atomic": it takes write, send, read`,
		flow + "rate_limit = 0":                                     `t.toml:5: rate_limit = 0: it takes bits a second`,
		flow + "cc = 1":                                             `t.toml:5: cc = 1: it takes a table of parameters`,
		flow + "cc = { rp_gd = 99 }":                                `t.toml:5: flow: rp_gd of "99": it takes 0 to 15 log2`,
		flow + "op = 'read'\nservice = 'uc'":                        `t.toml:2: flow f1: UC has no READ`,
		flow + "start = '2s'":                                       `t.toml:2: flow f1 starts at 2s and stops at 100ms`,
		flow + "depth = 0":                                          `t.toml:5: depth = 0: it takes 1 to 256 messages that are posted at once`,
		"[[flow]]\nfrom = 'h1'":                                     `t.toml:1: a flow needs from and to`,
		"[[flow]]\nfrom = 'h1'\nto = 'h1'":                          `t.toml:1: flow f1 is from host h1 to itself`,
		"[[flow]]\nfrom = 'h1'\nto = 'h9'":                          `t.toml:1: to = "h9": there is no such host; there are h1 to h2`,
		"[[flow]]\nfrom = 'h2..h1'\nto = 'h1'":                      `t.toml:2: from = "h2..h1": it takes a host, "h1..h8", or a list of such`,
		"[[flow]]\nfrom = ['h1', 2]\nto = 'h1'":                     `t.toml:2: from = [...]: it takes a host`,
		"[topology]\nhosts=9\n[[flow]]\nfrom='h1..h3'\nto='h4..h5'": `t.toml:3: a flow from 3 hosts to 2; it takes as many, or one on a side`,
		"[topology]\nhosts=3\n[[flow]]\nname='a'\nfrom='h1'\nto='h2'\n[[flow]]\nname='a'\nfrom='h1'\nto='h2'": `t.toml:7: there are two flows "a"`,
		"[topology]\nhosts=3\n[[flow]]\nfrom='h1'\nto='h2'\n[[flow]]\nfrom='h1'\nto='h3'\ncc={rp_ai_rate=9}":  `t.toml:6: flows f1 and f2 send from host h1 with different parameters`,
		"duration = '1s'\nsample = '1us'" + flow:    `sample = 1µs of a duration of 1s makes 1000000 points; 5000 are the most`,
		"[[flow]]\nfrom='h1'\nto='h2'\ncopies=9999": `t.toml:4: copies = 9999: it takes 1 to 1024 of each`,
	} {
		_, err := Parse("t.toml", "t", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := Parse("t.toml", "t", []byte("seed = 'x'\nmtu = 1\n[cc]\nrp_gd = 77"))
	require.Len(t, strings.Split(err.Error(), "\n"), 3)
	_, err = Parse("t.toml", "t", make([]byte, maxFile+1))
	require.ErrorContains(t, err, "longer than 131072 octets")
}

// TestBounded: what is wrong with a file is told in some lines, and none of the most
// that a file can hold takes long or much memory, as it would without bounds.
func TestBounded(t *testing.T) {
	fits := func(line string) string { return strings.Repeat(line, maxFile/len(line)-2) }
	var unknown strings.Builder
	for i := 0; unknown.Len() < maxFile-12; i++ {
		fmt.Fprintf(&unknown, "x%d=1\n", i)
	}
	for name, text := range map[string]string{
		"unknown keys": unknown.String(),
		"flows":        fits("[[flow]]\nfrom='h1'\nto='h9'\n"),
		"hosts":        "[[flow]]\nto='h2'\nfrom=[" + strings.Repeat("'h1..h1024',", 10_000) + "]",
	} {
		begun := time.Now()
		_, err := Parse("t.toml", "t", []byte(text))
		require.Error(t, err, name)
		require.LessOrEqual(t, len(strings.Split(err.Error(), "\n")), maxErrors+1, name)
		t.Logf("%s: %v", name, time.Since(begun))
	}
	_, err := Parse("t.toml", "t", []byte("[[flow]]\nto='h2'\nfrom=['h1..h1000','h1..h1000']"))
	require.ErrorContains(t, err, "t.toml:3: from = [...]: it takes 1024 hosts at most")
}

// A host may have a line of its own, and lists of hosts pair off.
func TestHosts(t *testing.T) {
	s := parse(t, `
duration = "2ms"
[topology]
kind = "dumbbell"
hosts = 2
rate = "10Gbit"
delay = "5us"
trunk_rate = "40Gbit"
[[host]]
name = "h1.2"
rate = "1Gbit"
[cc]
algorithm = "window"
[[flow]]
from = ["h1.1", "h1.2"]
to = "h2.1..h2.2"
size = "64KiB"
`)
	require.Equal(t, 5*time.Microsecond, s.Trunk.Delay)
	r := runs(t, s)
	require.Equal(t, []string{"h1.1", "h2.1", "h1.2", "h2.2"}, []string{r.Flows[0].From, r.Flows[0].To, r.Flows[1].From, r.Flows[1].To})
	require.InEpsilon(t, 9588, r.Flows[0].LastHalf, 0.03)
	require.InEpsilon(t, 958.8, r.Flows[1].LastHalf, 0.03)
	require.InEpsilon(t, 0.5, r.Flows[0].LastHalf/20000, 0.1)
}

// FuzzParse: no text makes it panic, and one that it takes it can take again.
func FuzzParse(f *testing.F) {
	for _, name := range scenarios.Names() {
		text, _ := scenarios.Read(name)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Count(string(text), "hosts") > 1 || bytes.Contains(text, []byte("25")) {
			return // large networks take time
		}
		_, err := Parse("f", "f", text)
		if err != nil && !strings.HasPrefix(err.Error(), "f") {
			t.Fatalf("an error that does not say where: %v", err)
		}
	})
}

func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for v := range 100_000 {
		require.GreaterOrEqual(t, high(slot(v)), v)
		if v > 0 {
			require.Contains(t, []int{0, 1}, slot(v)-slot(v-1))
		}
	}
	var h histogram
	var all []int
	for range 50_000 {
		v := int(math.Exp(rng.Float64() * 16))
		h.add(v, 3)
		all = append(all, v)
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		want := all[int(q*float64(len(all)-1))]
		require.InEpsilon(t, want, h.quantile(q), 0.04)
	}
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]float64{3, 3, 3}), 1e-9)
	require.InDelta(t, 0.25, jain([]float64{0, 7, 0, 0}), 1e-9)
	require.InDelta(t, 0.9, jain([]float64{1, 2}), 1e-9)
	require.Zero(t, jain([]float64{0, 0}))
}

func TestTicks(t *testing.T) {
	for _, top := range []float64{1, 1.9, 2, 3.7, 4.99, 5, 9.99, 10, 123, 0.04, 38352} {
		v := ticks(top)
		require.InDelta(t, 6.5, len(v), 4.5, top)
		require.LessOrEqual(t, v[len(v)-1], top*1.0001)
		require.Greater(t, v[len(v)-1], top*0.7)
	}
}
