package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// job is what one end does, in a process of its own.
type job struct {
	Op      string        // write, send, read: bandwidth; send_lat, write_lat: latency
	Size    int           // octets of a message
	Region  int           // octets that the messages cycle through (one message)
	Window  int           // messages outstanding (4)
	List    int           // messages in a list of requests (1)
	QPs     int           // connections (1)
	Active  int           // of them, those with traffic, in turn (all)
	Both    bool          // both ends send
	Blocked bool          // wait without polling
	Think   time.Duration // what the client does nothing for before each round trip
	MTU     int           // of the interface (9000)
	Link    string        // (udp)
	Faults  string        // at the end that takes
	Pinned  bool          // both ends on one processor
	CC      string        // congestion control, as gorxe.Config has it (DCQCN)
	Rxed    string        // who uses the device of a daemon: client, server or both (neither)

	// What the program adds.
	Server    bool
	Interface string
	Peer      string // address of the server
	Port      int    // TCP port where the ends meet (benchPort)
	Socket    string // of this end's daemon
	Time      time.Duration
	Profile   string
}

const benchPort = 18599

// hello is what the two ends tell each other.
type hello struct {
	Endpoints []verbs.Endpoint
	Addr      uint64
	RKey      uint32
	Gbits     float64
}

// end is one side of a measurement.
type end struct {
	job
	talk
	dev   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	qps   []*verbs.QP
	mr    *verbs.MR // what is sent, then what is received
	peer  hello
	perQP float64 // octets of heap
}

// talk is the connection over which the ends agree.
type talk struct {
	out *json.Encoder
	in  *json.Decoder
}

func (t *talk) swap(h hello) (p hello, err error) {
	if err = t.out.Encode(h); err != nil {
		return p, err
	}
	err = t.in.Decode(&p)
	return p, err
}

// run is the life of an end. The client's figures go to standard output.
func (j *job) run() error {
	j.Window, j.List, j.QPs, j.Region = max(j.Window, 0), max(j.List, 1), max(j.QPs, 1), max(j.Region, j.Size)
	if j.Window == 0 {
		j.Window = 4
	}
	if j.Active == 0 {
		j.Active = j.QPs
	}
	before := runtime.NumGoroutine()
	conn, err := j.meet()
	if err != nil {
		return err
	}
	if op := j.floors(); op != nil {
		got, err := j.floor(conn, op)
		if err != nil || j.Server {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(got)
	}
	e := &end{job: *j, talk: talk{json.NewEncoder(conn), json.NewDecoder(conn)}}
	got, err := e.work(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	conn.Close()
	if err != nil {
		return err
	}
	if n := left(before); n > 0 {
		return fmt.Errorf("%d goroutines are left after the device was closed", n)
	}
	if j.Server {
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// left returns how many goroutines are more than there were, once those that
// are ending have ended.
func left(before int) int {
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return runtime.NumGoroutine() - before
}

func (e *end) work(peer netip.Addr) (samples, error) {
	defer func() {
		if e.dev != nil {
			_ = e.dev.Close()
		}
	}()
	if err := e.open(peer); err != nil {
		return nil, err
	}
	// Both ends are up before anything is sent.
	if err := e.prepare(); err != nil {
		return nil, err
	}
	if _, err := e.swap(hello{}); err != nil {
		return nil, err
	}
	if e.Profile != "" {
		f, err := os.Create(e.Profile)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	switch e.Op {
	case "send_lat":
		return e.pingpong()
	case "write_lat":
		return e.watch()
	case "probe":
		return e.probe()
	}
	return e.bandwidth()
}

// open makes the device, the region and the connections.
func (e *end) open(peer netip.Addr) (err error) {
	cfg := gorxe.Config{Interface: e.Interface, CC: e.CC, Link: e.Link}
	if e.Server {
		cfg.Faults = e.Faults
	}
	if cfg.Link == "" {
		cfg.Link = "udp"
	}
	if e.Socket != "" {
		cfg = gorxe.Config{Daemon: e.Socket}
	} else {
		cfg.Daemon = gorxe.DaemonNever
	}
	if e.dev, err = gorxe.Open(cfg); err != nil {
		return err
	}
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	if e.mr, err = e.pd.AllocMR(2*e.Region, verbs.AccessAll); err != nil {
		return err
	}
	for i := range e.Region {
		e.mr.Bytes()[i] = pattern(i)
	}
	if e.cq, err = e.dev.CreateCQ(verbs.CQConfig{Depth: 4096}); err != nil {
		return err
	}
	depth := max(2*e.Window, 16)
	cap := verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 16}
	if e.QPs > 1 {
		cap.MaxSendWR, cap.MaxRecvWR = 4, 1
	}
	var mine hello
	heap := heapInUse()
	for range e.QPs {
		qp, err := e.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: cap})
		if err != nil {
			return err
		}
		local, err := qp.Endpoint(peer)
		if err != nil {
			return err
		}
		e.qps = append(e.qps, qp)
		mine.Endpoints = append(mine.Endpoints, local)
	}
	mine.Addr, mine.RKey = e.mr.Addr(), e.mr.RKey()
	if e.peer, err = e.swap(mine); err != nil {
		return err
	}
	if len(e.peer.Endpoints) != e.QPs {
		return fmt.Errorf("the other end has %d connections, this one %d", len(e.peer.Endpoints), e.QPs)
	}
	for i, qp := range e.qps {
		if err := qp.Connect(mine.Endpoints[i], e.peer.Endpoints[i], verbs.ConnectOptions{}); err != nil {
			return err
		}
	}
	if e.QPs > 1 {
		e.perQP = float64(heapInUse()-heap) / float64(e.QPs)
	}
	return nil
}

// heapInUse returns how many octets of heap are reachable.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (j *job) meet() (net.Conn, error) {
	if j.Server {
		l, err := net.Listen("tcp", j.address(""))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.Accept()
	}
	var err error
	for range 100 {
		var c net.Conn
		if c, err = net.Dial("tcp", j.address(j.Peer)); err == nil {
			return c, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// pattern is the octet at an offset of what is sent.
func pattern(i int) byte { return byte(i*131 + i>>8) }
