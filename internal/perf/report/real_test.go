package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// real is what a perftest 6.24 printed in a guest with Soft-RoCE. Its first
// line is the command.
type real struct {
	name string // "send_bw.client"
	cmd  []string
	out  string
}

func reals(tb testing.TB) []real {
	files, err := filepath.Glob("testdata/6.24/*.txt")
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	var all []real
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(tb, err)
		cmd, out, _ := strings.Cut(string(b), "\n")
		all = append(all, real{strings.TrimSuffix(filepath.Base(f), ".txt"), strings.Fields(cmd)[1:], out})
	}
	return all
}

// field is the value of a line of the header.
func (r *real) field(name string) string {
	m := regexp.MustCompile(`(?m)` + regexp.QuoteMeta(name) + `\s*: ([^\t\n\[]*)`).FindStringSubmatch(r.out)
	if m == nil {
		return ""
	}
	return m[1]
}

func (r *real) number(name string) int {
	n, _ := strconv.Atoi(r.field(name))
	return n
}

func (r *real) has(flag string) bool {
	for _, a := range r.cmd {
		if a == flag {
			return true
		}
	}
	return false
}

// test is what was run, from the command and the numbers that it does not tell.
func (r *real) test() Test {
	t := Test{
		Latency: strings.HasSuffix(r.cmd[0], "_lat"), Both: r.has("-b"), Events: r.has("-e"), Multicast: r.has("-g"),
		Infinite: r.has("--run_infinitely"), Server: strings.HasSuffix(r.name, ".server"), Histogram: r.has("-H"), Unsorted: r.has("-U"),
		Device: "rxe0", QPs: r.number("Number of qps"), Transport: "RC", SRQ: r.has("--use-srq"), Post: r.number("Post List"),
		TxDepth: r.number("TX depth"), RxDepth: r.number("RX depth"), CQMod: r.number("CQ Moderation"), MTU: r.number("Mtu"),
		GIDIndex: 1, OutReads: r.number("Outstand reads"), Gbits: r.has("--report_gbits"),
	}
	verbs := map[string]string{"ib_send": "Send", "ib_write": "RDMA_Write", "ib_read": "RDMA_Read", "ib_atomic": "Atomic"}
	t.Verb = verbs[r.cmd[0][:strings.LastIndex(r.cmd[0], "_")]]
	if r.has("--write_with_imm") {
		t.Verb = "RDMA_Write_imm"
	}
	if t.Verb == "Atomic" {
		t.Atomic = "FETCH_AND_ADD"
		if r.has("CMP_AND_SWAP") {
			t.Atomic = "CMP_AND_SWAP"
		}
	}
	if r.has("-D") {
		t.Duration = 3 * time.Second
	}
	for i, a := range r.cmd {
		if a == "-c" {
			t.Transport = r.cmd[i+1]
		}
	}
	return t
}

// address reads the two lines of an address.
func address(tb testing.TB, first, second string) (a Address, local bool) {
	word := strings.Fields(strings.ReplaceAll(first, "address: ", ""))
	v := map[string]uint64{}
	for i := 1; i+1 < len(word); i += 2 {
		n, err := strconv.ParseUint(strings.TrimPrefix(word[i+1], "0x"), 16, 64)
		require.NoError(tb, err, first)
		v[word[i]] = n
	}
	a = Address{
		LID: uint16(v["LID"]), QPN: uint32(v["QPN"]), PSN: uint32(v["PSN"]), OutReads: int(v["OUT"]), RKey: uint32(v["RKey"]), VAddr: v["VAddr"],
		Multicast: strings.HasPrefix(second, " MGID"),
	}
	_, gid, _ := strings.Cut(second, ": ")
	for i, x := range strings.Split(gid, ":") {
		n, err := strconv.Atoi(x)
		require.NoError(tb, err, second)
		a.GID[i] = byte(n)
	}
	return a, word[0] == "local"
}

func floats(tb testing.TB, s string) (x []float64) {
	for _, w := range strings.Fields(s) {
		f, err := strconv.ParseFloat(w, 64)
		require.NoError(tb, err, s)
		x = append(x, f)
	}
	return x
}

// same is a real line as we have it. Where perftest speaks of what is no
// business of a software device, ours says OFF; the latency table goes on to
// the right.
func same(want, got string) bool {
	want = strings.ReplaceAll(want, "PCIe relax order: ON", "PCIe relax order: OFF")
	if strings.HasPrefix(want, " #bytes") && strings.HasSuffix(got, headPercentiles) {
		got = strings.TrimSuffix(got, headPercentiles)
	}
	return want == got
}

