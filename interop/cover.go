package main

import (
	"math/rand/v2"
	"strings"
)

// cover chooses rows of a table whose columns have so many values each, such
// that every pair of values of two columns that some possible row holds is in
// one of the rows: what a full product finds is nearly always the doing of one
// value or of two together. possible may be nil. The rows are the same each
// time; other seeds give others.
//
// Greedy: the row that holds most of the pairs still missing comes next. The
// tables here have some hundred rows, so that all are looked at.
func cover(values []int, possible func(row []int) bool, seed uint64) [][]int {
	var rows [][]int
	row := make([]int, len(values))
	var fill func(col int)
	fill = func(col int) {
		if col == len(values) {
			if possible == nil || possible(row) {
				rows = append(rows, append([]int(nil), row...))
			}
			return
		}
		for v := range values[col] {
			row[col] = v
			fill(col + 1)
		}
	}
	fill(0)
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })

	missing := map[pair]bool{}
	for _, r := range rows {
		for _, p := range pairs(r) {
			missing[p] = true
		}
	}
	var out [][]int
	for len(missing) > 0 {
		best, most := -1, 0
		for i, r := range rows {
			n := 0
			for _, p := range pairs(r) {
				if missing[p] {
					n++
				}
			}
			if n > most {
				best, most = i, n
			}
		}
		for _, p := range pairs(rows[best]) {
			delete(missing, p)
		}
		out = append(out, rows[best])
	}
	return out
}

// pair is two values in two columns of a row.
type pair struct{ col1, val1, col2, val2 int }

// pairs returns those of a row; of a single column, each value with itself.
func pairs(row []int) []pair {
	if len(row) == 1 {
		return []pair{{0, row[0], 0, row[0]}}
	}
	var out []pair
	for i := range row {
		for j := i + 1; j < len(row); j++ {
			out = append(out, pair{i, row[i], j, row[j]})
		}
	}
	return out
}

// overXDP begins the names that draw gives to the groups over xdp.
const overXDP = "xdp: "

// draw chooses about one in so many of the cases of each kind, one at least, by
// a seed; they keep their order. Over xdp, which is the same but for the link, it
// is one of each group.
func draw(cases []Case, one, seed uint64) []Case {
	kinds := map[string][]int{}
	var order []string
	for i := range cases {
		k := cases[i].Group + "/" + cases[i].Kind
		if cases[i].Link == linkXDP {
			k = overXDP + cases[i].Group
		}
		if kinds[k] == nil {
			order = append(order, k)
		}
		kinds[k] = append(kinds[k], i)
	}
	rng := rand.New(rand.NewPCG(seed, one))
	drawn := make([]bool, len(cases))
	for _, k := range order {
		all := kinds[k]
		n := (len(all) + int(one) - 1) / int(one)
		if strings.HasPrefix(k, overXDP) {
			n = 1
		}
		for _, i := range rng.Perm(len(all))[:n] {
			drawn[all[i]] = true
		}
	}
	var out []Case
	for i := range cases {
		if drawn[i] {
			out = append(out, cases[i])
		}
	}
	return out
}
