package main

import (
	"runtime/debug"
)

// version says what this was built of, as far as the program knows.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "rxed, version unknown"
	}
	return versionOf(b)
}

func versionOf(b *debug.BuildInfo) string {
	v := b.Main.Version
	if v == "" {
		v = "(devel)"
	}
	s := "rxed " + v
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
