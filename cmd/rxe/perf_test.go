package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
)

// TestPerf runs both roles of each tool as programs, without privileges, by the
// route to the peer, comparing every octet.
func TestPerf(t *testing.T) {
	pair := testbed.NewPair(t, 1500)
	for _, args := range []string{
		"send_bw", "send_lat", "write_bw", "write_lat", "read_bw", "read_lat", "atomic_bw", "atomic_lat -A CMP_AND_SWAP",
		"send_bw -c UD -s 1000 -q 2", "send_lat -c UC", "ib_send_bw -b --use-srq", "write_bw -b -l 5",
	} {
		server := begin(t, pair.A, nobody(command(append([]string{"perf"}, strings.Fields(args+" -n 50 --check")...)...)))
		var client *process
		require.Eventually(t, func() bool {
			client = begin(t, pair.B, nobody(command(append([]string{"perf"}, strings.Fields(args+" -n 50 --check "+testbed.A4.String())...)...)))
			return client.ends() == 0 || !strings.Contains(client.err.String(), "nobody listens")
		}, 20*time.Second, 10*time.Millisecond)
		require.Empty(t, client.err.String(), args)
		require.Zero(t, server.ends(), server.err.String())
		require.Regexp(t, `(?m)^ [0-9]+ +(50|100) +[0-9.]+`, client.out.String(), args)
	}
}

// TestPerfJSON: the report goes where it is asked to.
func TestPerfJSON(t *testing.T) {
	at, port := testbed.Loopback(0).String(), tcpPort(t)
	file := filepath.Join(t.TempDir(), "out.json")
	server := begin(t, nil, command("perf", "write_bw", "--addr", at, "-n", "20", "-p", port))
	serves(t, at)
	var client *process
	require.Eventually(t, func() bool {
		client = begin(t, nil, command("perf", "write_bw", "--addr", testbed.Loopback(1).String(), "-n", "20", "-p", port, "--out_json", "--out_json_file", file, at))
		return client.ends() == 0 || !strings.Contains(client.err.String(), "nobody listens")
	}, 20*time.Second, 10*time.Millisecond)
	require.Empty(t, client.err.String())
	require.Zero(t, server.ends(), server.err.String())
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(b), `"n_iterations": 20`)
}

