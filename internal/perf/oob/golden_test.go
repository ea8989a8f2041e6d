package oob

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// message is one end's part of a step in a transcript.
type message struct {
	client bool // the client's, and not the server's
	b      []byte
}

// transcript is what two perftests said to each other, captured with tcpdump
// in a Soft-RoCE guest where both ran.
type transcript struct {
	name     string // "6.06/send_bw_b", "6.06-to-6.24/read_lat"
	cmd      string
	cfg      Config // but Server
	runs     int    // between Connected and Finish
	messages []message
	cut      bool // one end was interrupted
}

// transcripts reads testdata. A file begins with '#' lines, of which the first
// is the command; then comes a line for each message, '>' the client's and '<'
// the server's, and the octets as a Go string.
func transcripts(tb testing.TB) []transcript {
	files, err := filepath.Glob("testdata/*/*.txt")
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	var all []transcript
	for _, f := range files {
		all = append(all, readTranscript(tb, f))
	}
	return all
}

func readTranscript(tb testing.TB, file string) transcript {
	text, err := os.ReadFile(file)
	require.NoError(tb, err)
	dir, base := filepath.Split(file)
	t := transcript{name: filepath.Base(dir) + "/" + strings.TrimSuffix(base, ".txt")}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := s.Text()
		if c, ok := strings.CutPrefix(line, "# "); ok {
			if t.cmd == "" {
				t.cmd = c
			}
			t.cut = t.cut || strings.HasPrefix(c, "interrupted")
			continue
		}
		b, err := strconv.Unquote(line[2:])
		require.NoError(tb, err, "%s: %s", file, line)
		t.messages = append(t.messages, message{line[0] == '>', []byte(b)})
	}
	t.configure(tb)
	return t
}

// configure understands perftest's command line as far as testdata goes.
func (t *transcript) configure(tb testing.TB) {
	arg := strings.Fields(t.cmd)
	cfg := &t.cfg
	cfg.MTU, t.runs = 4096, 1
	for cfg.Kind = 0; "ib_"+cfg.Kind.String() != arg[0]; cfg.Kind++ {
		require.Less(tb, cfg.Kind, kinds, arg[0])
	}
	for i := 1; i < len(arg); i++ {
		switch a := arg[i]; a {
		case "-b":
			cfg.Both = true
		case "-a":
			cfg.All, t.runs = true, 23
		case "-D":
			cfg.Duration = true
			i++
		case "-q":
			i++
			cfg.QPs, _ = strconv.Atoi(arg[i])
		case "-m":
			i++
			cfg.MTU, _ = strconv.Atoi(arg[i])
		case "-c":
			i++
			cfg.Datagram = arg[i] == "UD"
		case "--run_infinitely":
			cfg.Infinite = true
		case "--write_with_imm":
			cfg.WriteImm = true
		case "-e", "-N", "-H", "-U", "-g", "--use-srq", "--report_gbits", "--report-both", "--out_json":
		default:
			require.True(tb, strings.HasPrefix(a, "--out_json_file") || len(a) == 2, "%s: %s", t.name, a)
			if len(a) == 2 {
				i++
			}
		}
	}
	if cfg.All && cfg.Datagram {
		t.runs = 12
	}
}

func (t *transcript) qps() int { return max(1, t.cfg.QPs) }

// version is what one end says to be.
func (t *transcript) version(client bool) string {
	m := t.messages[1]
	if client {
		m = t.messages[0]
	}
	return string(bytes.TrimRight(m.b, "\x00"))
}

// side is what one end tells in a transcript.
func (t *transcript) side(client bool) (dests []Dest, reports []BWReport) {
	var words []uint64
	for _, m := range t.messages {
		switch {
		case m.client != client:
		case len(m.b) == 8:
			words = append(words, binary.BigEndian.Uint64(m.b))
		case len(m.b) == destLen && (len(dests) == 0 || len(dests) < t.qps()):
			d, _ := parseDest(m.b, false)
			dests = append(dests, d)
		}
	}
	for ; len(words) >= 5; words = words[5:] {
		reports = append(reports, BWReport{words[0], words[1], math.Float64frombits(words[2]), math.Float64frombits(words[3]), math.Float64frombits(words[4])})
	}
	return dests, reports
}

