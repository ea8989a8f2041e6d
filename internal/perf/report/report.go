package report

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

// Test is what the header says of a run, and what decides the columns. Names
// are what perftest prints.
type Test struct {
	Verb   string // "Send", "RDMA_Write", "RDMA_Write_imm", "RDMA_Read", "Atomic"
	Atomic string // "FETCH_AND_ADD" or "CMP_AND_SWAP", of verb Atomic

	Latency    bool
	Both       bool // -b
	Post       int  // -l, post list; 0 or 1: none
	Events     bool // -e
	Multicast  bool // -g
	Duration   time.Duration
	Infinite   bool // --run_infinitely
	Server     bool
	Histogram  bool // -H, latency: all samples in order of size
	Unsorted   bool // -U, latency: all samples as they came
	Device     string
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
	Gbits      bool
	NoPeak     bool // -N; perftest's peak column is then 0
	Size       uint64
	Iters      uint64
	Validation bool
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
type Printer struct {
	w    *bufio.Writer
	t    Test
	rows []row // for JSON
	err  error
}

// New returns a printer of a test to w.
func New(w io.Writer, t Test) *Printer { return &Printer{w: bufio.NewWriter(w), t: t} }

// Err returns the first error of the writer.
func (p *Printer) Err() error { return p.err }

const line = "---------------------------------------------------------------------------------------\n"

// print writes at once: a reader at a pipe follows the run.
func (p *Printer) print(format string, a ...any) {
	fmt.Fprintf(p.w, format, a...)
	if err := p.w.Flush(); p.err == nil {
		p.err = err
	}
}

// Waiting prints the server's box.
func (p *Printer) Waiting() {
	p.print("\n************************************\n* Waiting for client to connect... *\n************************************\n")
}

// Say prints a line between others, as perftest does: with a space before it.
func (p *Printer) Say(text string) { p.print(" %s\n", text) }

// Stopped says that the user ended --run_infinitely.
func (p *Printer) Stopped() { p.print("\n User stopped traffic\n") }

// Columns prints the head of the table. The servers of READ and atomic latency
// have none.
func (p *Printer) Columns() {
	if p.t.tableless() {
		return
	}
	p.print("%s%s", line, p.t.head())
}

func (t *Test) tableless() bool { return t.Latency && t.Server && t.reads() }

// reads reports whether requests use up max_rd_atomic.
func (t *Test) reads() bool { return t.Verb == "RDMA_Read" || t.Verb == "Atomic" }

// messages reports whether requests take receive requests.
func (t *Test) messages() bool { return t.Verb == "Send" || t.Verb == "RDMA_Write_imm" }

func (t *Test) head() string {
	switch {
	case t.Latency && t.Duration > 0:
		return " #bytes        #iterations       t_avg[usec]    tps average" + headPercentiles + "\n"
	case t.Latency:
		return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] " + headPercentiles + "\n"
	case t.Gbits:
		return " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
	}
	return " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
}

// unit is what bandwidth is counted in, in octets a second.
func (t *Test) unit() float64 {
	if t.Gbits {
		return 1e9 / 8
	}
	return 1 << 20
}

// BW prints a row of the bandwidth table: of the sum of both ends if remote is
// not nil, as bidirectional tests do.
func (p *Printer) BW(local Bandwidth, remote *Bandwidth) {
	u := p.t.unit()
	r := row{size: local.Size, iters: local.Iters, fine: p.t.Gbits && local.Average/u < 0.1}
	peak, avg, rate := local.Peak, local.Average, local.Rate
	if remote != nil {
		peak, avg, rate = peak+remote.Peak, avg+remote.Average, rate+remote.Rate
	}
	r.peak, r.avg, r.rate = peak/u, avg/u, rate/1e6
	p.rows = append(p.rows, r)
	format := " %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f\n"
	if r.fine {
		format = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n"
	}
	p.print(format, r.size, r.iters, r.peak, r.avg, r.rate)
}

// Second prints a row of --run_infinitely.
func (p *Printer) Second(b Bandwidth) {
	p.BW(b, nil)
	p.rows = p.rows[len(p.rows)-1:] // they never end
}

// Apart prints both ends' results in tables of their own, as --report-both
// does after their sum. JSON keeps the sum.
func (p *Printer) Apart(local, remote Bandwidth) {
	rows := p.rows
	p.print("%s\n Local results: \n%s%s", line, line, p.t.head())
	p.BW(local, nil)
	p.print("%s\n Remote results: \n%s%s", line, line, p.t.head())
	p.BW(remote, nil)
	p.rows = rows
}

// Lat prints a row of the latency table, with all samples before it if the
// test asks for them. Without a sample there is no row.
func (p *Printer) Lat(s *Samples) {
	if s == nil || s.count == 0 {
		return
	}
	l := s.summary()
	p.lat(s.Size, &l)
}

func (p *Printer) lat(size uint64, l *latency) {
	p.rows = append(p.rows, row{size: size, iters: l.iters, lat: l})
	if p.t.Duration > 0 {
		p.print(" %-7d       %d            %-7.2f        %-7.2f%s\n", size, l.iters, l.avg, l.tps, l.columns())
		return
	}
	if p.t.Unsorted {
		p.samples(l.unsorted)
	}
	if p.t.Histogram {
		p.samples(l.sorted)
	}
	if p.t.Unsorted || p.t.Histogram {
		p.Columns()
	}
	p.print(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f%s\n",
		size, l.iters, l.min, l.max, l.typical, l.avg, l.stdev, l.p99, l.p999, l.columns())
}

func (p *Printer) samples(us []float64) {
	p.print("#, usec\n")
	for i, x := range us {
		p.print("%d, %s\n", i+1, g6(x))
	}
}

// End prints the closing line.
func (p *Printer) End() { p.print("%s", line) }