// TestPerfMistakes: what is wrong with options is said at once, with what to do
// instead.
func TestPerfMistakes(t *testing.T) {
	at, port := testbed.Loopback(0).String(), tcpPort(t)
	for args, want := range map[string]string{
		"":                                       "there are send_bw, send_lat, write_bw",
		"wrte_bw":                                "perf has no test wrte_bw; there are send_bw",
		"send_bw a b":                            "one PEER, not a and b",
		"send_bw 127.0.0.2:18515":                "rxe perf send_bw -p 18515 127.0.0.2",
		"send_bw UD":                             "the connection type is -c UD",
		"send_bw -u UD":                          "unreliable datagrams are -c UD",
		"send_bw -u -c UD":                       "unreliable datagrams are -c UD",
		"send_bw -u":                             "-u, --qp-timeout needs a value: timeout of a queue pair, a code",
		"send_bw --mcg":                          "unknown flag: --mcg; rxe perf send_bw --help lists the flags",
		"send_bw -u 60":                          "a time to run for is -D",
		"send_bw -t 60s":                         "a time to run for is -D",
		"send_lat -t 60":                         "send_lat has one message under way at a time",
		"send_bw -D soon":                        "a number of seconds, such as 10",
		"send_bw -D 4 -f 2":                      "nothing is left of -D 4s",
		"send_bw -m 65536":                       "the length of a message is -s: -s 65536",
		"send_bw -m 1000":                        "256, 512, 1024, 2048 or 4096",
		"send_bw -s 0":                           "-s 0",
		"send_bw -c UD -m 1024 -s 2048":          "a datagram has at most a path MTU",
		"send_bw -c XRC":                         "this device has no XRC",
		"send_bw -c tcp":                         "a connection type is RC, UC or UD",
		"write_bw -c UD":                         "datagrams only carry SEND; write_bw needs -c RC or UC",
		"read_bw -c UC":                          "it has no READ and no atomics",
		"write_bw -c UC --check":                 "check send_bw -c UC",
		"write_bw -e":                            "-e: not with WRITE",
		"write_bw --use-srq":                     "an option of send_bw and send_lat",
		"send_bw --write_with_imm":               "an option of write_bw and write_lat",
		"send_bw -o 4":                           "an option of READ and atomics",
		"read_bw -o 1000":                        "-o 1000: 1 to 128",
		"atomic_bw -s 16":                        "an atomic has 8 octets",
		"atomic_bw -A ADD":                       "FETCH_AND_ADD and CMP_AND_SWAP",
		"send_lat -b":                            "goes both ways by itself",
		"send_lat --run_infinitely":              "bandwidth tools",
		"write_bw -H":                            "latency tools",
		"write_bw -n 4":                          "at least 5 messages",
		"write_bw -n 100 -l 7":                   "-n 105",
		"write_bw -q 0":                          "-q 0: 1 to 16384",
		"write_bw -q 9000 -t 4000":               "a completion queue holds",
		"write_bw -I 600":                        "at most 512 octets",
		"write_bw -S 9":                          "0 to 7",
		"write_bw -i 2":                          "one port",
		"write_bw --rate_limit 0":                "--rate_limit 0: it takes a rate from 1 kb/s to 4294 Gb/s",
		"write_bw --rate_limit -1":               "--rate_limit -1: it takes a rate",
		"write_bw --rate_limit NaN":              "it takes a rate",
		"write_bw --rate_limit 9e9":              "it takes a rate from 1 kb/s to 4294 Gb/s",
		"write_bw --rate_limit 1 --rate_units p": "keeps octets a second, not packets",
		"write_bw --rate_limit 1 --rate_units k": "there are M (MiB/s) and g (Gb/s)",
		"write_bw --rate_limit 1 --rate_limit_type SW": "this device spaces packets itself",
		"write_bw --rate_limit_type HW":                "give the rate too",
		"write_lat --rate_limit 1":                     "an option of the bandwidth tools",
		"write_bw --cc cubic":                          "--cc cubic: algorithm of \"cubic\": it takes dcqcn, none, window, swift",
		"write_bw --cc dcqcn,rp_dce_tcp_g=1024":        "rp_dce_tcp_g of \"1024\": it takes 1 to 1023 1/1024",
		"write_bw -R":                                  "start both ends without -R",
		"write_bw -z":                                  "start both ends without -z",
		"write_bw -T 8":                                "--tclass 8",
		"write_bw -x 1 --addr " + at:                   "only index 0",
		"write_bw -d mlx5_0":                           "a device of the kernel's",
		"write_bw -d nosuch0":                          "no such network interface",
		"write_bw --timeout 5":                         "--timeout 5s",
		"write_bw 127.0.0.1 -p " + port:                "start the server there first (rxe perf write_bw, or ib_write_bw",
		"write_bw no.such.host.invalid":                "cannot find the host",
		"write_bw --link carrier":                      "auto, udp, packet and xdp",
		"send_bw -D 3 -a":                              "not with -a",
		"send_bw -D 3 -e":                              "not with -e",
		"send_bw --run_infinitely -b":                  "not with -b",
		"send_bw --use-srq -q 40 -r 20":                "-r 40 or more",
	} {
		begin(t, nil, command(append([]string{"perf"}, strings.Fields(args)...)...)).fails(want)
	}
}

// TestPerfInterrupted: --run_infinitely prints rows until it is interrupted,
// and its end is the other end's too.
func TestPerfInterrupted(t *testing.T) {
	at, port := testbed.Loopback(0).String(), tcpPort(t)
	server := begin(t, nil, command("perf", "send_bw", "--addr", at, "--run_infinitely", "-D", "1", "-p", port))
	serves(t, at)
	file := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(file)
	require.NoError(t, err)
	defer out.Close()
	printed := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}
	row := regexp.MustCompile(`(?m)^ 65536 +[0-9]+ +0\.00 +[0-9.]+`)
	var client *exec.Cmd
	ended := make(chan struct{})
	close(ended)
	require.Eventually(t, func() bool {
		select {
		case <-ended: // the server did not listen yet
			client, ended = command("perf", "send_bw", "--addr", testbed.Loopback(1).String(), "--run_infinitely", "-D", "1", "-p", port, at), make(chan struct{})
			client.Stdout = out
			require.NoError(t, client.Start())
			go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(client, ended)
		default:
		}
		return row.MatchString(printed())
	}, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, client.Process.Signal(os.Interrupt))
	<-ended
	require.Zero(t, server.ends(), server.err.String())
	require.Regexp(t, row, server.out.String())
	require.Contains(t, printed(), "User stopped traffic")
}
