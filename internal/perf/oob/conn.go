package oob

import (
	"context"
	"errors"
	"net"

	"github.com/gorxe/gorxe/verbs"
)

var errTODO = errors.New("oob: being written")

// Dest is the address of a queue pair as perftest tells it. OutReads is how
// many READs and atomics it takes at once (max_dest_rd_atomic); RKey and VAddr
// are of the memory that the peer may write, read, or do atomics on.
type Dest struct {
	LID      uint16
	OutReads int
	QPN, PSN uint32
	RKey     uint32
	VAddr    uint64
	// ReadVAddr is the second address of --data_validation.
	ReadVAddr uint64
	GID       verbs.GID
	SRQN      uint32
}

// BWReport is one end's result of a bandwidth run. BWPeak and BWAvg are in
// MiB/s (2^20), or Gb/s (10^9 bits) with --report_gbits, MsgRate in millions
// of messages a second.
type BWReport struct {
	Size                   uint64
	Iters                  uint64
	BWPeak, BWAvg, MsgRate float64
}

// Peer is what Hello learns. MTU, CycleBuffer and CacheLine are the values
// that hold for both ends.
type Peer struct {
	Version                string
	MTU                    int
	CycleBuffer, CacheLine int
}

// Conn is a conversation. It is for one goroutine; what ends it early is the
// context of New.
type Conn struct{}

// Dial connects to the server host, an address or a name, at a TCP port.
func Dial(ctx context.Context, host string, port int, cfg Config) (*Conn, error) { return nil, errTODO }

// Listener waits for one client.
type Listener struct{}

// Listen opens the TCP port (0: any) at the address, or at all of them if addr
// is "".
func Listen(ctx context.Context, addr string, port int) (*Listener, error) { return nil, errTODO }

// Port returns the TCP port that is listened at.
func (l *Listener) Port() int { return 0 }

// Accept waits for a client for as long as it takes, and closes the listener.
func (l *Listener) Accept(ctx context.Context, cfg Config) (*Conn, error) { return nil, errTODO }

// Close ends the listener; a waiting Accept fails.
func (l *Listener) Close() error { return nil }

// New has the conversation on an open connection, which it owns from here on.
// When ctx ends, whatever step is waiting fails with its error.
func New(ctx context.Context, conn net.Conn, cfg Config) (*Conn, error) { return nil, errTODO }

// Hello exchanges versions, sizes of buffers, and path MTUs.
func (c *Conn) Hello() (Peer, error) { return Peer{}, errTODO }

// Exchange tells the peer the addresses of local queue pairs, one for each of
// Config.QPs, and returns the peer's. The queue pairs are connected next.
func (c *Conn) Exchange(local []Dest) ([]Dest, error) { return nil, errTODO }

// Connected tells the peer that the queue pairs are in RTS, and waits until
// its own are.
func (c *Conn) Connected() error { return errTODO }

// Begin comes before a run, with receive requests posted: where the tool has
// it, it returns when both ends are there.
func (c *Conn) Begin() error { return errTODO }

// End comes after a run that was not the last or that was bidirectional: after
// every run, with its result. A latency tool's result is not exchanged. The
// peer's result is valid if told is true.
func (c *Conn) End(local BWReport) (remote BWReport, told bool, err error) {
	return BWReport{}, false, errTODO
}

// Finish comes once, after the last End, with the last result, and closes the
// connection. A server of a unidirectional bandwidth test other than SEND has
// not run; it calls no Begin and no End, but Finish at once, which waits for
// the client to be done and returns its result.
func (c *Conn) Finish(local BWReport) (remote BWReport, told bool, err error) {
	return BWReport{}, false, errTODO
}

// Passive reports whether this end only serves memory: it goes from Connected
// to Finish, without runs.
func (c *Conn) Passive() bool { return false }

// Alive returns an error when the peer has closed the connection, which it
// otherwise would not notice during a run. It takes up to a millisecond; once
// a second is enough.
func (c *Conn) Alive() error { return nil }

// Close ends the conversation at any time. It may be called again.
func (c *Conn) Close() error { return nil }
