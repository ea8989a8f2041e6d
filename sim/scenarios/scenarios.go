// Package scenarios holds the scenarios of rxe sim that come with it: networks,
// flows and parameters to watch congestion control by. docs/sim.md describes them
// and their language.
package scenarios

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names returns the names of all, sorted.
func Names() (names []string) {
	list, _ := fs.Glob(files, "*.toml") // the pattern is a good one
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f, ".toml"))
	}
	return names
}

// Read returns the text of one, or an error that wraps fs.ErrNotExist.
func Read(name string) ([]byte, error) { return files.ReadFile(name + ".toml") }