// TestReal prints what perftest has printed, from its numbers, and compares
// every octet.
func TestReal(t *testing.T) {
	row := regexp.MustCompile(`^ \d+ +\d+ +\d+\.\d\d`)
	for _, r := range reals(t) {
		t.Run(r.name, func(t *testing.T) {
			var out bytes.Buffer
			test := r.test()
			p := New(&out, test)
			lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
			rule := strings.TrimSuffix(line, "\n")
			for i := range lines[:4] {
				if lines[i] == rule && (lines[i+1] == rule || lines[i+1] == "") {
					lines = slices.Delete(lines, i, i+1) // a rule too many, with -D of some tools
					break
				}
			}
			end := len(lines)
			var dump []string
			for i := 0; i < end; i++ {
				switch l := lines[i]; {
				case strings.HasPrefix(l, " WARNING"), strings.HasPrefix(l, " Client closed"):
					p.Say(strings.TrimPrefix(l, " "))
				case strings.HasPrefix(l, " User stopped"):
					p.Stopped()
				case strings.HasPrefix(l, "* Waiting"):
					p.Waiting()
				case strings.HasSuffix(l, " Test"):
					p.Header()
				case strings.HasPrefix(l, " local"), strings.HasPrefix(l, " remote"):
					if a, local := address(t, l, lines[i+1]); local {
						p.Local(a)
					} else {
						p.Remote(a)
					}
				case strings.HasPrefix(l, " Local results"): // both, from here on
					u := test.unit()
					bw := func(l string) Bandwidth {
						x := floats(t, l)
						return Bandwidth{uint64(x[0]), uint64(x[1]), x[2] * u, x[3] * u, x[4] * 1e6}
					}
					p.Apart(bw(lines[i+3]), bw(lines[i+9]))
					i += 9
				case strings.HasPrefix(l, " #bytes"):
					if dump == nil {
						p.Columns()
					}
				case l == "#, usec":
					dump = []string{}
					for lines[i+1+len(dump)] != strings.TrimSuffix(line, "\n") {
						dump = append(dump, lines[i+1+len(dump)])
					}
				case row.MatchString(l) && !test.Latency:
					x, u := floats(t, l), test.unit()
					p.BW(Bandwidth{uint64(x[0]), uint64(x[1]), x[2] * u, x[3] * u, x[4] * 1e6}, nil)
				case row.MatchString(l):
					x := floats(t, l)
					s := latency{iters: uint64(x[1])}
					if test.Duration > 0 {
						s.avg, s.tps = x[2], x[3]
					} else {
						s.min, s.max, s.typical, s.avg, s.stdev, s.p99, s.p999 = x[2], x[3], x[4], x[5], x[6], x[7], x[8]
					}
					for _, d := range dump {
						_, v, _ := strings.Cut(d, ", ")
						f, err := strconv.ParseFloat(v, 64)
						require.NoError(t, err)
						s.sorted, s.unsorted = append(s.sorted, f), append(s.unsorted, f)
					}
					p.lat(uint64(x[0]), &s)
				}
			}
			p.End()
			require.NoError(t, p.Err())

			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			for i, want := range lines {
				require.Less(t, i, len(got), "%q is missing", want)
				g := got[i]
				if test.Latency && row.MatchString(want) {
					require.Greater(t, len(g), len(want))
					require.Len(t, strings.Fields(g), len(strings.Fields(want))+5)
					g = g[:len(want)]
				}
				require.True(t, same(want, g), "line %d:\n%q instead of\n%q", i+1, g, want)
			}
			require.Len(t, got, len(lines))
		})
	}
}

// TestRealSamples computes the table's row from the samples that perftest has
// listed (-U), and finds the row that perftest has printed. The samples have
// six digits. The deviation alone differs: perftest's is of whole microseconds.
func TestRealSamples(t *testing.T) {
	n := 0
	for _, r := range reals(t) {
		test := r.test()
		if !test.Unsorted {
			continue
		}
		n++
		_, dump, _ := strings.Cut(r.out, "#, usec\n")
		dump, rest, _ := strings.Cut(dump, "---")
		s := NewSamples(2, 20, true)
		for _, l := range strings.Split(strings.TrimSpace(dump), "\n") {
			_, v, _ := strings.Cut(l, ", ")
			us, err := strconv.ParseFloat(v, 64)
			require.NoError(t, err)
			s.Add(time.Duration(us * 2e3))
		}
		l := s.summary()
		rows := strings.Split(strings.TrimSpace(rest), "\n")
		want := floats(t, rows[len(rows)-2])
		for i, got := range []float64{2, float64(l.iters), l.min, l.max, l.typical, l.avg, l.stdev, l.p99, l.p999} {
			tolerance := 1e-5 * want[i]
			if i == 6 {
				tolerance = 1
			}
			require.InDelta(t, want[i], got, tolerance, "column %d of %s", i, r.name)
		}
	}
	require.Equal(t, 2, n)
}

// TestRealJSON writes the report file from the numbers of perftest's: the same
// keys in the same order, the same values, and one key more.
func TestRealJSON(t *testing.T) {
	n := 0
	for _, r := range reals(t) {
		b, err := os.ReadFile("testdata/6.24/" + r.name + ".json")
		if os.IsNotExist(err) {
			continue
		}
		n++
		t.Run(r.name, func(t *testing.T) {
			var f struct {
				Results map[string]float64 `json:"results"`
			}
			require.NoError(t, json.Unmarshal(b, &f))
			x := f.Results
			test := r.test()
			u := test.unit()
			p := New(&bytes.Buffer{}, test)
			switch size, iters := uint64(x["MsgSize"]), uint64(x["n_iterations"]); {
			case test.Latency && test.Duration > 0:
				p.lat(size, &latency{iters: iters, avg: x["t_avg"], tps: x["tps_average"]})
			case test.Latency:
				p.lat(size, &latency{iters: iters, min: x["t_min"], max: x["t_max"], typical: x["t_typical"], avg: x["t_avg"], stdev: x["t_stdev"], p99: x["percentile_99"], p999: x["percentile_99.9"], sorted: []float64{1}})
			default:
				p.BW(Bandwidth{size, iters, x["BW_peak"] * u, x["BW_average"] * u, x["MsgRate"] * 1e6}, nil)
			}
			var out bytes.Buffer
			require.NoError(t, p.WriteJSON(&out))
			require.True(t, json.Valid(out.Bytes()))
			want := strings.ReplaceAll(strings.TrimSuffix(string(b), "\n}\n"), `"PCIe_relax_order": "ON"`, `"PCIe_relax_order": "OFF"`)
			head, own, ok := strings.Cut(out.String(), ",\n\"gorxe\": ")
			require.True(t, ok)
			require.Equal(t, want, head)
			require.Contains(t, own, fmt.Sprintf(`"MsgSize": %d`, int(x["MsgSize"])))
		})
	}
	require.NotZero(t, n)
}
