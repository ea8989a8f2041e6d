package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// result is one line of the table, and of the JSON file.
type result struct {
	Name    string  `json:"name"`
	Figure  float64 `json:"figure"` // median: Gbit/s, or microseconds
	Ratio   float64 `json:"ratio"`  // median of the rounds' ratios
	Against string  `json:"against"`
	Min     float64 `json:"min"` // of the ratios
	Max     float64 `json:"max"`
	Need    float64 `json:"need"` // 0: none
	AtMost  bool    `json:"at_most,omitempty"`
	OK      bool    `json:"ok"`
}

// summary is the JSON file.
type summary struct {
	Started string             `json:"started"`
	Rounds  int                `json:"rounds"`
	Seconds float64            `json:"seconds"` // of each program in a round
	Busy    float64            `json:"busy"`    // the largest part of the processors that others used before a round
	Medians map[string]float64 `json:"medians"`
	Results []result           `json:"results"`
	Unmet   int                `json:"unmet"`
}

// judge makes a line of the table from the rounds.
func (n *need) judge(rounds []samples) result {
	var figures, ratios []float64
	for _, r := range rounds {
		figure, base := r[n.of], 1.0
		for i, a := range n.against {
			if i == 0 || r[a] > base {
				base = r[a]
			}
		}
		if n.scale != nil {
			base *= n.scale(r)
		}
		figures, ratios = append(figures, figure), append(ratios, figure/base)
	}
	res := result{
		Name: n.name, Figure: median(figures), Ratio: median(ratios), Against: n.words,
		Min: slices.Min(ratios), Max: slices.Max(ratios), Need: n.ratio, AtMost: n.atMost,
	}
	res.OK = n.ratio == 0 || n.atMost && res.Ratio <= n.ratio || !n.atMost && res.Ratio >= n.ratio
	return res
}

func (s *summary) report(o *options, lines []need, rounds []samples) error {
	s.Medians = medians(rounds)
	for i := range lines {
		r := lines[i].judge(rounds)
		if s.Results = append(s.Results, r); !r.OK {
			s.Unmet++
		}
	}
	s.print()
	if o.json != "" {
		b, err := json.MarshalIndent(s, "", "  ")
		if err == nil {
			err = os.WriteFile(o.json, append(b, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if s.Unmet > 0 {
		return fmt.Errorf("%d of %d needs are not met", s.Unmet, len(s.Results))
	}
	return nil
}

func (s *summary) print() {
	fmt.Println("\nmedians of the rounds: Gbit/s of payload, or microseconds of half a round trip")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	names := make([]string, 0, len(s.Medians))
	for n := range s.Medians {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(w, "  %s\t%.4g\n", n, s.Medians[n])
	}
	w.Flush()
	fmt.Println()
	fmt.Fprintln(w, "what\tfigure\tratio\tspread\tagainst\tneed\t")
	for _, r := range s.Results {
		need := "-"
		if r.Need != 0 {
			need = fmt.Sprintf(">= %.3g", r.Need)
			if r.AtMost {
				need = fmt.Sprintf("<= %.3g", r.Need)
			}
			if !r.OK {
				need += "  NOT MET"
			}
		}
		fmt.Fprintf(w, "%s\t%.4g\t%.2f\t%.2f-%.2f\t%s\t%s\t\n", r.Name, r.Figure, r.Ratio, r.Min, r.Max, r.Against, need)
	}
	w.Flush()
}

// medians are of each figure that any round has.
func medians(rounds []samples) map[string]float64 {
	all := map[string][]float64{}
	for _, r := range rounds {
		for k, v := range r {
			all[k] = append(all[k], v)
		}
	}
	out := map[string]float64{}
	for k, v := range all {
		out[k] = median(v)
	}
	return out
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
