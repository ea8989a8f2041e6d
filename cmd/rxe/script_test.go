package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScript(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		f := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(f, []byte(text), 0o600))
		return f
	}
	good := write("good.pkt", "qp rc\n0ms < WRITE_ONLY psn=100 len=4 ack\n> ACK psn=100\n")
	out, err := rxe("script", good)
	require.NoError(t, err)
	require.Equal(t, "ok   "+good+"\n", out)

	out, err = rxe("script", "--packets", "--shift", "0xffff9b", good)
	require.NoError(t, err)
	require.Contains(t, out, "0s < WRITE_ONLY psn=100 va=m+0 rkey=m dma=4 len=4 ack")
	require.Contains(t, out, "0s > ACK psn=100 msn=1")

	bad := write("bad.pkt", "qp rc\n0ms < WRITE_ONLY psn=100 len=4 ack\n> ACK psn=101\n")
	out, err = rxe("script", dir)
	require.EqualError(t, err, "1 of 2 scripts failed")
	require.Contains(t, out, "ok   "+good)
	require.Contains(t, out, "FAIL "+bad+":3: > ACK psn=101")
	require.Contains(t, out, "psn is 100, not 101")

	for want, args := range map[string][]string{
		"needs a FILE":    {"script"},
		"no such file":    {"script", filepath.Join(dir, "none.pkt")},
		"no *.pkt":        {"script", t.TempDir()},
		"takes a number":  {"script", "--shift", "x", good},
		"scripts failed":  {"script", write("syntax.pkt", "qp xc\n")},
		"unknown command": {"scrip", good},
	} {
		_, err := rxe(args...)
		require.ErrorContains(t, err, want, strings.Join(args, " "))
	}
}

// The scripts that come with gorxe, as a user runs them.
func TestScriptsOfOurs(t *testing.T) {
	for _, args := range [][]string{{"script"}, {"script", "--nic"}} {
		out, err := rxe(append(args, "../../script/testdata")...)
		require.NoError(t, err, out)
	}
}
