package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is told where little is known, and where more is.
func TestOf(t *testing.T) {
	require.Regexp(t, `^rxe \S+.* go\d\S*$`, Of("rxe"))
	b := &debug.BuildInfo{GoVersion: "go1.26", Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	require.Equal(t, "(devel), revision 0123456789ab with changes, go1.26", text(b))
	b.Main.Version, b.Settings = "v1.2.3", nil
	require.Equal(t, "v1.2.3, go1.26", text(b))
}
