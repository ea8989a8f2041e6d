package fluid

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page has the fixed points that the model gives.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/dcqcn.md")
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("| flows | C/N, Gb/s | R_T, Gb/s | p\\* | its closed form | q\\*, KB | alpha\\* |\n|---|---|---|---|---|---|---|\n")
	for _, n := range []int{2, 3, 4, 6, 8, 10, 12, 14, 16} {
		m := paper(t, n, 0)
		s, err := m.FixedPoint()
		queue := fmt.Sprintf("%.0f", m.QueueOctets(s)/1e3)
		if err != nil {
			queue = "at Kmax"
		}
		fmt.Fprintf(&b, "| %d | %.2f | %.2f | %.2f %% | %.2f %% | %s | %.2f |\n", n, m.RateBits(s)/1e9, s.Target*m.Packet*8/1e9, 100*s.Mark, 100*m.Approximate(), queue, s.Alpha)
	}
	if want := b.String(); !strings.Contains(string(page), want) {
		t.Errorf("docs/dcqcn.md: the table of fixed points is not\n%s", want)
	}
	least := 2
	for ; ; least++ {
		if _, err := paper(t, least, 0).FixedPoint(); err != nil {
			break
		}
	}
	require.Contains(t, string(page), fmt.Sprintf("from %d senders on RED cannot mark enough", least))
}
