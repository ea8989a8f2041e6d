package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

const (
	// sendWait is how long a client may leave an answer unread before it is cut
	// off: nothing else waits for it meanwhile.
	sendWait = 5 * time.Second
	// eventDepth is how many events wait for a client that does not read.
	eventDepth = 256
)

// client is an attached program. Its tables belong to the goroutine that answers its
// calls; what others read is under Server.mu or the locks of its parts.
type client struct {
	s       *Server
	conn    *control.Conn
	id      uint32
	pid     int32
	uid     uint32
	command string
	since   time.Time
	nc      *nic.Client
	bells   []byte
	held    usage // under Server.mu

	objects map[object]*thing
	gens    map[uint64]uint32 // of queue pair handles, by place of the doorbell

	mu     sync.Mutex // guards what events look up
	qpns   map[uint32]bool
	queues map[object]bool

	events chan verbs.AsyncEvent
	lost   atomic.Uint64 // events that it did not read
	once   sync.Once
	left   chan struct{} // closed when the client is to be cut off
}

// object names something in a client's words.
type object struct {
	kind verbs.ObjectKind
	h    verbs.Handle
}

// thing is what the server knows of it.
type thing struct {
	h      verbs.Handle // the device's
	qpn    uint32
	bell   uint64 // of a queue pair: shard and index
	mem    []byte // shared
	costs  usage
	groups map[verbs.GID]bool
}

// serve serves a client that has said hello, to its end.
func (s *Server) serve(conn *control.Conn, tag uint32) {
	c := &client{
		s: s, conn: conn, since: time.Now(), objects: map[object]*thing{}, gens: map[uint64]uint32{},
		qpns: map[uint32]bool{}, queues: map[object]bool{}, events: make(chan verbs.AsyncEvent, eventDepth), left: make(chan struct{}),
	}
	var err error
	if c.pid, c.uid, _, err = sys.PeerCred(conn.UnixConn); err != nil {
		s.log.Error("client's credentials", "err", err)
		return
	}
	c.command = command(c.pid)
	s.mu.Lock()
	if err = s.room(); err != nil { // others have come since it was admitted
		s.mu.Unlock()
		_ = conn.Send(control.OpHello|control.OpReply, control.StatusOf(err), tag, nil, []byte(err.Error()), sendWait)
		return
	}
	for s.nextID++; s.nextID == 0 || s.clients[s.nextID] != nil; s.nextID++ {
	}
	c.id = s.nextID
	s.clients[c.id] = c
	s.mu.Unlock()
	log := s.log.With("client", c.id, "pid", c.pid, "uid", c.uid, "command", c.command)
	defer func() {
		began := time.Now()
		n := c.teardown()
		log.Info("client detached", "why", reason(err), "objects", n, "took", time.Since(began))
	}()
	if err = c.welcome(tag); err != nil {
		return
	}
	log.Info("client attached")
	var wg sync.WaitGroup
	wg.Go(c.tell)
	err = c.answer()
	c.finish()
	wg.Wait()
	if errors.Is(err, control.ErrMessage) || errors.Is(err, errProtocol) {
		log.Warn("client cut off", "err", err)
	}
}

func reason(err error) string {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return "it closed or ended"
	}
	return err.Error()
}

