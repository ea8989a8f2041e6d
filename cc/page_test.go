package cc

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// table is what docs/dcqcn.md shows of the parameters.
func table(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| parameter | takes | " + strings.Join(Profiles, " | ") + " | what it is |\n|---" + strings.Repeat("|---", len(Profiles)+2) + "|\n")
	for i := range Fields() {
		f := &Fields()[i]
		fmt.Fprintf(&b, "| `%s` | %s ", f.Name, f.Range())
		for _, name := range Profiles {
			fmt.Fprintf(&b, "| %s ", f.Get(profile(t, name)))
		}
		fmt.Fprintf(&b, "| %s |\n", f.Help)
	}
	return b.String()
}

// The page and the code agree on every parameter, its range, and its value in each
// profile.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/dcqcn.md")
	require.NoError(t, err)
	if want := table(t); !strings.Contains(string(page), want) {
		t.Errorf("docs/dcqcn.md: the table of parameters is not\n%s", want)
	}
}
