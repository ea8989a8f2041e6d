// Package version says what a program was built of.
package version

import "runtime/debug"

// Of returns the name of a program, its version and revision, and Go's, as far as
// the program knows.
func Of(program string) string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return program + ", version unknown"
	}
	return program + " " + text(b)
}

func text(b *debug.BuildInfo) string {
	s := b.Main.Version
	if s == "" {
		s = "(devel)"
	}
	set := map[string]string{}
	for _, x := range b.Settings {
		set[x.Key] = x.Value
	}
	if r := set["vcs.revision"]; r != "" {
		s += ", revision " + r[:min(12, len(r))]
		if set["vcs.modified"] == "true" {
			s += " with changes"
		}
	}
	return s + ", " + b.GoVersion
}
