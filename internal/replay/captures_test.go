package replay

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/pcap"
)

func read(t testing.TB, name string) []*Conversation {
	t.Helper()
	r, err := pcap.Open(name)
	require.NoError(t, err)
	defer r.Close()
	convs, _, err := Read(r)
	require.NoError(t, err)
	return convs
}

// recorded is a capture of this package's testdata: two guests with the
// Soft-RoCE of Linux 6.12, recorded between them. The err_ ones lost packets on
// the way to the recorder, in both directions.
func recorded(t testing.TB, name string) []*Conversation {
	return read(t, filepath.Join("testdata", name+".pcap.gz"))
}

// What became of every packet of the captures, both sides. A number that falls
// is a comparison that does not happen any more.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int // conversation
		a, b string
	}{
		{"atomic_cs", 0, "8 answers compared, 0 differences; allowed: MigReq 8", "8 answers compared, 0 differences; allowed: MigReq 8"},
		{"err_badaddr", 0, "1 answer compared, 0 differences; allowed: MigReq 1", "1 answer compared, 0 differences; allowed: MigReq 1"},
		{
			"err_loss", 0,
			"99 answers compared, 0 differences; allowed: ACK PSN 2, ACK coalescing 33, READ restart FIRST or MIDDLE 2, MigReq 72; lost before the capture: 4" +
				"; the engine was told that its side sends a remote access NAK for a READ asked for again whose region is gone",
			"222 answers compared, 0 differences; allowed: MigReq 222; lost before the capture: 12",
		},
		{"err_mixwrap", 0, "52 answers compared, 0 differences; allowed: MigReq 52", "96 answers compared, 0 differences; allowed: MigReq 96"},
		{
			"err_rnrwait", 0,
			"8 answers compared, 0 differences; allowed: MigReq 8; the engine was told that its side sends a sequence NAK behind an RNR NAK",
			"16 answers compared, 0 differences; allowed: MigReq 16; the engine was told that its side resends all after an RNR wait",
		},
		{"err_short", 0, "1 answer compared, 0 differences; allowed: MigReq 1", "4 answers compared, 0 differences; allowed: MigReq 4"},
		// Rping's client changes the 51 octets that it offers between two READs.
		{
			"rping", 0, "18 answers compared, 0 differences; allowed: MigReq 18",
			"18 answers compared, 0 differences; allowed: MigReq 18; its program changed 102 octets",
		},
		{"ucmatose", 0, "6 answers compared, 0 differences; allowed: MigReq 6", "6 answers compared, 0 differences; allowed: MigReq 6"},
		{"ucmatose", 1, "6 answers compared, 0 differences; allowed: MigReq 6", "6 answers compared, 0 differences; allowed: MigReq 6"},
	} {
		conv := recorded(t, c.name)[c.n]
		for side, want := range []string{c.a, c.b} {
			res, err := Run(conv, Options{Side: Side(side)})
			require.NoError(t, err)
			require.Equal(t, want, res.Summary(), "%s, side %v", c.name, Side(side))
		}
	}
}

// Without the habits that the recorded side is seen to have, the engine follows
// the specification, and differs: in silence behind an RNR NAK, and in sending
// what was refused alone.
func TestPlain(t *testing.T) {
	conv := recorded(t, "err_rnrwait")[0]
	res, err := Run(conv, Options{Side: A, Plain: true})
	require.NoError(t, err)
	require.Equal(t, "8 answers compared, 4 differences; allowed: MigReq 4", res.Summary())
	for _, l := range res.Lines {
		if l.Verdict == Different {
			require.Contains(t, l.Theirs, "NAK sequence error")
			require.Empty(t, l.Ours)
		}
	}
	res, err = Run(conv, Options{Side: B, Plain: true})
	require.NoError(t, err)
	require.Equal(t, 12, res.Differences)
	for _, l := range res.Lines {
		if l.Verdict == Different && l.Ours != "" {
			require.Equal(t, []string{"AckReq: ours true, theirs false"}, l.Diffs)
		}
	}
}

// A duplicate READ whose region is gone: Soft-RoCE reports the error, and the
// specification does not want that.
func TestPlainDuplicateRead(t *testing.T) {
	res, err := Run(recorded(t, "err_loss")[0], Options{Side: A, Plain: true})
	require.NoError(t, err)
	require.Equal(t, 1, res.Differences)
	i := slices.IndexFunc(res.Lines, func(l Line) bool { return l.Verdict == Different })
	require.Equal(t, 321, res.Lines[i].Frame)
	require.Equal(t, "RC_ACK psn 373 NAK remote access error msn 45", res.Lines[i].Theirs)
}

// captureDir is the folder of recorded packets that lies beside the repository
// where it is developed. Most of them are not ours to copy.
func captureDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "captures")
	if _, err := os.Stat(filepath.Join(dir, "SOURCES.md")); err != nil {
		t.Skip("needs the recorded captures in ../shared/captures, which are not part of the repository")
	}
	return dir
}

// Every reliable connection of every capture in the folder, both sides.
func TestCaptures(t *testing.T) {
	dir := captureDir(t)
	var files []string
	for _, pattern := range []string{"*.pcap", "*.hex", "rxe/*.pcap"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		files = append(files, m...)
	}
	played, compared := 0, 0
	for _, name := range files {
		base := filepath.Base(name)
		r, err := pcap.Open(name)
		require.NoError(t, err)
		convs, _, err := Read(r)
		r.Close()
		if errors.Is(err, ErrNoRC) {
			t.Logf("%s: %v", base, err)
			continue
		}
		require.NoError(t, err)
		for i, c := range convs {
			for _, side := range []Side{A, B} {
				res, err := Run(c, Options{Side: side})
				require.NoError(t, err, base)
				t.Logf("%s %d, side %v: %s", base, i+1, side, res.Summary())
				played++
				compared += res.Compared
				want := 0
				if base == "syn-room-driver.hex" && side == B {
					// Two vectors of a test, which no wire has seen: a READ without
					// AckReq, as no NIC here sends it, and a WRITE with the same PSN.
					want = 1
				}
				if res.Differences != want {
					var b strings.Builder
					require.NoError(t, res.Write(&b, false))
					t.Errorf("%s %d, side %v:\n%s", base, i+1, side, b.String())
				}
			}
		}
	}
	t.Logf("%d replays, %d answers compared", played, compared)
	require.GreaterOrEqual(t, played, 80)
	require.GreaterOrEqual(t, compared, 1700)
}
