package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// net/http lingers for half a second on connections that it refuses.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// fake is a source with one device, which fails as it is told.
type fake struct {
	err    error
	limits Limits
	cc     map[string]string
	asked  []string
}

func (f *fake) Daemon() Daemon    { return Daemon{Program: "fake", Version: "1"} }
func (f *fake) Devices() []Device { return []Device{f} }
func (f *fake) Reload(context.Context) (ReloadResult, error) {
	return ReloadResult{Changed: []string{"log.level"}, Restart: []string{}}, f.err
}
func (f *fake) Name() string              { return "rxe/0" } // a name that wants escaping
func (f *fake) Info() (DeviceInfo, error) { return DeviceInfo{Name: f.Name()}, f.err }
func (f *fake) Counters() (map[string]uint64, error) {
	return map[string]uint64{"sent_pkts": 1<<64 - 1}, f.err
}

func (f *fake) DescribeCounter(name string) CounterInfo { return CounterInfo{Text: "about " + name} }
func (f *fake) QPs() ([]QP, error)                      { return nil, f.err }
func (f *fake) QP(n uint32) (QPDetail, error) {
	return QPDetail{QP: QP{QPN: n}}, f.err
}

func (f *fake) Trace(n uint32, limit int) ([]Event, error) {
	f.asked = append(f.asked, fmt.Sprint(n, " ", limit))
	return nil, f.err
}
func (f *fake) Clients() ([]ClientInfo, error) { return nil, f.err }
func (f *fake) Limits() (Limits, error)        { return f.limits, f.err }
func (f *fake) SetLimits(l Limits) error       { f.limits = l; return f.err }
func (f *fake) CC() (CC, error) {
	return CC{Device: f.Name(), Parameters: []CCParameter{{Name: "rp_ai_rate", Value: f.cc["rp_ai_rate"]}}, Profiles: []string{}}, f.err
}
func (f *fake) SetCC(c map[string]string) error { f.cc = c; return f.err }
func (f *fake) Capture(ctx context.Context, w io.Writer, o CaptureOptions, started func()) (CaptureSummary, error) {
	if f.err != nil {
		return CaptureSummary{}, f.err
	}
	started()
	if _, err := fmt.Fprint(w, "frames"); err != nil {
		return CaptureSummary{}, err
	}
	<-ctx.Done()
	_, err := fmt.Fprint(w, " end")
	return CaptureSummary{Captured: 3, Dropped: 2}, err
}

func serve(t *testing.T, f *fake) (*Client, string) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := NewServer(f)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return c, path
}

// raw sends octets and returns the status and body of the answer.
func raw(t *testing.T, path, request string) (int, string, http.Header) {
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b), resp.Header
}

