package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const replayed = "../../internal/replay/testdata/"

func TestReplay(t *testing.T) {
	out, err := rxe("replay", replayed+"err_short.pcap.gz", "--side", "A")
	require.NoError(t, err)
	require.Contains(t, out, "A as recorded, B by this engine")
	require.Contains(t, out, "1 answer compared, 0 differences; allowed: MigReq 1")

	// Each connection gets its own heading and summary.
	out, err = rxe("replay", replayed+"ucmatose.pcap.gz", "--side", "b")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "B as recorded"))
	require.Equal(t, 2, strings.Count(out, "0 differences"))

	out, err = rxe("replay", replayed+"ucmatose.pcap.gz", "--side", "b", "--conversation", "2", "--json")
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 12+1)
	require.Contains(t, out, `"compared":6,"differences":0`)
}

// A difference is in the exit status, and marked.
func TestReplayDifference(t *testing.T) {
	out, err := rxe("replay", replayed+"err_rnrwait.pcap.gz", "--side", "A", "--plain")
	require.ErrorContains(t, err, "4 differences")
	require.Equal(t, 4, strings.Count(out, " ! -   (ours sent nothing like it)"))
}

func TestReplayErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replay"}, "one FILE"},
		{[]string{"replay", replayed + "ucmatose.pcap.gz"}, "name the side to play, A or B, of\n    1  A 192.0.2.3 qp 0x00001d, B 192.0.2.2 qp 0x00001d, 12 packets\n    2  A"},
		{[]string{"replay", replayed + "ucmatose.pcap.gz", "--side", "C"}, `--side "C"`},
		{[]string{"replay", replayed + "ucmatose.pcap.gz", "--side", "A", "--conversation", "3"}, "there are\n    1  A"},
		{[]string{"replay", replayed + "ucmatose.pcap.gz", "--side", "A", "--between", "192.0.2.9"}, "no connection has that address"},
		{[]string{"replay", "replay_test.go", "--side", "A"}, "not a pcap"},
		{[]string{"replay", "no-such-file", "--side", "A"}, "no such file"},
	} {
		_, err := rxe(c.args...)
		require.ErrorContains(t, err, c.want, strings.Join(c.args, " "))
	}
}
