package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSim(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	small := at("small.toml")
	const text = "title = 'small'\nduration = '2ms'\n[topology]\nhosts = 3\n[switch]\nkmin = 1000\nkmax = 50000\npmax = 0.1\n" +
		"[[flow]]\nfrom = 'h1..h2'\nto = 'h3'\n"
	require.NoError(t, os.WriteFile(small, []byte(text), 0o600))

	out, err := rxe("sim", small, "--csv", at("x.csv"), "--html", at("x.html"), "--json", at("x.json"), "--seed", "7", "--set", "profile=paper")
	require.NoError(t, err)
	require.Contains(t, out, "small: small\n")
	require.Contains(t, out, "f1.2    h2  h3  rc write")
	for file, want := range map[string]string{"x.csv": "time_ms,rate_mbit f1.1,", "x.html": "<figure>", "x.json": `"name": "small"`} {
		b, err := os.ReadFile(at(file))
		require.NoError(t, err)
		require.Contains(t, string(b), want)
	}
	again, err := rxe("sim", small, "--seed", "7", "--set", "profile=paper")
	require.NoError(t, err)
	require.Equal(t, out, again)
	other, err := rxe("sim", small, "--seed", "7", "--set", "algorithm=none")
	require.NoError(t, err)
	require.NotEqual(t, out, other)

	out, err = rxe("sim", "--list")
	require.NoError(t, err)
	require.Contains(t, out, "incast-16 ")
	out, err = rxe("sim", "--show", "incast-16")
	require.NoError(t, err)
	require.Contains(t, out, "[topology]\nkind = \"star\"\nhosts = 17\n")

	for want, args := range map[string][]string{
		"needs a FILE.toml":                 {"sim"},
		"no scenario \"incast\"; there are": {"sim", "incast"},
		"no such file":                      {"sim", at("none.toml")},
		"accepts at most 1":                 {"sim", "a", "b"},
		"takes 1 to 1600000 Mb/s":           {"sim", small, "--set", "rp_ai_rate=0"},
		"a setting is NAME=VALUE":           {"sim", small, "--set", "rp_ai_rate"},
		"takes a number":                    {"sim", small, "--seed", "x"},
		"no such file or":                   {"sim", small, "--html", at("none/x.html")},
	} {
		_, err := rxe(args...)
		require.ErrorContains(t, err, want)
	}
}
