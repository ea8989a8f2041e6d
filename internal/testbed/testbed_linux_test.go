package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main(m, Helpers{
		"whoami": func(args []string) error {
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var d [2]unix.CapUserData
			if err := unix.Capget(&hdr, &d[0]); err != nil {
				return err
			}
			ifs, err := net.Interfaces()
			fmt.Println(os.Getuid(), d[0].Effective|d[1].Effective, len(ifs), args)
			return err
		},
		"fail": func([]string) error { return errors.New("as asked") },
	})
}

// TestPair: what one side sends to either address of the other arrives, at
// once, and nothing of it exists outside.
func TestPair(t *testing.T) {
	p := NewPair(t, 4200)
	for _, a := range []struct{ from, to string }{{A4.String(), B4.String()}, {A6.String(), B6.String()}} {
		var rx, tx net.PacketConn
		p.B.Do(func() {
			var err error
			if rx, err = net.ListenPacket("udp", net.JoinHostPort(a.to, "7000")); err != nil {
				t.Fatal(err)
			}
		})
		defer rx.Close()
		p.A.Do(func() {
			var err error
			if tx, err = net.ListenPacket("udp", net.JoinHostPort(a.from, "0")); err != nil {
				t.Fatal(err)
			}
		})
		defer tx.Close()
		if _, err := tx.WriteTo(make([]byte, 4100), rx.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 9000)
		rx.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, from, err := rx.ReadFrom(b)
		if err != nil || n != 4100 || from.String() != tx.LocalAddr().String() {
			t.Fatalf("%s: got %d octets from %v: %v", a.to, n, from, err)
		}
	}
	if _, err := net.InterfaceByName(Iface); err == nil {
		t.Errorf("%s exists outside the namespaces", Iface)
	}
}

func TestHelper(t *testing.T) {
	h := NewHost(t)
	out, err := h.Run(h.Helper(AsNobody, "whoami", "x", "y"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "65534 0 1 [x y]"; strings.TrimSpace(out) != want {
		t.Errorf("as nobody: %q, want %q", out, want)
	}
	out, err = h.Run(h.Helper(AsTest, "fail"))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "as asked") {
		t.Errorf("failing helper: %v %q", err, out)
	}
}

// skipper is a test that can only be skipped.
type skipper struct {
	testing.TB
	skipped bool
}

func (s *skipper) Helper()       {}
func (s *skipper) Skipped() bool { return s.skipped }
func (s *skipper) SkipNow()      { s.skipped = true; runtime.Goexit() }

// TestDoEndsTest: a test may be skipped from inside a namespace.
func TestDoEndsTest(t *testing.T) {
	s := &skipper{TB: t}
	h := &Host{t: s, ns: NewHost(t).ns}
	done := make(chan bool, 1)
	go func() {
		defer func() { done <- false }()
		h.Do(s.SkipNow)
		done <- true
	}()
	if <-done {
		t.Error("went on after a skip")
	}
}
