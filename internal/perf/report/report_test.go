package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnits: 2000 messages of 65536 octets in half a second are 131072000
// octets, so 262144000 a second: 250 MiB/s, 2.097152 Gb/s, 4000 messages a
// second.
func TestUnits(t *testing.T) {
	b := Bandwidth{Size: 65536, Iters: 2000, Peak: 524288000, Average: 262144000, Rate: 4000}
	row := func(test Test, remote *Bandwidth) []string {
		var out bytes.Buffer
		New(&out, test).BW(b, remote)
		return strings.Fields(out.String())
	}
	require.Equal(t, []string{"65536", "2000", "500.00", "250.00", "0.004000"}, row(Test{}, nil))
	require.Equal(t, []string{"65536", "2000", "4.19", "2.10", "0.004000"}, row(Test{Gbits: true}, nil))
	require.Equal(t, []string{"65536", "2000", "750.00", "375.00", "0.006000"}, row(Test{Both: true},
		&Bandwidth{Size: 65536, Iters: 2000, Peak: 262144000, Average: 131072000, Rate: 2000}), "both ends together")

	b = Bandwidth{Size: 2, Iters: 5, Peak: 25000, Average: 12500, Rate: 6250}
	require.Equal(t, []string{"2", "5", "0.000200", "0.000100", "0.006250"}, row(Test{Gbits: true}, nil), "below 0.1 Gb/s there are six digits")
}

// TestLatency: the round trips are 10, 20 .. 120 us, so the latencies 5, 10 ..
// 60. Without the two largest they are 5 to 50: median and mean 27.5, variance
// 25 x 99/12, deviation 14.36; the 99 % column is the one with index
// ceil(9.9).
func TestLatency(t *testing.T) {
	s := NewSamples(8, 13, true)
	for _, i := range []int{3, 1, 2, 12, 11, 10, 9, 8, 4, 5, 6, 7} {
		s.Add(time.Duration(i) * 10 * time.Microsecond)
	}
	var out bytes.Buffer
	p := New(&out, Test{Latency: true})
	p.Columns()
	p.Lat(s)
	lines := strings.Split(out.String(), "\n")
	words := strings.Fields(lines[2])
	require.Equal(t, []string{"8", "13", "5.00", "55.00", "27.50", "27.50", "14.36", "55.00", "55.00"}, words[:9])
	for i, want := range []float64{30, 55, 60, 60, 60} {
		require.InEpsilon(t, want, floats(t, words[9+i])[0], 0.001, "of all samples, to three digits")
	}

	var f struct {
		Results map[string]float64
		Gorxe   struct {
			Sizes []struct {
				Percentiles map[string]float64 `json:"percentiles_usec"`
			}
		}
	}
	out.Reset()
	require.NoError(t, p.WriteJSON(&out))
	require.NoError(t, json.Unmarshal(out.Bytes(), &f))
	require.Equal(t, 55.0, f.Results["t_max"])
	require.Equal(t, 60.0, f.Gorxe.Sizes[0].Percentiles["max"])
	require.InEpsilon(t, 30.0, f.Gorxe.Sizes[0].Percentiles["p50"], 0.001)
}

// TestLatencyDuration: 1000 round trips of 40 us are 25000 a second, and READs
// are whole round trips.
func TestLatencyDuration(t *testing.T) {
	for half, want := range map[bool]string{true: "20.00", false: "40.00"} {
		s := NewSamples(2, 0, half)
		for range 1000 {
			s.Add(40 * time.Microsecond)
		}
		var out bytes.Buffer
		New(&out, Test{Latency: true, Duration: time.Second}).Lat(s)
		require.Equal(t, []string{"2", "1000", want, "25000.00"}, strings.Fields(out.String())[:4])
	}
}

// TestFewSamples: two iterations give one sample, none gives no row.
func TestFewSamples(t *testing.T) {
	for n := range 5 {
		s := NewSamples(2, n+1, false)
		for range n {
			s.Add(time.Microsecond)
		}
		var out bytes.Buffer
		New(&out, Test{Latency: true}).Lat(s)
		if n == 0 {
			require.Empty(t, out.String())
			continue
		}
		require.Equal(t, []string{"1.00", "1.00", "1.00", "1.00", "0.00", "1.00", "1.00"}, strings.Fields(out.String())[2:9])
	}
	New(&bytes.Buffer{}, Test{}).Lat(nil)
}

func TestAddDoesNotAllocate(t *testing.T) {
	s := NewSamples(2, 2000, true)
	d := time.Microsecond
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.Add(d); d = d * 9 / 8 % time.Hour }))
}

// TestAllSizesInJSON: perftest keeps the last size.
func TestAllSizesInJSON(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, Test{Verb: "Send"})
	require.NoError(t, p.WriteJSON(&out))
	require.Empty(t, out.String(), "there is no result")
	p.BW(Bandwidth{Size: 2, Iters: 5}, nil)
	p.BW(Bandwidth{Size: 4, Iters: 5}, nil)
	p.Apart(Bandwidth{Size: 1}, Bandwidth{Size: 1})
	out.Reset()
	require.NoError(t, p.WriteJSON(&out))
	var f struct {
		Results struct{ MsgSize int }
		Gorxe   struct{ Sizes []struct{ MsgSize int } }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &f))
	require.Equal(t, 4, f.Results.MsgSize)
	require.Len(t, f.Gorxe.Sizes, 2)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestErrorOfTheWriter(t *testing.T) {
	p := New(broken{}, Test{})
	p.Header()
	p.End()
	require.EqualError(t, p.Err(), "no room")
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, true, 1000)
	start := time.Unix(0, 0)
	p.Update(start, 0, 0)
	p.Update(start.Add(1900*time.Millisecond), 400, 400<<20)
	p.Done()
	require.Empty(t, out.String(), "a short run shows nothing")
	p.Update(start.Add(2*time.Second), 500, 500<<20)
	p.Update(start.Add(2100*time.Millisecond), 510, 510<<20)
	require.Equal(t, "\r\x1b[K 500 of 1000 messages in 2.0 s, 250.00 MiB/s", out.String())
	p.Done()
	p.Done()
	require.Equal(t, "\r\x1b[K", out.String()[len(out.String())-4:])
	require.Equal(t, 2, strings.Count(out.String(), "\r"))

	out.Reset()
	p = NewProgress(&out, false, 0)
	p.Update(start, 0, 0)
	p.Update(start.Add(time.Hour), 1, 1)
	p.Done()
	require.Empty(t, out.String(), "nobody watches")
}

func TestCHex(t *testing.T) {
	for want, got := range map[string]string{
		"0000": chex(4, 0), "0x80": chex(4, 0x80), "0x01": chex(4, 1), "0x0012": chex(6, 0x12), "0x1b7a": chex(6, 0x1b7a), "0xeee722": chex(6, 0xeee722), "0x0079bd": chex(8, 0x79bd),
		"0x00564f01565000": chex(16, 0x564f01565000),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, "1e+06", g6(1e6))
	require.Equal(t, "31653.6", g6(31653.61))
	require.Equal(t, "1.5", g6(1.5))
	require.Equal(t, "33532", g6(33532.01))
}
