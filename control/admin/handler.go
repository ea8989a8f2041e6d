package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody  = 64 << 10
	maxTrace = 1 << 20
)

// NewServer returns a server for a listener of the admin socket. It bears
// clients that are slow, silent or hostile.
func NewServer(src Source) *http.Server {
	return &http.Server{Handler: Handler(src), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
}

// Handler serves the interface of the package's comment.
func Handler(src Source) http.Handler {
	h := &handler{src: src, captures: captures{stop: map[string]context.CancelFunc{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1", h.answer(h.daemon))
	mux.HandleFunc("GET /v1/{$}", h.answer(h.daemon))
	mux.HandleFunc("POST /v1/reload", h.answer(h.reload))
	mux.HandleFunc("GET /v1/devices", h.answer(h.devices))
	mux.HandleFunc("GET /v1/devices/{dev}", h.of(func(d Device, _ *http.Request) (any, error) { return d.Info() }))
	mux.HandleFunc("GET /v1/devices/{dev}/counters", h.of(counters))
	mux.HandleFunc("GET /v1/devices/{dev}/qps", h.of(func(d Device, _ *http.Request) (any, error) { return list(d.QPs()) }))
	mux.HandleFunc("GET /v1/devices/{dev}/qps/{qpn}", h.of(qp))
	mux.HandleFunc("GET /v1/devices/{dev}/trace", h.of(events))
	mux.HandleFunc("GET /v1/devices/{dev}/clients", h.of(func(d Device, _ *http.Request) (any, error) { return list(d.Clients()) }))
	mux.HandleFunc("GET /v1/devices/{dev}/limits", h.of(func(d Device, _ *http.Request) (any, error) { return d.Limits() }))
	mux.HandleFunc("PUT /v1/devices/{dev}/limits", h.of(setLimits))
	mux.HandleFunc("GET /v1/devices/{dev}/cc", h.of(func(d Device, _ *http.Request) (any, error) { return d.CC() }))
	mux.HandleFunc("PUT /v1/devices/{dev}/cc", h.of(setCC))
	mux.HandleFunc("GET /v1/devices/{dev}/capture", h.capture)
	mux.HandleFunc("DELETE /v1/captures/{id}", h.answer(h.endCapture))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if _, pattern := mux.Handler(r); pattern == "" {
			lost(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// lost answers what no pattern takes, in JSON like all else.
func lost(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	m := mute{header: http.Header{}}
	mux.ServeHTTP(&m, r)
	if allow := m.header.Get("Allow"); m.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		fail(w, m.code, fmt.Errorf("%.32s is not for %.128s; it takes %s", r.Method, r.URL.Path, allow))
		return
	}
	fail(w, http.StatusNotFound, fmt.Errorf("there is no %.128s; /v1 and /v1/devices are where to begin", r.URL.Path))
}

// mute keeps what mux says of a request that it does not take.
type mute struct {
	header http.Header
	code   int
}

func (m *mute) Header() http.Header         { return m.header }
func (m *mute) Write(b []byte) (int, error) { return len(b), nil }
func (m *mute) WriteHeader(code int)        { m.code = code }

type handler struct {
	src      Source
	captures captures
}

func (h *handler) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, status(err), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // the reader is gone
	}
}

func (h *handler) of(f func(Device, *http.Request) (any, error)) http.HandlerFunc {
	return h.answer(func(r *http.Request) (any, error) {
		d, err := h.device(r)
		if err != nil {
			return nil, err
		}
		return f(d, r)
	})
}

func (h *handler) device(r *http.Request) (Device, error) {
	name := r.PathValue("dev")
	all := h.src.Devices()
	names := make([]string, len(all))
	for i, d := range all {
		if names[i] = d.Name(); names[i] == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("device %.64q: %w; there are %q", name, ErrNotFound, names)
}

func (h *handler) daemon(*http.Request) (any, error) {
	d := h.src.Daemon()
	d.API, d.Devices = Version, []string{}
	for _, x := range h.src.Devices() {
		d.Devices = append(d.Devices, x.Name())
	}
	return d, nil
}

func (h *handler) devices(*http.Request) (any, error) {
	out := []DeviceInfo{}
	for _, d := range h.src.Devices() {
		i, err := d.Info()
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

func (h *handler) reload(r *http.Request) (any, error) { return h.src.Reload(r.Context()) }

func counters(d Device, r *http.Request) (any, error) {
	explain, err := flag(r, "explain")
	if err != nil {
		return nil, err
	}
	v, err := d.Counters()
	if err != nil {
		return nil, err
	}
	c := Counters{Device: d.Name(), Port: 1, Time: time.Now(), Values: v}
	if explain {
		c.About = make(map[string]CounterInfo, len(v))
		for name := range v {
			c.About[name] = d.DescribeCounter(name)
		}
	}
	return c, nil
}

func qp(d Device, r *http.Request) (any, error) {
	n, err := number("queue pair number", r.PathValue("qpn"), 1<<24-1)
	if err != nil {
		return nil, err
	}
	return d.QP(uint32(n))
}

func events(d Device, r *http.Request) (any, error) {
	n, err := query(r, "qpn", 1<<24-1)
	if err != nil {
		return nil, err
	}
	last, err := query(r, "max", maxTrace)
	if err != nil {
		return nil, err
	}
	return list(d.Trace(uint32(n), int(last)))
}

func setLimits(d Device, r *http.Request) (any, error) {
	l, err := d.Limits() // a member that is not there leaves its limit alone
	if err != nil {
		return nil, err
	}
	j := json.NewDecoder(r.Body)
	j.DisallowUnknownFields()
	if err := j.Decode(&l); err != nil {
		return nil, fmt.Errorf("%w: limits: %w", ErrInvalid, err)
	}
	if _, err := j.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: limits: more than one JSON value", ErrInvalid)
	}
	if err := d.SetLimits(l); err != nil {
		return nil, err
	}
	return d.Limits()
}

func setCC(d Device, r *http.Request) (any, error) {
	j := json.NewDecoder(r.Body)
	j.UseNumber()
	var body any
	if err := j.Decode(&body); err != nil {
		return nil, fmt.Errorf("%w: congestion control: %w", ErrInvalid, err)
	}
	if _, err := j.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: congestion control: more than one JSON value", ErrInvalid)
	}
	change, err := ccChange(body)
	if err != nil {
		return nil, fmt.Errorf("%w: congestion control: %w", ErrInvalid, err)
	}
	if err := d.SetCC(change); err != nil {
		return nil, err
	}
	return d.CC()
}

// ccChange reads {"name": value} or a list, "algorithm,name=value".
func ccChange(body any) (map[string]string, error) {
	change := map[string]string{}
	switch b := body.(type) {
	case string:
		return ParseCC(strings.Split(b, ","))
	case map[string]any:
		for name, v := range b {
			switch v.(type) {
			case string, json.Number, bool:
				change[name] = fmt.Sprint(v)
			default:
				return nil, fmt.Errorf("%.64q: it takes a string, a number, true or false", name)
			}
		}
		return change, nil
	}
	return nil, errors.New(`it takes {"name": value}, or a string such as "dcqcn,rp_ai_rate=10"`)
}

// ParseCC turns words such as "rp_ai_rate=10" into what Device.SetCC takes; the first
// may be an algorithm alone. A parameter that comes twice is refused.
func ParseCC(words []string) (map[string]string, error) {
	change := map[string]string{}
	for i, w := range words {
		name, value, ok := strings.Cut(strings.TrimSpace(w), "=")
		switch {
		case !ok && i == 0 && name != "" && !strings.Contains(name, "_") && name != "profile": // as no parameter is named
			name, value = "algorithm", name
		case !ok || name == "" || value == "":
			return nil, fmt.Errorf("%.64q: it takes name=value, such as rp_ai_rate=10", w)
		}
		if _, twice := change[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		change[name] = value
	}
	return change, nil
}

// list makes an empty list [] rather than null.
func list[T any](l []T, err error) (any, error) {
	if l == nil {
		l = []T{}
	}
	return l, err
}

func query(r *http.Request, name string, limit uint64) (uint64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return 0, nil
	}
	return number(name, v, limit)
}

func number(what, text string, limit uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil || n > limit {
		return 0, fmt.Errorf("%w: %s %.32q: it takes a number from 0 to %d", ErrInvalid, what, text, limit)
	}
	return n, nil
}

func flag(r *http.Request, name string) (bool, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return r.URL.Query().Has(name), nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%w: %s %.32q: it takes 1 or 0", ErrInvalid, name, v)
	}
	return b, nil
}

func status(err error) int {
	for _, c := range [...]struct {
		err    error
		status int
	}{
		{ErrNotFound, http.StatusNotFound},
		{ErrInvalid, http.StatusBadRequest},
		{ErrBusy, http.StatusServiceUnavailable},
		{ErrNotSupported, http.StatusNotImplemented},
	} {
		if errors.Is(err, c.err) {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure{err.Error()})
}

// failure is what goes with a status of 4xx or 5xx.
type failure struct {
	Error string `json:"error"`
}
