package main

import (
	"go/format"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every fault can be planted in the code as it is.
func TestFaultsApply(t *testing.T) {
	assert.GreaterOrEqual(t, len(faults), 10)
	names := map[string]bool{}
	for _, f := range faults {
		files, err := f.apply("../..")
		require.NoError(t, err)
		require.NotEmpty(t, files, f.name)
		for file, text := range files {
			_, err := format.Source(text)
			assert.NoError(t, err, "%s: %s", f.name, file)
		}
		assert.False(t, names[f.name], f.name)
		assert.NotEmpty(t, f.from, f.name)
		names[f.name] = true
	}
}

// Lines that are not there, or twice, are an error that names the fault.
func TestStaleFault(t *testing.T) {
	for _, old := range []string{"no such line", "return"} {
		f := fault{"stale", "", []edit{{"bth/psn.go", old, ""}}}
		_, err := f.apply("../..")
		assert.ErrorContains(t, err, "stale: bth/psn.go has these lines")
	}
}

// Two edits of a file are both in it.
func TestTwoEdits(t *testing.T) {
	f := fault{"two", "", []edit{{"bth/psn.go", "package bth", "package a"}, {"bth/psn.go", "import \"strconv\"", "import \"fmt\""}}}
	files, err := f.apply("../..")
	require.NoError(t, err)
	assert.Contains(t, string(files["bth/psn.go"]), "package a")
	assert.Contains(t, string(files["bth/psn.go"]), "import \"fmt\"")
}

// What a run says: a failed check, a crash, nothing because its time was up.
func TestViolation(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: FuzzPair (1s)\n    --- FAIL: FuzzPair (0.0s)\n        duel_test.go:5: a hangs\nFAIL": "a hangs",
		"panic: runtime error: index [recovered]\n\tpanic: x\n x_test.go:1: b":                          "runtime error: index [recovered]",
		"panic: test timed out after 3s\n    x_test.go:1: b":                                            "",
		"--- FAIL: FuzzPair (1s)\n    --- FAIL: FuzzPair (0.0s)\n        testing.go:5: panic: no":       "panic: no",
		"--- FAIL: FuzzPair (1s)\n    fuzzing process hung":                                             "it fails and does not say why",
		"exit status 1": "",
	} {
		assert.Equal(t, want, violation([]byte(out)))
	}
}