// play is the other end of a transcript: it says what that said, and checks
// that it is told what that was told.
func play(nc net.Conn, t *transcript, client bool) error {
	defer nc.Close()
	for i, m := range t.messages {
		if string(m.b) == "done\x00" {
			continue // see hangUp
		}
		if m.client == client {
			if _, err := nc.Write(m.b); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			continue
		}
		got := make([]byte, len(m.b))
		if _, err := io.ReadFull(nc, got); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if unmeasured := len(m.b) == 8 && !t.cfg.Both && (!m.client || t.cfg.Infinite); !bytes.Equal(got, m.b) && !unmeasured {
			return fmt.Errorf("message %d: %q instead of %q", i, got, m.b)
		}
	}
	if t.cut {
		return nil
	}
	rest, err := io.ReadAll(nc)
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("%q too many, %w", rest, err)
	}
	return nil
}

// converse has the conversation as the run loops of perf do.
func converse(c *Conn, local []Dest, runs int, result func() BWReport) (peer Peer, remote []Dest, told []BWReport, err error) {
	if peer, err = c.Hello(); err != nil {
		return peer, nil, nil, err
	}
	if remote, err = c.Exchange(local); err != nil {
		return peer, nil, nil, err
	}
	if err = c.Connected(); err != nil {
		return peer, remote, nil, err
	}
	var last BWReport
	for i := 0; i < runs && !c.Passive(); i++ {
		if err = c.Begin(); err != nil {
			return peer, remote, told, err
		}
		if c.cfg.endReport() {
			last = result()
		}
		if i == runs-1 && !c.cfg.Both && c.cfg.Server {
			break // Finish does
		}
		r, ok, err := c.End(last)
		if err != nil {
			return peer, remote, told, err
		}
		if ok {
			told = append(told, r)
		}
	}
	if c.cfg.finishReport() && !c.Passive() {
		last = result()
	}
	r, ok, err := c.Finish(last)
	if ok {
		told = append(told, r)
	}
	return peer, remote, told, err
}

// TestTranscripts has each recorded conversation in both roles, and compares
// every octet with what the real tool said.
func TestTranscripts(t *testing.T) {
	for _, tr := range transcripts(t) {
		for _, server := range []bool{false, true} {
			role := "client"
			if server {
				role = "server"
			}
			t.Run(tr.name+"/"+role, func(t *testing.T) {
				ours, theirs := net.Pipe()
				played := make(chan error, 1)
				go func() { played <- play(theirs, &tr, server) }()

				cfg := tr.cfg
				cfg.Server = server
				cfg.Version = tr.version(!server)
				cfg.StepTimeout, cfg.RunTimeout = 5*time.Second, 5*time.Second
				local, reports := tr.side(!server)
				want, wantReports := tr.side(server)
				if cfg.finishReport() && (server || cfg.Infinite) {
					reports = nil // the real tool sends what is on its stack
				}
				c, err := New(context.Background(), ours, cfg)
				require.NoError(t, err)
				defer c.Close()
				peer, remote, told, err := converse(c, local, tr.runs, func() (r BWReport) {
					if len(reports) > 0 {
						r, reports = reports[0], reports[1:]
					}
					return r
				})
				if tr.cut {
					c.Close()
					require.ErrorIs(t, err, ErrClosed)
					require.NoError(t, <-played)
					return
				}
				c.Close()
				require.NoError(t, errors.Join(err, <-played))
				require.Equal(t, tr.version(server), peer.Version)
				require.Equal(t, cfg.MTU, peer.MTU)
				require.Equal(t, 4096, peer.CycleBuffer)
				require.Equal(t, 64, peer.CacheLine)
				require.Equal(t, want, remote)
				require.Empty(t, reports)
				if cfg.Both || server && !cfg.Infinite {
					require.Equal(t, len(wantReports), len(told))
					for i := range told {
						require.Equal(t, wantReports[i], told[i])
					}
				} else {
					require.Empty(t, told, "what a perftest says that measured nothing is no result")
				}
			})
		}
	}
}
