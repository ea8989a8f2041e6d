package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
)

// TestShrink: what is left fails, and without any of its entries it does not.
func TestShrink(t *testing.T) {
	for _, want := range [][]int{{}, {0}, {99}, {17, 18}, {3, 50, 51, 98}, {0, 10, 20, 30, 40, 50, 60, 70, 80, 90}} {
		list := make([]int, 100)
		for i := range list {
			list[i] = i
		}
		calls := 0
		got := Shrink(list, func(l []int) bool {
			calls++
			for _, x := range want {
				if !slices.Contains(l, x) {
					return false
				}
			}
			return true
		})
		require.Equal(t, want, append([]int{}, got...))
		require.Less(t, calls, 350)
		require.Equal(t, 99, list[99], "the list itself was changed")
	}
	// Either of two is enough, but one it must be.
	got := Shrink([]int{1, 2, 3, 4}, func(l []int) bool { return slices.Contains(l, 2) || slices.Contains(l, 3) })
	require.Len(t, got, 1)
	// Time is up.
	require.Equal(t, []int{1, 2}, Shrink([]int{1, 2}, func([]int) bool { return false }))
}

// planted is what is wrong in TestShrunk: a READ of which a response is lost,
// after a request that takes a receive was sent twice. It is a bug that takes
// two faults of one connection.
type planted struct {
	w          *world
	again, bad bool
}

func (p *planted) work() {
	if p.bad {
		p.w.t.Fatal("planted")
	}
}
func (p *planted) supply()        {}
func (p *planted) finished() bool { return true }
func (p *planted) verify()        {}
func (p *planted) empty()         {}
func (p *planted) String() string { return "planted" }

// TestShrunk: a violation comes down to the requests and the faults that it
// takes, and the text of that shows the same violation again.
func TestShrunk(t *testing.T) {
	cfg := Config{Faults: "drop 1%; tx dup 1%; rx delay 1us..300us 1%; tx corrupt 0.2%"}
	start := func(w *world) {
		connected(w, w.hosts[0], w.hosts[1], 40)
		p := &planted{w: w}
		w.ends = append(w.ends, p)
		sent := map[bth.PSN]bool{}
		answers := bth.PSN{}
		from, to := w.hosts[0], w.qps[w.hosts[1]][0]
		w.see(w.hosts[1].node, to, func(_ Packet, h *bth.Packet) {
			if h.Info().Op == bth.OpSend {
				p.again = p.again || sent[h.PSN]
				sent[h.PSN] = true
			}
		})
		w.see(from.node, w.qps[from][0], func(_ Packet, h *bth.Packet) {
			if h.Info().Op == bth.OpReadResp {
				p.bad = p.bad || p.again && h.Info().Has(bth.Middle) && h.PSN.Diff(answers) > 1
				answers = h.PSN
			}
		})
	}
	var c scenario
	var v *violation
	for seed := uint64(1); v == nil; seed++ {
		require.Less(t, seed, uint64(20), "no seed shows the violation")
		c = scenario{name: t.Name(), seed: seed, size: maxLen}
		_, v = play(cfg, c, start, &trial{}, nil)
	}
	require.Contains(t, v.at, "shrink_test.go")
	small, ok := shrunk(cfg, c, start, time.Minute)
	require.True(t, ok)
	t.Log(small.String())
	require.LessOrEqual(t, len(small.picks), 3)
	require.LessOrEqual(t, len(small.hits), 3)

	again, err := parseScenario(small.String())
	require.NoError(t, err)
	require.Equal(t, small.String(), again.String())
	_, x := play(cfg, again, start, &trial{}, nil)
	require.NotNil(t, x)
	require.Equal(t, v.at, x.at)
	for i := range again.picks {
		less := again
		less.picks = slices.Delete(slices.Clone(again.picks), i, i+1)
		_, x := play(cfg, less, start, &trial{}, nil)
		require.Nil(t, x, "without request %v", again.picks[i])
	}
}

// TestScenarioText: a scenario is written as it is read, and what is none is
// refused with what is wrong.
func TestScenarioText(t *testing.T) {
	k := key{1, 2, 3, true, trace.Rx, 4}
	c := scenario{name: "TestX/y", seed: 7, size: 900, exact: true, picks: []pick{{0, 1, 100}, {2, 0, 0}}, hits: []hit{
		{k, fault.Decision{Effects: 1 << fault.Drop, Lost: true}},
		{key{0, -1, -5, false, trace.Tx, 1}, fault.Decision{Effects: 1<<fault.Dup | 1<<fault.Corrupt | 1<<fault.Delay, Copies: 2, Bit: 77, Release: 300, Behind: 3}},
	}}
	const text = "TestX/y 7 900 0.1:100 2.0:0 faults rx1.2+3a#4=drop tx0.-1+-5#1=dup2,flip77,hold300/3"
	require.Equal(t, text, c.String())
	got, err := parseScenario(text)
	require.NoError(t, err)
	require.Equal(t, c, got)
	got, err = parseScenario("TestX/y 7 900")
	require.NoError(t, err)
	require.Equal(t, scenario{name: "TestX/y", seed: 7, size: 900}, got)
	for text, why := range map[string]string{
		"TestX 1": "want", "TestX x 1": "seed", "TestX 1 x": "size", "TestX 1 1 0,1": "request", "TestX 1 1 faults tx1.2=drop": "tx1.2", "TestX 1 1 faults tx1.2+3#1=melt": "melt",
	} {
		_, err := parseScenario(text)
		require.ErrorContains(t, err, why)
	}
}
