package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
)

// TestRelayMistakes: what is wrong is said at once, with field, range and unit.
func TestRelayMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"eth1":                                             "the names of two",
		"lo nosuch0":                                       "loopback",
		"nosuch0 nosuch1":                                  "lo",
		"a b --rate fast":                                  "such as 500M",
		"a b --rate 500":                                   "1k to 1000G bits a second",
		"a b --rate 2000G":                                 "at most 1000G",
		"a b --buffer 1M":                                  "--buffer is of a bottleneck: it needs --rate",
		"a b --kmax 1M":                                    "--kmax is of a bottleneck: it needs --rate",
		"a b --rate 1M --kmin 1M":                          "--kmax is missing",
		"a b --rate 1M --kmax 10K --kmin 11K":              "kmin of 11264 is above kmax of 10240: kmax takes kmin octets or more",
		"a b --rate 1M --kmax 10K --pmax 110%":             "from 0% to 100%",
		"a b --rate 1M --kmax 10K --pmax much":             "from 0 to 1",
		"a b --rate 1M --kmax 10K --mark later":            "dequeue or enqueue",
		"a b --rate 1M --buffer 2000M":                     "buffer of 2097152000: it takes 0 to 1073741824 octets",
		"a b --direction up":                               "both, ab (from a to b) or ba",
		"a b --delay 11s":                                  "delay of 11s: it takes 0 to 10s",
		"a b --delay 5":                                    "--delay 5s",
		"a b --for -1s":                                    "--for",
		"lo lo --report 1ms":                               "report of 1ms: it takes an interval of 10ms or more",
		"a b --pcap /nosuch/folder/x.pcap":                 "choose a file elsewhere",
		"a b --rate 1M --kmax 10K --pmax 1% --buffer what": "such as 64k",
	} {
		begin(t, nil, command(append([]string{"relay"}, strings.Fields(args)...)...)).fails(want)
	}
}

// TestRelayReports: what it says and when, and that it ends in time and by a signal.
func TestRelayReports(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	p.AddWire("w1", 1500, nil, nil)
	p.A.SetUp(false) // its addresses are not wanted
	run := begin(t, p.A, command("relay", "veth0", "w1", "--rate", "5M", "--kmax", "40K", "--direction", "ba", "--delay", "1ms", "--faults", "rx drop 50%", "--json", "--report", "20ms", "--for", "300ms"))
	require.Zero(t, run.ends(), run.err.String())
	for _, want := range []string{
		"veth0 to w1 (tx in fault rules): RoCEv2 passes as it comes",
		"w1 to veth0 (rx in fault rules): bottleneck of 5 Mb/s with a buffer of 524288 octets, marks packets with ECT that leave a queue of 0 to 40960 octets, up to 100 %, and all beyond, delay of 1ms",
		"fault rule: rx drop 50%", "veth0 is down",
	} {
		require.Contains(t, run.err.String(), want)
	}
	lines := strings.Split(strings.TrimSpace(run.out.String()), "\n")
	require.Greater(t, len(lines), 2)
	for i, l := range lines {
		var n struct {
			At, Span float64
			Last     bool
			AB, BA   struct{ Packets *uint64 }
			Rules    []struct{ Rule string }
		}
		require.NoError(t, json.Unmarshal([]byte(l), &n))
		require.Equal(t, i == len(lines)-1, n.Last)
		require.NotNil(t, n.BA.Packets)
		require.Equal(t, "rx drop 50%", n.Rules[0].Rule)
	}

	run = begin(t, p.A, command("relay", "veth0", "w1"))
	time.AfterFunc(time.Second, func() { _ = run.cmd.Process.Signal(syscall.SIGTERM) })
	require.Zero(t, run.ends(), run.err.String())
	require.Contains(t, run.out.String(), "in all:")

	run = begin(t, nil, command("relay", "a", "b", "--faults", "drop many"))
	require.Equal(t, 1, run.ends())
	require.Contains(t, run.err.String(), "--faults: fault rule \"drop many\"")
	begin(t, p.A, nobody(command("relay", "veth0", "w1"))).fails("CAP_NET_RAW", "setcap")
}
