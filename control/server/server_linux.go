package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// Config describes a served device.
type Config struct {
	NIC  *nic.NIC
	Name string // by which clients ask for it; the device's own when empty
	// NetnsCookie is that of the network namespace the device is in (see
	// sys.NetnsCookie); 0 serves clients of any.
	NetnsCookie uint64

	PerClient, Device Limits
	Access            Access
	Logger            *slog.Logger // (none)
}

// Access says who may attach beside root and the daemon's own user: nil and nil,
// whoever can open the socket.
type Access struct {
	UIDs, GIDs []uint32
}

// Server serves one device.
type Server struct {
	nic    *nic.NIC
	name   string
	netdev string
	netns  uint64
	log    *slog.Logger

	mu                sync.Mutex
	perClient, device Limits
	access            Access
	clients           map[uint32]*client
	nextID            uint32
	held              usage
	over              bool // nobody is let in any more
}

// New returns a server for a device, which stays the caller's: closing it ends
// serving.
func New(cfg Config) (*Server, error) {
	a, err := cfg.NIC.QueryDevice()
	if err != nil {
		return nil, err
	}
	p, err := cfg.NIC.QueryPort()
	if err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = a.Name
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		nic: cfg.NIC, name: cfg.Name, netdev: p.NetDev, netns: cfg.NetnsCookie, log: cfg.Logger.With("device", cfg.Name),
		access: cfg.Access, clients: map[uint32]*client{},
	}
	s.SetLimits(cfg.PerClient, cfg.Device)
	go s.dispatch() // until the device is closed
	return s, nil
}

// Name returns the name that clients ask for.
func (s *Server) Name() string { return s.name }

// NIC returns the device.
func (s *Server) NIC() *nic.NIC { return s.nic }

// SetLimits changes the limits. What is held beyond them stays.
func (s *Server) SetLimits(perClient, device Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perClient, s.device = perClient.or(DefaultPerClient), device.or(DefaultDevice)
}

// Limits returns those in force.
func (s *Server) Limits() (perClient, device Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.perClient, s.device
}

// SetAccess changes who may attach. Clients that are there stay.
func (s *Server) SetAccess(a Access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.access = a
}

// dispatch passes the device's asynchronous events to whom they concern, until the
// device is closed.
func (s *Server) dispatch() {
	for e := range s.nic.Events() {
		for _, c := range s.all() {
			if c.concerns(e) {
				c.event(e)
			}
		}
	}
}

func (s *Server) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.clients), func(a, b *client) int { return int(a.id) - int(b.id) })
}

// ClientInfo describes a client.
type ClientInfo struct {
	ID      uint32
	PID     int32
	UID     uint32
	Command string // of the process, when it attached
	Since   time.Time
	Held    map[string]int64 // by the names of limits: qps, bytes and so on
	// EventsLost counts the asynchronous events that found no room since the client
	// did not read.
	EventsLost uint64
}

// Clients returns the clients, oldest first.
func (s *Server) Clients() []ClientInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ClientInfo
	for _, c := range s.clients {
		i := ClientInfo{ID: c.id, PID: c.pid, UID: c.uid, Command: c.command, Since: c.since, Held: map[string]int64{}, EventsLost: c.lost.Load()}
		for r := range resources {
			i.Held[resourceInfo[r].key] = c.held[r]
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b ClientInfo) int { return int(a.ID) - int(b.ID) })
	return out
}

// Held returns how much all clients hold, by the names of limits.
func (s *Server) Held() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]int64{"clients": int64(len(s.clients))}
	for r := range resources {
		m[resourceInfo[r].key] = s.held[r]
	}
	return m
}

// Close tells clients that the device is no more (EventDeviceFatal), cuts them off,
// and returns when all they had is destroyed, or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for _, c := range s.all() {
		c.event(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
		c.finish()
	}
	for tick := time.NewTicker(time.Millisecond); ; {
		if len(s.all()) == 0 {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("server: %d clients of %s are still there: %w", len(s.all()), s.name, ctx.Err())
		}
	}
}

// admit checks whether a client may attach, and to this device at all.
func (s *Server) admit(uid uint32, gids []uint32, pid int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.access
	switch {
	case a.UIDs == nil && a.GIDs == nil, uid == 0, uid == uint32(os.Geteuid()), slices.Contains(a.UIDs, uid), slices.ContainsFunc(gids, func(g uint32) bool { return slices.Contains(a.GIDs, g) }):
	default:
		return fmt.Errorf("%w: user %d (process %d) may not use %s: the daemon's configuration allows users %v and groups %v", control.ErrDenied, uid, pid, s.name, a.UIDs, a.GIDs)
	}
	return s.room()
}

// room checks whether there is room for one more client. It is called with s.mu
// held.
func (s *Server) room() error {
	switch {
	case s.over:
		return fmt.Errorf("server: %s: %w", s.name, verbs.ErrClosed)
	case len(s.clients) >= s.device.Clients:
		return fmt.Errorf("%w: %d clients of %s (total.clients in rxed's configuration); end some", verbs.ErrLimit, s.device.Clients, s.name)
	}
	return nil
}

