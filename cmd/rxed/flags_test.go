package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandLine: what ends at once, its exit code, and what it says.
func TestCommandLine(t *testing.T) {
	p := newPlace(t)
	bad := p.file("[log]\nlevel = 1\n[[device]]\nshards = 99\naddr = \"127.0.0.1\"\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "rxed: what shall be served? -d eth0 serves a device on an interface"},
		{[]string{"--version"}, 0, "rxed "},
		{[]string{"--help"}, 0, "The exit status is 0 when it was told to stop"},
		{[]string{"--nonsense"}, exitUsage, "rxed: unknown flag: --nonsense"},
		{[]string{"eth0"}, exitUsage, "rxed: "},
		{[]string{"-c", "/no/such"}, exitUsage, "rxed: configuration: open /no/such: no such file or directory"},
		{[]string{"--check", "-c", bad}, exitUsage, bad + ":2:9: level = 1: it takes"},
		{[]string{"--check", "-c", bad}, exitUsage, bad + ":4:10: shards = 99: it takes a number from 1 to 16"},
		{[]string{"-c", bad}, exitUsage, bad + ":4:10: shards"},
		{[]string{"--check", "-c", "../../dist/rxed.toml"}, 0, "rxed.toml: good, 1 devices"},
		{[]string{"--check", "--addr", "127.0.0.1"}, 0, "command line: good, 1 devices"},
		{[]string{"--addr", "eth0"}, exitUsage, "rxed: --addr eth0: it takes an IP address of this host"},
		{[]string{"--print-config", "--addr", "127.0.0.1", "--shards", "3"}, 0, "= 3           # lanes, for as many cores"},
		{[]string{"-d", "nosuch0"}, exitFailed, "rxed: device rxe0 (nosuch0): gorxe: "},
		{[]string{"--addr", "127.0.0.1", "--socket", p.path("no/v.sock")}, exitFailed, "there is no folder " + p.path("no")},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			q := newPlace(t)
			d := q.launch(nil, c.args...)
			require.Equal(t, c.code, d.exit(), "%s", d.text())
			require.Contains(t, d.text(), c.want)
		})
	}
}

// TestOptional: a device that is not required may be away, but not all of them.
func TestOptional(t *testing.T) {
	p := newPlace(t)
	away := "[[device]]\nname = \"away\"\ninterface = \"nosuch0\"\nrequired = false\n"
	d := p.start(nil, "-c", p.file(away+"[[device]]\naddr = \""+addr(12)+"\"\n"))
	d.wait(`level=WARN msg="a device is not there; rxed goes on without it, since it is not required" device=away err=.*nosuch0`)
	attach(t, p, "rxe0")
	d.stop()
	d = p.launch(nil, "-c", p.file(away))
	require.Equal(t, exitFailed, d.exit())
	require.Contains(t, d.text(), "rxed: no device is there to serve")
	d = p.launch(nil, "-c", p.file(strings.Replace(away, "false", "true", 1)+"[[device]]\naddr = \""+addr(12)+"\"\n"))
	require.Equal(t, exitFailed, d.exit())
	require.Contains(t, d.text(), "rxed: device away (nosuch0): ")
}