// TestRequests: what is asked for wrongly is refused in JSON with the right
// status, and says what is right.
func TestRequests(t *testing.T) {
	f := new(fake)
	_, path := serve(t, f)
	const dev = "/v1/devices/rxe%2F0"
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1", "", 200, `"api":"v1"`},
		{"GET", "/v1/", "", 200, `"devices":["rxe/0"]`},
		{"GET", dev, "", 200, `"name":"rxe/0"`},
		{"GET", dev + "/counters", "", 200, `"sent_pkts":18446744073709551615`},
		{"GET", dev + "/counters?explain", "", 200, `about sent_pkts`},
		{"GET", dev + "/counters?explain=maybe", "", 400, `takes 1 or 0`},
		{"GET", dev + "/qps", "", 200, "[]\n"},
		{"GET", dev + "/clients", "", 200, "[]\n"},
		{"GET", dev + "/qps/0x10", "", 200, `"qpn":16`},
		{"GET", dev + "/qps/16777215", "", 200, `"qpn":16777215`},
		{"GET", dev + "/qps/16777216", "", 400, `from 0 to 16777215`},
		{"GET", dev + "/qps/99999999999999999999999999999999999999", "", 400, `from 0 to`},
		{"GET", dev + "/qps/-1", "", 400, `from 0 to`},
		{"GET", dev + "/qps/" + strings.Repeat("9", 8000), "", 400, `from 0 to`},
		{"GET", dev + "/qps/1;drop", "", 400, `from 0 to`},
		{"GET", dev + "/trace?qpn=5&max=7", "", 200, "[]\n"},
		{"GET", dev + "/trace?max=99999999", "", 400, `max`},
		{"GET", dev + "/trace?qpn=x", "", 400, `qpn`},
		{"GET", dev + "/capture?snaplen=-1", "", 400, `snaplen`},
		{"GET", dev + "/capture?count=1.5", "", 400, `count`},
		{"GET", "/v1/devices/nope", "", 404, `there are [\"rxe/0\"]`},
		{"GET", "/v1/devices/" + strings.Repeat("a", 9000), "", 404, `not found`},
		{"GET", "/", "", 404, `/v1/devices are where to begin`},
		{"GET", "/v2", "", 404, `there is no /v2`},
		{"GET", "/etc/passwd", "", 404, `there is no`},
		{"DELETE", "/v1/captures/nope", "", 404, `has ended`},
		{"POST", "/v1/devices", "", 405, `it takes GET, HEAD`},
		{"GET", "/v1/reload", "", 405, `it takes POST`},
		{"BREW", dev + "/qps", "", 405, `it takes GET, HEAD`},
		{"DELETE", dev + "/limits", "", 405, `PUT`},
		{"POST", "/v1/reload", "", 200, `"changed":["log.level"]`},
		{"PUT", dev + "/limits", `{"per_client":{"qps":5}}`, 200, `"qps":5`},
		{"PUT", dev + "/limits", `{"device":{"bytes":7}}`, 200, `"per_client":{"qps":5,`},
		{"PUT", dev + "/limits", `{"per_client":{"qp":5}}`, 400, `unknown field`},
		{"PUT", dev + "/limits", `{"per_client":{"qps":"many"}}`, 400, `cannot unmarshal`},
		{"GET", dev + "/cc", "", 200, `"parameters":[{"name":"rp_ai_rate",`},
		{"PUT", dev + "/cc", `{"rp_ai_rate":10,"rp_enable":true,"algorithm":"dcqcn"}`, 200, `"value":"10"`},
		{"PUT", dev + "/cc", `"dcqcn, rp_ai_rate=12"`, 200, `"value":"12"`},
		{"PUT", dev + "/cc", `"rp_ai_rate=12,dcqcn"`, 400, `dcqcn\": it takes name=value`},
		{"PUT", dev + "/cc", `"rp_ai_rate=12,rp_ai_rate=13"`, 400, `rp_ai_rate is there twice`},
		{"PUT", dev + "/cc", `""`, 400, `it takes name=value`},
		{"PUT", dev + "/cc", `{"rp_ai_rate":[1]}`, 400, `rp_ai_rate\": it takes a string`},
		{"PUT", dev + "/cc", `[1]`, 400, `it takes {`},
		{"PUT", dev + "/cc", `{} 1`, 400, `more than one`},
		{"PUT", dev + "/cc", `{`, 400, `unexpected EOF`},
		{"POST", dev + "/cc", `{}`, 405, `PUT`},
		{"PUT", dev + "/limits", `{} {}`, 400, `more than one`},
		{"PUT", dev + "/limits", `{`, 400, `unexpected EOF`},
		{"PUT", dev + "/limits", ``, 400, `EOF`},
		{"PUT", dev + "/limits", `{"per_client":{"qps":` + strings.Repeat("1", maxBody) + `}}`, 400, `too large`},
	} {
		name := c.method + " " + c.path[:min(len(c.path), 60)]
		status, body, h := raw(t, path, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.method, c.path, len(c.body), c.body))
		require.Equal(t, c.status, status, "%s: %s", name, body)
		require.Contains(t, body, c.want, name)
		require.Less(t, len(body), 1000, name)
		require.Equal(t, "application/json", h.Get("Content-Type"), name)
		if status >= 400 {
			require.Regexp(t, `^\{"error":".+"\}\n$`, body, name)
		}
		if status == 405 {
			require.NotEmpty(t, h.Get("Allow"))
		}
	}
	require.Equal(t, []string{"5 7"}, f.asked)
	require.Equal(t, Limits{PerClient: LimitSet{QPs: 5}, Device: LimitSet{Bytes: 7}}, f.limits)
}

// What is no HTTP, or too much of it, is refused too, and the server goes on.
func TestGarbage(t *testing.T) {
	c, path := serve(t, new(fake))
	for request, want := range map[string]int{
		"hello\r\n\r\n": 400,
		"GET /v1 HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n": 431,
		"GET /v1/../../etc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":            404,
		"PUT /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n":                     400,
	} {
		status, body, _ := raw(t, path, request)
		require.Equal(t, want, status, "%.40q: %s", request, body)
	}
	_, err := c.Daemon(t.Context())
	require.NoError(t, err)
}

