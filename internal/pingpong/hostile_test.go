package pingpong

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// eof waits until the other side has closed its direction.
func eof(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(soon))
	_, err := io.Copy(io.Discard, c)
	require.NoError(t, err)
}

const (
	gid4  = "00000000000000000000ffff7f120001"
	gid6  = "fd000000000000000000000000000001"
	noGID = "00000000000000000000000000000000"
)

// TestAddresses: what is understood, and what is refused and why.
func TestAddresses(t *testing.T) {
	e, err := decodeDest([]byte("0012:00abcd:fedcba:" + gid4 + "\x00"))
	require.NoError(t, err)
	require.Equal(t, verbs.Endpoint{LID: 0x12, QPN: 0xabcd, PSN: 0xfedcba, GID: e.GID}, e)
	require.Equal(t, "127.18.0.1", e.GID.Addr().String())
	require.Equal(t, "0012:00abcd:fedcba:"+gid4+"\x00", string(encodeDest(e)))
	for msg, want := range hostile {
		_, err := decodeDest([]byte(msg))
		require.ErrorContains(t, err, want, "%q", msg)
	}
	good := encodeDest(e)
	for n := range good {
		_, err := decodeDest(good[:n])
		require.ErrorContains(t, err, "no pingpong address")
	}
}

// FuzzAddress: whatever a peer sends is refused, or comes out as it went in.
func FuzzAddress(f *testing.F) {
	f.Add([]byte("0000:00abcd:fedcba:" + gid4 + "\x00"))
	for msg := range hostile {
		f.Add([]byte(msg))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeDest(b); err == nil {
			require.Equal(t, strings.ToLower(string(b)), string(encodeDest(e)))
		}
	})
}

const garbage = "no pingpong address"

// hostile are messages of 52 octets and what is said of them.
var hostile = map[string]string{
	"0000:00abcd:fedcba:" + noGID + "\x00":                                    "-g N of ibv_*_pingpong",
	"0000:000000:fedcba:" + gid4 + "\x00":                                     "QPN 0x000000",
	"0000:000001:fedcba:" + gid4 + "\x00":                                     "QPN 0x000001",
	"0000:ffffff:fedcba:" + gid4 + "\x00":                                     "QPN 0xffffff",
	"0000:00abcd:fedcba:ff020000000000000000000000000001\x00":                 "GID ff02::1",
	"0000:00abcd:fedcba:00000000000000000000ffff00000000\x00":                 "GID 0.0.0.0",
	"0000:00abcd:fedcba:00000000000000000000ffffffffffff\x00":                 "GID 255.255.255.255",
	"0000:00abcd:fedcba:00000000000000000000ffffe0000001\x00":                 "GID 224.0.0.1",
	"0000:00abcd:fedcba:" + gid4[:31] + "g\x00":                               garbage,
	"0000:00abcd:fedcba:" + gid4 + "0":                                        garbage,
	"0000:00abcd fedcba:" + gid4 + "\x00":                                     garbage,
	"0000:+0abcd:fedcba:" + gid4 + "\x00":                                     garbage,
	"0000:0x0bcd:fedcba:" + gid4 + "\x00":                                     garbage,
	"0000:00ab_d:fedcba:" + gid4 + "\x00":                                     garbage,
	"-001:00abcd:fedcba:" + gid4 + "\x00":                                     garbage,
	"0000:0000abcd:fedcba:" + gid4[:30] + "\x00":                              garbage,
	strings.Repeat("\x00", 52):                                                garbage,
	strings.Repeat("\xff", 52):                                                garbage,
	strings.Repeat(":", 51) + "\x00":                                          garbage,
	"GET / HTTP/1.1\r\nHost: localhost:18515\r\nAccept: */*\r\n\r\n"[:52]:     garbage,
	"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\nxxxxxxxxxxxx\r\n\r\n\r\n"[:52]: garbage,
}

