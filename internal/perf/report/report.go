package report

import (
	"io"
	"time"
)

// Test is what the header says of a run, and what decides the columns. Names
// are what perftest prints.
type Test struct {
	Verb   string // "Send", "RDMA_Write", "RDMA_Write_imm", "RDMA_Read", "Atomic"
	Atomic string // "FETCH_AND_ADD" or "CMP_AND_SWAP", of verb Atomic

	Latency  bool
	Both     bool // -b
	Post     int  // -l, post list; 0 or 1: none
	Events   bool // -e
	Duration time.Duration
	Infinite bool // --run_infinitely
	Server   bool

	Device     string // "rxe0"
	QPs        int
	Transport  string // "RC", "UC", "UD"
	SRQ        bool
	TxDepth    int
	RxDepth    int
	CQMod      int
	MTU        int // octets
	Inline     int // octets
	GIDIndex   int
	OutReads   int // of READ and atomics
	Validation bool
	Gbits      bool // --report_gbits
	NoPeak     bool // -N; perftest's peak column is then 0

	Size  uint64 // of JSON's parameters
	Iters uint64
}

// Address is a line of addresses.
type Address struct {
	LID       uint16
	QPN, PSN  uint32
	OutReads  int // READ
	RKey      uint32
	VAddr     uint64
	GID       [16]byte
	Multicast bool
}

// Bandwidth is the result of one size. Peak is 0 if it was not measured.
type Bandwidth struct {
	Size    uint64
	Iters   uint64
	Peak    float64 // octets a second
	Average float64 // octets a second
	Rate    float64 // messages a second
}

// Printer prints one run. It is for one goroutine.
type Printer struct{}

// New returns a printer of a test to w.
func New(w io.Writer, t Test) *Printer { return &Printer{} }

// Waiting prints the server's box of "Waiting for client to connect...".
func (p *Printer) Waiting() {}

// Header prints the block of parameters.
func (p *Printer) Header() {}

// Local and Remote print an address of one end; perftest prints all local ones
// first.
func (p *Printer) Local(a Address)  {}
func (p *Printer) Remote(a Address) {}

// Columns prints the head of the table.
func (p *Printer) Columns() {}

// BW prints a row of the bandwidth table. The run was bidirectional if remote
// is not nil; the row has then the sum of both.
func (p *Printer) BW(local Bandwidth, remote *Bandwidth) {}

// Second prints a row of --run_infinitely.
func (p *Printer) Second(b Bandwidth) {}

// Lat prints a row of the latency table.
func (p *Printer) Lat(s *Samples) {}

// End prints the closing line, and below it what perftest does not have.
func (p *Printer) End() {}

// Err returns the first error of the writer.
func (p *Printer) Err() error { return nil }

// WriteJSON writes perftest's report file (--out_json), with our percentiles
// under keys of their own.
func (p *Printer) WriteJSON(w io.Writer) error { return nil }

// Samples are the latencies of one size. Add does not allocate.
type Samples struct {
	Size  uint64
	Iters uint64
}

// NewSamples has room for n samples; what is kept is half the time of a round
// trip if half is true, as of SEND and WRITE.
func NewSamples(size uint64, n int, half bool) *Samples { return &Samples{} }

// Add records a round trip.
func (s *Samples) Add(d time.Duration) {}

// Progress rewrites one line of a terminal during runs over two seconds.
type Progress struct{}

// NewProgress returns one that writes to w, nothing if tty is false. total is
// in messages or 0.
func NewProgress(w io.Writer, tty bool, total uint64) *Progress { return &Progress{} }

// Update may rewrite the line, at most five times a second.
func (p *Progress) Update(now time.Time, messages, octets uint64) {}

// Done erases the line.
func (p *Progress) Done() {}
