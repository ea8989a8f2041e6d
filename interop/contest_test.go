package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds makes the rows of five rounds in which an entrant's figures are those
// given, in every discipline and column.
func rounds(v ...float64) (rows [][]float64) {
	for _, x := range v {
		for i := range disciplines {
			rows = append(rows, slices.Repeat([]float64{x + float64(100*i)}, 9))
		}
	}
	return rows
}

func TestStandings(t *testing.T) {
	all := standings(map[string][][]float64{
		softRoCE: rounds(10, 20, 10, 50, 10),
		"udp":    rounds(10, 30, 40, 25, 5),
		"packet": rounds(1, 1, 1, 1, 1),
	})
	if len(all) != 10 {
		t.Fatalf("%d rows, not 5 figures over 2 links", len(all))
	}
	// Ratios are of rounds, not of medians: those would be 25/10.
	first := all[0]
	if first.Link != "udp" || first.Ratio != [3]float64{0.5, 1, 4} {
		t.Errorf("over %s, ratio %v; want udp, 0.5, 1, 4", first.Link, first.Ratio)
	}
	if want := []float64{110, 120, 110, 150, 110}; !slices.Equal(all[3].SoftRoCE, want) {
		t.Errorf("the second discipline has %v, not %v", all[3].SoftRoCE, want)
	}
	var b bytes.Buffer
	(&ContestReport{Guests: "two guests", MTU: contestMTU, Standings: all}).print(&b)
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, first.What+", udp") {
			if f := strings.Join(strings.Fields(line)[5:], " "); f != "MiB/s 25 10 1.00 0.50-4.00" {
				t.Errorf("printed %q", f)
			}
			return
		}
	}
	t.Errorf("no line of %s over udp:\n%s", first.What, &b)
}

// TestContestCommands: what both programs are told differs in the device alone.
func TestContestCommands(t *testing.T) {
	k := &contest{server: 2, client: 22, port: 18516}
	for i := range disciplines {
		d := &disciplines[i]
		_, theirs, _ := strings.Cut(k.command(softRoCE, d, 22), " -F ")
		_, ours, _ := strings.Cut(k.command("udp", d, 22), " -F ")
		if ours != theirs || !strings.HasSuffix(ours, " ") {
			t.Errorf("%s: ours %q, theirs %q", d.tool, ours, theirs)
		}
	}
	if s := k.command(softRoCE, &disciplines[0], 22); !strings.Contains(s, "c000:0216 ") {
		t.Errorf("the GID of 192.0.2.22 is not in %q", s)
	}
}

func TestContestClock(t *testing.T) {
	bw, lat := &discipline{tool: "write_bw", size: 1 << 20, iters: 100}, &discipline{tool: "send_lat", size: 2, iters: 1000}
	for _, c := range []struct {
		d      *discipline
		row    []float64
		passed time.Duration
		ok     bool
	}{
		{bw, []float64{1 << 20, 100, 60, 50, 0}, 2001 * time.Millisecond, true}, // 100 MiB at 50 MiB/s
		{bw, []float64{1 << 20, 100, 60, 50, 0}, 1999 * time.Millisecond, false},
		{lat, []float64{2, 1000, 1, 9000, 700, 1500}, 3001 * time.Millisecond, true}, // there and back, 1.5 ms each
		{lat, []float64{2, 1000, 1, 9000, 700, 1500}, 2999 * time.Millisecond, false},
	} {
		if err := c.d.inTime(c.row, c.passed); (err == nil) != c.ok {
			t.Errorf("%s in %v: %v", c.d.tool, c.passed, err)
		}
	}
}