// serves reports whether a client that wants this device means it.
func (s *Server) serves(h *control.Hello, netns uint64) bool {
	if h.SameNetns != 0 && s.netns != 0 && netns != 0 && s.netns != netns {
		return false
	}
	switch want := control.Text(h.Want[:]); h.By {
	case control.ByAny:
		return true
	case control.ByName:
		return want == s.name
	case control.ByInterface:
		return want == s.netdev
	case control.ByAddr:
		a, err := netip.ParseAddr(want)
		if err != nil {
			return false
		}
		gids, err := s.nic.GIDs()
		return err == nil && slices.ContainsFunc(gids, func(g verbs.GIDEntry) bool { return g.GID.Addr() == a.Unmap().WithZone("") })
	}
	return false
}

// Hub serves several devices on one socket.
type Hub struct {
	log     *slog.Logger
	mu      sync.Mutex
	servers []*Server
	ln      *net.UnixListener
	greet   []*control.Conn // that have not said what they want, oldest first
	over    bool
	wg      sync.WaitGroup
}

// NewHub returns a hub of devices.
func NewHub(log *slog.Logger, servers ...*Server) *Hub {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Hub{log: log, servers: servers}
}

// Serve accepts clients until Close. It returns nil then.
func (h *Hub) Serve(ln *net.UnixListener) error {
	h.mu.Lock()
	h.ln = ln
	over := h.over
	h.mu.Unlock()
	if over {
		return ln.Close()
	}
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			h.mu.Lock()
			over := h.over
			h.mu.Unlock()
			switch {
			case over:
				return nil
			case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ENOMEM):
				h.log.Error("accepting a client", "err", err)
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return err
		}
		h.wg.Go(func() { h.serve(control.NewConn(c)) })
	}
}

// helloWait is how long a client may take to say what it wants, and maxGreet how
// many may be about to: who wants something says so at once, so the oldest makes
// room for the next.
const (
	helloWait = 5 * time.Second
	maxGreet  = 256
)

// serve serves one client until it ends.
func (h *Hub) serve(conn *control.Conn) {
	defer conn.Close()
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	if len(h.greet) >= maxGreet {
		_ = h.greet[0].Close()
		h.greet = h.greet[1:]
	}
	h.greet = append(h.greet, conn)
	h.mu.Unlock()
	s, tag, err := h.hello(conn)
	h.mu.Lock()
	h.greet = slices.DeleteFunc(h.greet, func(c *control.Conn) bool { return c == conn })
	h.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return // it only looked whether anybody listens
	}
	if err != nil {
		h.log.Warn("client refused", "err", err)
		return
	}
	s.serve(conn, tag)
}

// hello receives a client's first message and finds the device it wants. A refusal
// has been sent when it returns.
func (h *Hub) hello(conn *control.Conn) (s *Server, tag uint32, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(helloWait))
	var m control.Message
	if err := conn.Receive(&m); err != nil {
		return nil, 0, err
	}
	m.Close()
	_ = conn.SetReadDeadline(time.Time{})
	hello := new(control.Hello)
	_, derr := control.Decode(m.Body, hello)
	refuse := func(st control.Status, format string, args ...any) (*Server, uint32, error) {
		err := fmt.Errorf(format, args...)
		_ = conn.Send(control.OpHello|control.OpReply, st, m.Tag, nil, []byte(err.Error()), sendWait)
		return nil, 0, err
	}
	switch {
	case m.Op != control.OpHello || derr != nil || hello.Magic != control.Magic:
		return refuse(control.BadMessage, "server: the first message is not a HELLO of this protocol")
	case hello.Major != control.VersionMajor:
		return refuse(control.BadMessage, "server: a client of protocol %d.%d, this rxed speaks %d.%d; use a program and an rxed of the same release", hello.Major, hello.Minor, control.VersionMajor, control.VersionMinor)
	}
	netns := sys.NetnsCookie(conn.UnixConn)
	var found []*Server
	for _, s := range h.servers {
		if s.nic.Err() == nil && s.serves(hello, netns) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return refuse(control.NoDevice, "%w: this rxed has no device %q, but %s", control.ErrNoDevice, control.Text(hello.Want[:]), h.list())
	case len(found) > 1:
		return refuse(control.NoDevice, "%w: this rxed has several that would do; name one of %s", control.ErrNoDevice, h.list())
	}
	s = found[0]
	pid, uid, gid, err := sys.PeerCred(conn.UnixConn)
	if err == nil {
		err = s.admit(uid, append(sys.PeerGroups(conn.UnixConn), gid), pid)
	}
	if err != nil {
		return refuse(control.StatusOf(err), "%w", err)
	}
	return s, m.Tag, nil
}

// list names the devices.
func (h *Hub) list() string {
	var out []string
	for _, s := range h.servers {
		out = append(out, fmt.Sprintf("%s (on %s)", s.name, s.netdev))
	}
	return strings.Join(out, ", ")
}

// Close stops accepting, tells all clients of all devices that those are no more,
// and returns when everything they had is destroyed, or ctx ends.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.over = true
	ln := h.ln
	for _, c := range h.greet {
		_ = c.Close()
	}
	h.mu.Unlock()
	var err error
	if ln != nil {
		err = ln.Close()
	}
	for _, s := range h.servers {
		err = errors.Join(err, s.Close(ctx))
	}
	done := make(chan struct{})
	go func() { h.wg.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Listen listens on a socket with a mode and, unless gid is -1, a group. A socket
// that a daemon has left behind is replaced; one that is served is not.
func Listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	if c, err := net.Dial("unixpacket", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("server: %s is served already, by another rxed; give this one another socket, or stop that", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path)
		}
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err = errors.Join(err, os.Chmod(path, mode)); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("server: %w", err)
	}
	return ln, nil
}
