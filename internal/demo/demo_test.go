package demo

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/internal/decode"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func short(t *testing.T, tap string) (Config, *bytes.Buffer) {
	c := Default()
	c.AddrA, c.AddrB = testbed.Loopback(0).String(), testbed.Loopback(1).String()
	c.Time, c.Tap = 20*time.Millisecond, tap
	out := new(bytes.Buffer)
	c.Out = out
	return c, out
}

// TestDemo runs all of it and reads the capture with tshark: everything
// decodes, and the losses can be seen.
func TestDemo(t *testing.T) {
	tap := filepath.Join(t.TempDir(), "demo.pcapng")
	cfg, out := short(t, tap)
	require.NoError(t, Run(t.Context(), cfg))
	text := out.String()
	for _, op := range operations {
		rate := `\d+ k/s`
		switch {
		case op.window == 1:
			rate = `\d+\.?\d* [um]s, worst \d+\.?\d* [um]s`
		case op.size >= 4096:
			rate = `\d+\.\d\d Gbit/s`
		}
		require.Regexp(t, `(?m)^ +`+regexp.QuoteMeta(op.name)+` +\d+ +`+rate+` +`+rate+` +(data equal|counter = operations)$`, text)
	}
	require.Regexp(t, `super-packets of \d+\.\d`, text)
	require.Regexp(t, `\(tx drop 1%; rx drop 1%\): [1-9]\d* packets dropped`, text)
	require.Contains(t, text, "rxe decode "+tap)
	info, err := os.Stat(tap)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1e6))
	for what, n := range decoded(t, tap) {
		require.Positive(t, n, what)
	}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, tap) {
			require.LessOrEqual(t, len(line), 160, line)
		}
	}

	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark to read the capture")
	}
	cmd := exec.Command("tshark", "-r", tap, "-T", "fields", "-E", "separator=|", "-e", "_ws.col.Protocol", "-e", "infiniband.bth.opcode", "-e", "frame.comment")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	opcodes, drops := map[string]int{}, 0
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 3)
		require.Len(t, f, 3, line)
		require.Equal(t, "RRoCE", f[0], line)
		opcodes[f[1]]++
		if strings.Contains(f[2], "fault rule: drop") {
			drops++
		}
	}
	// SEND_ONLY, WRITE_FIRST, READ_REQ, READ_RESP_MIDDLE, ACK, ATOMIC_ACK, CmpSwap, FetchAdd.
	for _, op := range []string{"4", "6", "12", "14", "17", "18", "19", "20"} {
		require.Positive(t, opcodes[op], "opcode %s in %v", op, opcodes)
	}
	require.Positive(t, drops)
}

// decoded counts in a capture, as rxe decode shows it, packets that were
// dropped on purpose and packets whose ICRC was found right.
func decoded(t *testing.T, file string) map[string]int {
	r, err := pcap.Open(file)
	require.NoError(t, err)
	defer r.Close()
	var out bytes.Buffer
	bad, err := decode.Run(&out, r, decode.Options{})
	require.NoError(t, err)
	require.Zero(t, bad)
	n := map[string]int{}
	for _, what := range []string{"# fault rule: drop", "# ICRC ok"} {
		n[what] = strings.Count(out.String(), what)
	}
	return n
}

// TestNoCapture: where no file can be written, the demo runs and says so.
func TestNoCapture(t *testing.T) {
	cfg, out := short(t, filepath.Join(t.TempDir(), "none", "demo.pcapng"))
	require.NoError(t, Run(t.Context(), cfg))
	require.Contains(t, out.String(), "No capture was written: open ")
	require.Contains(t, out.String(), "no such file or directory")
}

// TestDiskFull: a capture that cannot be written to its end is called none.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	cfg, out := short(t, "/dev/full")
	require.NoError(t, Run(t.Context(), cfg))
	require.Contains(t, out.String(), "No capture was written")
	require.Contains(t, out.String(), "no space left on device")
	require.NotContains(t, out.String(), "A capture of")
}

// TestRefused: mistakes and an interrupt end it at once.
func TestRefused(t *testing.T) {
	cfg, out := short(t, "")
	cfg.Faults = "tx drop many"
	require.ErrorContains(t, Run(t.Context(), cfg), "fault rule")
	require.Empty(t, out.String())

	cfg, _ = short(t, "")
	cfg.AddrB = cfg.AddrA
	require.ErrorContains(t, Run(t.Context(), cfg), "is taken by process")

	cfg, _ = short(t, "")
	cfg.Time = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, Run(ctx, cfg), context.DeadlineExceeded)
}
