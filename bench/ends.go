package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// end is one side of a measurement, run in a process of its own.
type end struct {
	server bool
	peer   string // address of the server
	link   string
	op     string // write, send or read
	size   int
	window int // requests outstanding
	d      time.Duration
}

const (
	benchPort = 18599
	region    = 1 << 20
)

// hello is what the two ends tell each other.
type hello struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     uint32
}

// report is what the client prints.
type report struct {
	Gbits    float64           `json:"gbits"`
	Counters map[string]uint64 `json:"counters"`
	Peer     map[string]uint64 `json:"peer"`
}

func (e *end) run() error {
	conn, err := e.meet()
	if err != nil {
		return err
	}
	defer conn.Close()
	talk := &talk{json.NewEncoder(conn), json.NewDecoder(conn)}
	dev, err := gorxe.Open(gorxe.Config{Interface: "eth0", Link: e.link})
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.AllocMR(max(region, e.size), verbs.AccessAll)
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{Depth: 1024})
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256}})
	if err != nil {
		return err
	}
	local, err := qp.Endpoint(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	if err != nil {
		return err
	}
	peer, err := talk.swap(hello{local, mr.Addr(), mr.RKey()})
	if err != nil {
		return err
	}
	if err := qp.Connect(local, peer.Endpoint, verbs.ConnectOptions{}); err != nil {
		return err
	}
	if e.server == (e.op == "read") { // whose data travel
		for i := range mr.Bytes() {
			mr.Bytes()[i] = byte(i*131 + i>>8)
		}
	}
	// Both ends are up before anything is sent.
	if _, err := talk.swap(hello{}); err != nil {
		return err
	}
	if e.server {
		return e.serve(talk, dev, cq, mr)
	}
	gbits, err := e.drive(cq, qp, mr, peer)
	if err != nil {
		return err
	}
	r := report{Gbits: gbits}
	if r.Counters, err = dev.Counters(); err != nil {
		return err
	}
	if err = talk.out.Encode(crc32.ChecksumIEEE(mr.Bytes()[:e.size])); err != nil {
		return err
	}
	if err = talk.in.Decode(&r.Peer); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (e *end) meet() (net.Conn, error) {
	if e.server {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", benchPort))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.Accept()
	}
	var err error
	for range 100 {
		var c net.Conn
		if c, err = net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(e.peer), benchPort).String()); err == nil {
			return c, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
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

// serve drives the responder until the client has finished, then says what it
// counted and whether the data are the client's.
func (e *end) serve(t *talk, dev *verbs.Context, cq *verbs.CQ, mr *verbs.MR) error {
	done := make(chan error, 1)
	var want uint32
	go func() { done <- t.in.Decode(&want) }()
	var wc [16]verbs.WC
	for {
		cq.Poll(wc[:])
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			if got := crc32.ChecksumIEEE(mr.Bytes()[:e.size]); got != want {
				return errors.New("data differ at the two ends")
			}
			c, err := dev.Counters()
			if err != nil {
				return err
			}
			return t.out.Encode(c)
		default:
		}
	}
}

// stuck is how long after the time the last requests may take.
const stuck = 10 * time.Second

// drive keeps window requests outstanding for the time and returns Gbit/s of
// payload.
func (e *end) drive(cq *verbs.CQ, qp *verbs.QP, mr *verbs.MR, peer hello) (float64, error) {
	code := map[string]verbs.WROpcode{"write": verbs.WRWrite, "read": verbs.WRRead}[e.op]
	wr := []verbs.SendWR{{Opcode: code, SGL: []verbs.SGE{mr.SGE(0, e.size)}, RemoteAddr: peer.Addr, RKey: peer.RKey, Flags: verbs.SendSignaled}}
	var wc [16]verbs.WC
	start := time.Now()
	posted, done := 0, 0
	for time.Since(start) < e.d || done < posted {
		for posted-done < e.window && time.Since(start) < e.d {
			if _, err := qp.PostSend(wr); err != nil {
				return 0, err
			}
			posted++
		}
		n := cq.Poll(wc[:])
		if n == 0 && time.Since(start) > e.d+stuck {
			return 0, fmt.Errorf("%d of %d requests are not finished %v after the end", posted-done, posted, stuck)
		}
		for i := range wc[:n] {
			if err := wc[i].Err(); err != nil {
				return 0, err
			}
		}
		done += n
	}
	return float64(done) * float64(e.size) * 8 / time.Since(start).Seconds() / 1e9, nil
}