// command returns the name of a process, for logs; it may lie.
func command(pid int32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// who names the client in errors to others.
func (c *client) who() string {
	if c.command == "" {
		return fmt.Sprintf("process %d", c.pid)
	}
	return fmt.Sprintf("process %d (%s)", c.pid, c.command)
}

// welcome makes the client's doorbells and answers its hello.
func (c *client) welcome(tag uint32) error {
	n := sys.PageRound(c.s.nic.Shards() * verbs.BellBlockLen)
	fd, mem, err := sys.NewShared("rxed-bells", n)
	if err != nil {
		return err
	}
	defer sys.CloseFDs(fd)
	c.bells = mem
	if c.nc, err = c.s.nic.Attach(c.id, mem); err != nil {
		return err
	}
	r := control.HelloReply{
		Major: control.VersionMajor, Minor: control.VersionMinor, Shards: uint32(c.s.nic.Shards()), BellBytes: uint64(n),
		ClientID: c.id, PID: uint32(os.Getpid()),
	}
	control.PutText(r.Device[:], c.s.name)
	control.PutText(r.NetDev[:], c.s.netdev)
	return c.conn.Send(control.OpHello|control.OpReply, control.OK, tag, &r, nil, sendWait, fd)
}

// answer answers calls until the client ends or says what is no message.
func (c *client) answer() error {
	var m control.Message
	for {
		if err := c.conn.Receive(&m); err != nil {
			return err
		}
		m.Close() // nobody asked for descriptors
		if m.Op == control.OpWake {
			var w control.WakeReq
			if _, err := control.Decode(m.Body, &w); err == nil {
				c.nc.Wake(int(w.Shard))
			}
			continue
		}
		if err := c.reply(&m); err != nil {
			return err
		}
	}
}

// tell sends events.
func (c *client) tell() {
	send := func(e verbs.AsyncEvent) bool {
		x := control.Event{Type: uint32(e.Type), QPN: e.QPN, CQ: uint32(e.CQ), SRQ: uint32(e.SRQ)}
		return c.conn.Send(control.OpEvent, control.OK, 0, &x, nil, sendWait) == nil
	}
	defer c.conn.Close()
	for {
		select {
		case e := <-c.events:
			if !send(e) {
				return
			}
		case <-c.left:
			for {
				select {
				case e := <-c.events:
					if !send(e) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

// event queues an event for the client, or drops it when that does not read.
func (c *client) event(e verbs.AsyncEvent) {
	select {
	case c.events <- e:
	default:
		c.lost.Add(1)
	}
}

// finish cuts the client off, after the events that wait for it.
func (c *client) finish() { c.once.Do(func() { close(c.left) }) }

// concerns reports whether an event is about something of the client's, or about
// the whole device.
func (c *client) concerns(e verbs.AsyncEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case verbs.EventCQErr:
		return c.queues[object{verbs.KindCQ, e.CQ}]
	case verbs.EventSRQErr, verbs.EventSRQLimit:
		return c.queues[object{verbs.KindSRQ, e.SRQ}]
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst, verbs.EventSQDrained, verbs.EventLastWQE:
		return c.qpns[e.QPN]
	}
	return true
}

// order is the order in which a client's objects are destroyed: whatever is made of
// others before those.
var order = []verbs.ObjectKind{verbs.KindQP, verbs.KindSRQ, verbs.KindAH, verbs.KindMW, verbs.KindMR, verbs.KindCQ, verbs.KindPD}

// teardown destroys all that the client had and returns how many objects that were.
func (c *client) teardown() (n int) {
	for _, k := range order {
		for o, t := range c.objects {
			if o.kind != k {
				continue
			}
			if err := c.destroy(o, t); err != nil && c.s.nic.Err() == nil {
				c.s.log.Error("destroying what a client left", "client", c.id, "kind", k, "err", err)
				// Its memory may be in use: it stays.
			}
			n++
		}
	}
	if c.nc != nil {
		if err := c.nc.Detach(); err != nil {
			c.s.log.Error("detaching a client", "client", c.id, "err", err)
			c.bells = nil // they may be in use
		}
	}
	if c.bells != nil {
		c.s.giveBack(c.bells)
	}
	c.s.mu.Lock()
	delete(c.s.clients, c.id)
	c.s.mu.Unlock()
	return n
}

// destroy destroys one object and gives its memory back.
func (c *client) destroy(o object, t *thing) error {
	if err := c.s.nic.Destroy(o.kind, t.h); err != nil && c.s.nic.Err() == nil {
		return err
	}
	delete(c.objects, o)
	c.mu.Lock()
	delete(c.qpns, t.qpn)
	delete(c.queues, o)
	c.mu.Unlock()
	if t.mem != nil {
		c.s.release(t.mem, o.kind == verbs.KindCQ)
	}
	c.s.give(c, t.costs)
	return nil
}

// release unmaps memory that no object of the device uses any more, once no step of
// it can be looking. The indexes of a completion ring go before what they are of, so
// that a client that is still polling does not take zeros for completions.
func (s *Server) release(mem []byte, comps bool) {
	s.nic.Barrier()
	if comps {
		if err := sys.Discard(mem[:sys.PageRound(1)]); err != nil {
			s.log.Error("indexes of a client's completion queue", "err", err)
		}
	}
	s.giveBack(mem)
}

// giveBack unmaps memory that was shared with a client. That may go on holding what
// it was given: the memory is taken from it, or limits would bound nothing. It is
// done in steps, and others go first after each: the device may wait for this
// processor.
func (s *Server) giveBack(mem []byte) {
	for len(mem) > 0 {
		n := min(len(mem), giveStep)
		if err := sys.Discard(mem[:n]); err != nil {
			s.log.Error("memory of a client", "octets", n, "err", err)
		}
		sys.Unmap(mem[:n])
		mem = mem[n:]
		sys.Yield()
	}
}

// giveStep is how much memory is given back in one go: about 50 us of work.
const giveStep = 256 << 10
