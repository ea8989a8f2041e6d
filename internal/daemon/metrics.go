package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/metrics"
)

// metricsServer answers Prometheus. The zero value listens nowhere.
type metricsServer struct {
	mu       sync.Mutex
	now, was *httpServer // was: until settle
}

// httpServer is a server and its listener.
type httpServer struct {
	*http.Server
	addr string
	done chan struct{}
}

func (m *metricsServer) listen(c Metrics, d *Daemon) error {
	_, err := m.move(c, d)
	m.settle()
	return err
}

// move listens where c says, and goes on doing so at the old place until settle.
// Undo is the way back.
func (m *metricsServer) move(c Metrics, d *Daemon) (undo func(), err error) {
	var next *httpServer
	if c.Listen != "" {
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			hint := ""
			if errors.Is(err, syscall.EADDRINUSE) {
				hint = "; another program has that port, perhaps another rxed: choose another one"
			}
			return nil, fmt.Errorf("metrics.listen: %w%s", err, hint)
		}
		next = serveHTTP(l, metrics.Handler(newSource(d).Devices, d.opts.Version))
		d.log.Info("metrics", "listen", l.Addr().String())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.was, m.now = m.now, next
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now.close()
		m.was, m.now = nil, m.was
	}, nil
}

// settle ends what move left behind.
func (m *metricsServer) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.was.close()
	m.was = nil
}

func (m *metricsServer) close() {
	m.settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.close()
	m.now = nil
}

func serveHTTP(l net.Listener, h http.Handler) *httpServer {
	s := &httpServer{
		Server: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10},
		addr:   l.Addr().String(), done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		_ = s.Serve(l) // until it is closed
	}()
	return s
}

// close gives requests that are being answered a second.
func (s *httpServer) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
	<-s.done
}