// The errors of a source have statuses, and are what they were for a client.
func TestErrors(t *testing.T) {
	f := new(fake)
	c, _ := serve(t, f)
	for _, want := range []error{ErrNotFound, ErrInvalid, ErrBusy, ErrNotSupported, nil} {
		f.err = fmt.Errorf("no luck: %w", want)
		if want == nil {
			f.err = errors.New("no luck")
		}
		_, e1 := c.Device(t.Context(), "rxe/0")
		_, e2 := c.SetLimits(t.Context(), "rxe/0", Limits{})
		_, e3 := c.Reload(t.Context())
		_, e4 := c.Capture(t.Context(), "rxe/0", io.Discard, CaptureOptions{})
		for _, err := range []error{e1, e2, e3, e4} {
			require.EqualError(t, err, f.err.Error())
			for _, other := range []error{ErrNotFound, ErrInvalid, ErrBusy, ErrNotSupported} {
				require.Equal(t, other == want, errors.Is(err, other), "%v is %v", err, other)
			}
		}
	}
}

func TestCapture(t *testing.T) {
	c, path := serve(t, new(fake))
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	type result struct {
		sum CaptureSummary
		err error
	}
	done := make(chan result)
	go func() {
		s, err := c.Capture(ctx, "rxe/0", w, CaptureOptions{})
		w.Close()
		done <- result{s, err}
	}()
	b := make([]byte, 6)
	_, err := io.ReadFull(r, b)
	require.NoError(t, err)
	require.Equal(t, "frames", string(b))
	stop()
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, " end", string(rest), "it ends in its own good way")
	require.Equal(t, result{sum: CaptureSummary{Captured: 3, Dropped: 2}}, <-done)

	_, err = c.Capture(ctx, "rxe/0", io.Discard, CaptureOptions{})
	require.ErrorIs(t, err, context.Canceled)

	// There are only so many at once; a reader that goes makes room.
	var conns []net.Conn
	for deadline := time.Now().Add(20 * time.Second); len(conns) < maxCaptures; {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /v1/devices/rxe%2F0/capture HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, "200") {
			conns = append(conns, conn)
			continue
		}
		conn.Close() // the one that has just ended is still among them
		require.True(t, time.Now().Before(deadline))
	}
	_, err = c.Capture(t.Context(), "rxe/0", io.Discard, CaptureOptions{})
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "end one of them")
	for _, conn := range conns {
		conn.Close()
	}
	require.Eventually(t, func() bool {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		_, err := c.Capture(ctx, "rxe/0", io.Discard, CaptureOptions{})
		return !errors.Is(err, ErrBusy)
	}, 20*time.Second, 5*time.Millisecond)
}

// A daemon that goes in the middle of a capture is told of.
func TestCaptureOfLostDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := NewServer(new(fake))
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	c := NewClient(path)
	defer c.Close()
	r, w := io.Pipe()
	failed := make(chan error)
	go func() {
		_, err := c.Capture(t.Context(), "rxe/0", w, CaptureOptions{})
		w.Close()
		failed <- err
	}()
	_, err = io.ReadFull(r, make([]byte, 6))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	<-done
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.ErrorContains(t, <-failed, "the daemon at "+path+" ended, and with it the capture")
}

// Who finds no daemon is told where it was looked for and what to do.
func TestNoDaemon(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.sock")
	c := NewClient(path)
	defer c.Close()
	_, err := c.Devices(t.Context())
	var none *NoDaemonError
	require.ErrorAs(t, err, &none)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.EqualError(t, err, "no rxed listens at "+path+" (no such file or directory): start one with 'rxed -d INTERFACE', or name its socket with --admin or RXED_ADMIN")

	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	_, err = c.Devices(t.Context())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "start one with")

	require.Contains(t, (&NoDaemonError{path, syscall.EACCES}).Error(), "member of its group")
	require.Contains(t, (&NoDaemonError{path, syscall.EMFILE}).Error(), "too many open files")
}

func TestSocket(t *testing.T) {
	t.Setenv(EnvSocket, "")
	require.Equal(t, DefaultSocket, Socket(""))
	t.Setenv(EnvSocket, "/tmp/x")
	require.Equal(t, "/tmp/x", Socket(""))
	require.Equal(t, "/tmp/y", Socket("/tmp/y"))
}

// An answer that is none does not confuse the client.
func TestStrangeServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	body := "not json"
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "devices") {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.Copy(w, bytes.NewReader([]byte(body)))
	})}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	c := NewClient(path)
	_, err = c.Daemon(t.Context())
	require.ErrorContains(t, err, "the answer of the daemon at "+path)
	_, err = c.Devices(t.Context())
	require.ErrorContains(t, err, "418")
	c.Close()
	require.NoError(t, s.Close())
	<-done
}
