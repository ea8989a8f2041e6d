package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	maxCaptures = 8       // at once
	maxSnapLen  = 1 << 18 // as tcpdump
	// endWithin is how long a daemon has to end a capture that its reader
	// wants no more of.
	endWithin = 2 * time.Second
)

// HeaderCapture names a capture in the answer that carries it: DELETE
// /v1/captures/NAME ends it well, with its last block and these trailers.
const (
	HeaderCapture   = "Gorxe-Capture"
	TrailerCaptured = "Gorxe-Captured"
	TrailerDropped  = "Gorxe-Dropped"
	TrailerError    = "Gorxe-Error"
)

// captures are those that are going on.
type captures struct {
	mu   sync.Mutex
	stop map[string]context.CancelFunc // by name
}

func (c *captures) add(stop context.CancelFunc) (name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stop) >= maxCaptures {
		return "", fmt.Errorf("%d captures are going on: %w; end one of them", maxCaptures, ErrBusy)
	}
	name = rand.Text()
	c.stop[name] = stop
	return name, nil
}

func (c *captures) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stop, name)
}

func (h *handler) endCapture(r *http.Request) (any, error) {
	h.captures.mu.Lock()
	defer h.captures.mu.Unlock()
	stop := h.captures.stop[r.PathValue("id")]
	if stop == nil {
		return nil, fmt.Errorf("capture %.32q: %w; it has ended", r.PathValue("id"), ErrNotFound)
	}
	stop()
	return struct{}{}, nil
}

// capture streams until it is ended, or its reader has gone.
func (h *handler) capture(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	d, o, err := h.captureOf(r)
	name := ""
	if err == nil {
		name, err = h.captures.add(stop)
	}
	if err != nil {
		fail(w, status(err), err)
		return
	}
	defer h.captures.remove(name)
	out := &stream{w: w, c: http.NewResponseController(w)}
	sum, err := d.Capture(ctx, out, o, func() {
		for _, t := range []string{TrailerCaptured, TrailerDropped, TrailerError} {
			w.Header().Add("Trailer", t)
		}
		w.Header().Set("Content-Type", "application/x-pcapng")
		w.Header().Set(HeaderCapture, name)
		w.WriteHeader(http.StatusOK)
		out.begun = true
		_ = out.c.Flush()
	})
	if err != nil && !out.begun {
		fail(w, status(err), err)
		return
	}
	w.Header().Set(TrailerCaptured, strconv.FormatUint(sum.Captured, 10))
	w.Header().Set(TrailerDropped, strconv.FormatUint(sum.Dropped, 10))
	if err != nil {
		w.Header().Set(TrailerError, err.Error())
	}
}

func (h *handler) captureOf(r *http.Request) (d Device, o CaptureOptions, err error) {
	if d, err = h.device(r); err != nil {
		return d, o, err
	}
	snap, err := query(r, "snaplen", maxSnapLen)
	if err != nil {
		return d, o, err
	}
	o.SnapLen = int(snap)
	o.Count, err = query(r, "count", 1<<63)
	return d, o, err
}

// stream hands on what is written without delay.
type stream struct {
	w     io.Writer
	c     *http.ResponseController
	begun bool
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err == nil {
		err = s.c.Flush()
	}
	return n, err
}

// Capture writes what passes a device to w, as pcapng, until ctx is done, which
// is no error once it has begun, or as many frames as asked for came. What the
// daemon could not end well is an error; the frames that came are good.
func (c *Client) Capture(ctx context.Context, dev string, w io.Writer, o CaptureOptions) (CaptureSummary, error) {
	cut, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	p := fmt.Sprintf("%s?snaplen=%d&count=%d", path(dev, "capture"), o.SnapLen, o.Count)
	if err := context.Cause(ctx); err != nil {
		return CaptureSummary{}, err
	}
	begun := context.AfterFunc(ctx, end)
	resp, err := c.do(cut, http.MethodGet, p, nil)
	if err != nil {
		return CaptureSummary{}, err
	}
	defer resp.Body.Close()
	if !begun() {
		return CaptureSummary{}, context.Cause(ctx)
	}
	name := resp.Header.Get(HeaderCapture)
	defer context.AfterFunc(ctx, func() {
		soon, done := context.WithTimeout(cut, endWithin)
		defer done()
		_ = c.call(soon, http.MethodDelete, "/v1/captures/"+name, nil, &struct{}{})
		select {
		case <-time.After(endWithin): // a reader or a daemon that hangs
			end()
		case <-cut.Done():
		}
	})()
	_, err = io.Copy(w, resp.Body)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the daemon at %s ended, and with it the capture: %w", c.socket, err)
	}
	var sum CaptureSummary
	sum.Captured, _ = strconv.ParseUint(resp.Trailer.Get(TrailerCaptured), 10, 64)
	sum.Dropped, _ = strconv.ParseUint(resp.Trailer.Get(TrailerDropped), 10, 64)
	if t := resp.Trailer.Get(TrailerError); t != "" && err == nil {
		err = errors.New(t)
	}
	return sum, err
}