// TestHostile: a peer that misbehaves in the exchange ends it in an error that
// says how, and what to do.
func TestHostile(t *testing.T) {
	type step func(t *testing.T, c net.Conn)
	type hostileCase struct {
		name   string
		client bool // ours is
		steps  []step
		want   string
		leave  bool // the peer keeps the connection open
	}
	says := func(s string) step { return func(t *testing.T, c net.Conn) { write(t, c, s) } }
	hears := func(n int) step { return func(t *testing.T, c net.Conn) { read(t, c, n) } }
	drips := func(t *testing.T, c net.Conn) { // until ours has had enough
		for {
			if _, err := io.WriteString(c, "0"); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	resets := func(_ *testing.T, c net.Conn) { c.(*net.TCPConn).SetLinger(0) }
	good := "0000:00abcd:fedcba:" + gid4 + "\x00"

	var cases []hostileCase
	for msg, want := range hostile {
		cases = append(
			cases,
			hostileCase{"client gets " + msg, true, []step{hears(52), says(msg)}, want, true},
			hostileCase{"server gets " + msg, false, []step{says(msg)}, want, true},
		)
	}
	cases = append(
		cases,
		hostileCase{"closes at once", false, nil, "after 0 of 52 octets", false},
		hostileCase{"closes within its address", false, []step{says(good[:20])}, "after 20 of 52 octets", false},
		hostileCase{"closes before done", false, []step{says(good), hears(52)}, "did not say that it is connected: it closed the connection after 0 of 5", false},
		hostileCase{"closes within done", false, []step{says(good), hears(52), says("do")}, "after 2 of 5 octets", false},
		hostileCase{"says otherwise", false, []step{says(good), hears(52), says("DONE\x00")}, `said "DONE\x00"`, false},
		hostileCase{"resets", false, []step{says(good[:20]), resets}, "closed the connection after ", false},
		hostileCase{"is silent", false, nil, "0 of 52 octets came in 300ms", true},
		hostileCase{"stops", false, []step{says(good[:51])}, "51 of 52 octets came in 300ms", true},
		hostileCase{"stops before done", false, []step{says(good), hears(52)}, "0 of 5 octets came in 300ms", true},
		hostileCase{"drips", false, []step{drips}, " of 52 octets came in 300ms", true},
		hostileCase{"GID of another family", false, []step{says("0000:00abcd:fedcba:" + gid6 + "\x00")}, "start the peer with the index of another GID", true},

		hostileCase{"closes at once", true, nil, "closed the connection after 0 of 52 octets", false},
		hostileCase{"closes after the address", true, []step{hears(52)}, "after 0 of 52 octets; it says why on its side", false},
		hostileCase{"closes within its address", true, []step{hears(52), says(good[:30])}, "after 30 of 52 octets", false},
		hostileCase{"resets", true, []step{hears(52), resets}, "closed the connection after 0 of 52 octets", false},
		hostileCase{"is silent", true, nil, "0 of 52 octets came in 300ms", true},
		hostileCase{"drips", true, []step{drips}, " of 52 octets came in 300ms", true},
		hostileCase{"GID of another family", true, []step{hears(52), says("0000:00abcd:fedcba:" + gid6 + "\x00")}, "the peer's GID is IPv6 fd00::1, this side's IPv4 127.18.", true},
	)
	for _, c := range cases {
		t.Run(role(c.client)+" "+c.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Device, cfg.Timeout = device(t, addr()), 300*time.Millisecond
			var e *end
			var conn net.Conn
			if c.client {
				l := listen(t)
				cfg.Peer, cfg.Port = "127.0.0.1", portOf(l)
				e = start(t, t.Context(), cfg)
				conn = accept(t, l)
			} else {
				e = start(t, t.Context(), cfg)
				conn = connect(t, e.port)
			}
			for _, s := range c.steps {
				s(t, conn)
			}
			if !c.leave {
				conn.Close()
			}
			require.ErrorContains(t, e.wait(), c.want)
		})
	}
}

func role(client bool) string {
	if client {
		return "client"
	}
	return "server"
}

// TestNobody: the ways not to reach a server.
func TestNobody(t *testing.T) {
	l := listen(t)
	port := portOf(l)
	cfg := config(t)
	cfg.Device = device(t, addr())

	server := cfg
	server.Port = port
	require.ErrorContains(t, Run(t.Context(), withOut(server)), "is taken")

	l.Close()
	cfg.Peer, cfg.Port = "127.0.0.1", port
	require.ErrorContains(t, Run(t.Context(), withOut(cfg)), "start the server there first")
	cfg.Peer = "no.such.host.invalid"
	require.ErrorContains(t, Run(t.Context(), withOut(cfg)), "cannot find the host no.such.host.invalid")
}

func withOut(c Config) Config {
	c.Out = io.Discard
	return c
}
