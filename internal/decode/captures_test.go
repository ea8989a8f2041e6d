package decode

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// captureDir is the folder of recorded packets that lies beside the
// repository where it is developed. Most of them are not ours to copy.
func captureDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, dir, up, "no go.mod above the test")
		dir = up
	}
	dir = filepath.Join(filepath.Dir(dir), "shared", "captures")
	if _, err := os.Stat(filepath.Join(dir, "SOURCES.md")); err != nil {
		t.Skip("needs the recorded captures in ../shared/captures, which are not part of the repository")
	}
	return dir
}

// captures are the files of the folder and of ours.
func captures(t testing.TB) []string {
	t.Helper()
	dir := captureDir(t)
	var files []string
	for _, pattern := range []string{"*.pcap", "*.hex", "rxe/*.pcap"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		files = append(files, m...)
	}
	require.Greater(t, len(files), 40)
	return files
}

func readFrames(t testing.TB, name string) []pcap.Frame {
	t.Helper()
	r, err := pcap.Open(name)
	require.NoError(t, err)
	defer r.Close()
	var frames []pcap.Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			return frames
		}
		require.NoError(t, err)
		frames = append(frames, f)
	}
}

// sourcesRow is a file's row of the tables in SOURCES.md; ok counts the
// packets whose ICRC an independent checker found right.
type sourcesRow struct{ packets, ok int }

var verdict = regexp.MustCompile(`^(\d+)/(\d+)`)

// readSources parses the tables: the first column is the file, the last the
// ICRC verdict. A row of several files gives the sum over them.
func readSources(t testing.TB, dir string) map[string]sourcesRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "SOURCES.md"))
	require.NoError(t, err)
	rows := map[string]sourcesRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		m := verdict.FindStringSubmatch(strings.TrimSpace(cells[len(cells)-1]))
		if m == nil || len(cells) < 6 {
			continue
		}
		ok, _ := strconv.Atoi(m[1])
		n, _ := strconv.Atoi(m[2])
		names := strings.Split(strings.TrimSpace(cells[0]), ", ")
		first := names[0]
		if len(names) == 1 {
			rows[first] = sourcesRow{n, ok}
			continue
		}
		// "stem-node0, -node1, -node2 .pcap"
		stem, ext := first[:strings.LastIndex(first, "-")], "."+strings.SplitN(names[len(names)-1], " .", 2)[1]
		for _, name := range names {
			name = strings.TrimSuffix(name, " "+ext)
			rows[stem+name[strings.LastIndex(name, "-"):]+ext] = sourcesRow{n / len(names), ok / len(names)}
		}
	}
	return rows
}

// Every file's count of good ICRCs is that of the independent checker.
func TestICRCVerdicts(t *testing.T) {
	dir := captureDir(t)
	rows := readSources(t, dir)
	for _, name := range captures(t) {
		base := filepath.Base(name)
		row, ok := rows[base]
		ours := filepath.Base(filepath.Dir(name)) == "rxe" // of the rig: all must be right
		require.True(t, ok || ours, "%s is not in SOURCES.md", base)
		got := sourcesRow{}
		for _, f := range readFrames(t, name) {
			p := Decode(f)
			require.NotEqual(t, Other, p.Protocol, "%s frame %d: %s", base, f.Number, p.Why)
			require.Contains(t, []string{"ok", "bad"}, p.ICRC)
			require.Equal(t, p.ICRC == "bad", p.Reason == trace.DropICRC.String(), "%s frame %d: %s", base, f.Number, p.Reason)
			got.packets++
			if p.ICRC == "ok" {
				got.ok++
			}
		}
		if ours {
			require.Equal(t, got.packets, got.ok, base)
			require.NotZero(t, got.packets)
			continue
		}
		require.Equal(t, row, got, base)
		delete(rows, base)
	}
	require.Empty(t, rows, "in SOURCES.md but not in the folder")
}

// agreeWithWire holds a decoded frame to what the data path says of it.
func agreeWithWire(t testing.TB, f pcap.Frame, p *Packet) {
	t.Helper()
	var d wire.Datagram
	var r trace.Reason
	switch f.Link {
	case pcap.Ethernet:
		r = wire.ParseFrame(f.Data, &d)
	case pcap.Raw, pcap.IPv4, pcap.IPv6:
		r = wire.ParseIP(f.Data, &d)
	default:
		return
	}
	if p.Protocol == RoCEv1 {
		require.Equal(t, trace.DropNotIP, r)
		return
	}
	if r == trace.DropIPChecksum && p.Reason == trace.DropNotRoCE.String() {
		return // decoding goes on there, and finds that the frame is no concern of ours
	}
	if r != trace.None {
		require.Equal(t, r.String(), p.Reason, "frame %d", f.Number)
		return
	}
	require.Equal(t, RoCEv2, p.Protocol)
	r = wire.NewVerifier().Check(0, &d, 0)
	require.Equal(t, r == trace.DropICRC, p.ICRC == "bad", "frame %d", f.Number)
	require.Equal(t, r == trace.None, p.ICRC == "ok", "frame %d", f.Number)
}

func TestAgreesWithWire(t *testing.T) {
	for _, name := range captures(t) {
		for _, f := range readFrames(t, name) {
			agreeWithWire(t, f, Decode(f))
			for _, i := range []int{14, 20, 25, 30, 36, 42, 50, len(f.Data) - 1} { // and of damaged frames
				if i < len(f.Data) {
					f.Data[i] ^= 0x11
					agreeWithWire(t, f, Decode(f))
					f.Data[i] ^= 0x11
				}
			}
		}
	}
}
