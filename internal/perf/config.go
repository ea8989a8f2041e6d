package perf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// Config is a run of one of perftest's tools; zero values are not defaults: see
// Default. Fields that have an option say which in their comment.
type Config struct {
	Kind      oob.Kind
	Peer      string       // host name or address of the server; empty to be the server
	Port      int          // -p, TCP port of the exchange
	IBPort    int          // -i, 1
	GIDIndex  int          // -x; -1: the one that reaches the peer
	Transport verbs.QPType // -c

	Size     int           // -s, octets of a message
	Fit      bool          // Size is nobody's choice: a datagram longer than the path MTU is cut to it
	All      bool          // -a, sizes 2, 4 ... 2^23
	Iters    int           // -n, messages on each queue pair
	Duration time.Duration // -D; 0: Iters messages
	Margin   time.Duration // -f, of Duration at each end that is not measured; -1: a quarter
	Infinite bool          // --run_infinitely: a row every Duration, until interrupted
	Both     bool          // -b, bidirectional

	QPs      int  // -q
	TxDepth  int  // -t, sends outstanding on a queue pair
	RxDepth  int  // -r, receives posted on a queue pair, or on the SRQ
	PostList int  // -l, sends posted at a time
	CQMod    int  // -Q, sends for each completion; 0: 100, or 1 for large messages
	MTU      int  // -m, path MTU; 0: the port's
	Inline   int  // -I, largest message that is copied when it is posted
	OutReads int  // -o, READs and atomics outstanding; 0: what the device can do
	Events   bool // -e, sleep for completions
	SRQ      bool // --use-srq
	WriteImm bool // --write_with_imm
	CmpSwap  bool // -A CMP_AND_SWAP

	QPTimeout  int    // -u, 4.096 us * 2^this
	RetryCount int    // --retry_count
	SL         int    // -S
	TClass     int    // --tclass
	RateLimit  uint32 // --rate_limit, kb/s of IP packets, of each queue pair; 0: none

	NoPeak     bool   // -N
	Gbits      bool   // --report_gbits
	ReportBoth bool   // --report-both
	Histogram  bool   // -H
	Unsorted   bool   // -U
	JSON       string // --out_json_file; "": none

	Check bool // compare every octet; both ends must be of this package

	// Timeout is how long the peer may be silent, in each step of the exchange
	// and while it owes messages.
	Timeout time.Duration
	Faults  string // rules that break traffic on purpose, which errors then name

	// Device is the device to use, which stays the caller's. Without one, Open
	// opens it once the local address is known that the TCP connection has.
	Device *verbs.Context
	Open   func(local netip.Addr) (*verbs.Context, error)

	peakless bool // NoPeak was not asked for

	// conn is an open connection to have instead of Port, for tests.
	conn net.Conn
	// spoil may change message k after its octets were made, for tests.
	spoil func(message []byte, k uint64)

	// Ready, if set, is called with the port when a server listens.
	Ready func(port int)
	Out   io.Writer
	// Progress is the terminal for a line that tells how far a run is, or nil.
	Progress io.Writer
}

// Default returns a tool's defaults, which are perftest's.
func Default(k oob.Kind) Config {
	c := Config{
		Kind: k, Port: oob.DefaultPort, IBPort: 1, GIDIndex: -1, Transport: verbs.RC,
		Size: 65536, Iters: 1000, Margin: -1, QPs: 1, TxDepth: 128, RxDepth: defaultRx, PostList: 1,
		QPTimeout: 14, RetryCount: 7, Timeout: time.Minute,
	}
	if k == oob.WriteBW {
		c.Iters = 5000
	}
	if k.Latency() {
		c.Size, c.TxDepth = 2, 1
	}
	if atomics(k) {
		c.Size = 8
	}
	return c
}

// perftest's constants, of its perftest_parameters.h.
const (
	defaultRx    = 512
	lossyRx      = 8192 // receives where a message without one is lost
	leastIters   = 5
	mostIters    = 100_000_000
	mostQPs      = 16384
	mostPeak     = 20000 // messages for which a peak is sought
	defaultCQMod = 100
	largeForMod  = 8192 // octets from which each message has its completion
	maxSize      = 8 << 20
	grh          = 40 // octets in front of a UD message
)

func atomics(k oob.Kind) bool { return k == oob.AtomicBW || k == oob.AtomicLat }
func reads(k oob.Kind) bool   { return k == oob.ReadBW || k == oob.ReadLat }
func writes(k oob.Kind) bool  { return k == oob.WriteBW || k == oob.WriteLat }

// messages reports whether what is sent uses up receive requests.
func (c *Config) messages() bool { return c.Kind.Send() || c.WriteImm }

func (c *Config) server() bool { return c.Peer == "" }

// timed reports whether a clock ends the run and not a count.
func (c *Config) timed() bool { return c.Duration > 0 || c.Infinite }

// lossy reports whether a message may never arrive.
func (c *Config) lossy() bool { return c.Transport != verbs.RC }

// complete checks the options and settles those that others decide, as
// perftest's force_dependecies does. Its errors name the option and say what to
// give instead.
func (c *Config) complete() error {
	for _, check := range []func() error{c.checkTransport, c.checkSizes, c.checkTime, c.checkDepths, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkTransport() error {
	switch {
	case c.Transport == verbs.UD && !c.Kind.Send():
		return fmt.Errorf("-c UD: datagrams only carry SEND; %s needs -c RC%s", c.Kind, either(writes(c.Kind), " or UC"))
	case c.Transport == verbs.UC && !c.Kind.Send() && !writes(c.Kind):
		return fmt.Errorf("-c UC: it has no READ and no atomics; %s needs -c RC", c.Kind)
	case c.WriteImm && !writes(c.Kind):
		return fmt.Errorf("--write_with_imm: it is an option of write_bw and write_lat, this is %s", c.Kind)
	case c.SRQ && !c.Kind.Send():
		return fmt.Errorf("--use-srq: it is an option of send_bw and send_lat, this is %s, which posts no receives", c.Kind)
	case c.CmpSwap && !atomics(c.Kind):
		return fmt.Errorf("-A: it is an option of atomic_bw and atomic_lat, this is %s", c.Kind)
	case c.Both && c.Kind.Latency():
		return fmt.Errorf("-b: it is an option of the bandwidth tools; %s goes both ways by itself", c.Kind)
	case c.Check && c.Transport == verbs.UC && c.Kind == oob.WriteBW:
		return errors.New("--check: UC loses WRITEs without a word, so that what is in memory proves nothing; check send_bw -c UC, or write_bw over RC")
	case c.Check && c.WriteImm && c.Kind == oob.WriteBW:
		return errors.New("--check: a WRITE with immediate data may be overwritten before it was compared; leave out --write_with_imm, or check write_lat")
	}
	return nil
}

func either(b bool, s string) string {
	if b {
		return s
	}
	return ""
}

func (c *Config) checkSizes() error {
	if c.All {
		c.Size = maxSize
		if c.Transport == verbs.UD {
			c.Size = 4096 // settled when the path MTU is known
		}
	}
	switch {
	case atomics(c.Kind) && c.All:
		return errors.New("-a: an atomic has 8 octets; there are no other sizes")
	case atomics(c.Kind) && c.Size != 8:
		return fmt.Errorf("-s %d: an atomic has 8 octets; leave -s out", c.Size)
	case c.Size < 1 || c.Size > verbs.MaxMessage:
		return fmt.Errorf("-s %d: a message has 1 to %d octets", c.Size, verbs.MaxMessage)
	case c.MTU != 0 && !verbs.MTU(c.MTU).Valid():
		return fmt.Errorf("-m %d: a path MTU is 256, 512, 1024, 2048 or 4096%s", c.MTU, either(c.MTU > 4096, fmt.Sprintf("; the length of a message is -s: -s %d", c.MTU)))
	case c.Transport == verbs.UD && c.MTU != 0 && c.Size > c.MTU && !c.All && !c.Fit:
		return fmt.Errorf("-s %d: a datagram has at most a path MTU of octets, -m %d; give -s %[2]d or less, or use -c RC", c.Size, c.MTU)
	}
	return nil
}

func (c *Config) checkTime() error {
	if c.Infinite {
		if c.Duration == 0 {
			c.Duration = 10 * time.Second
		}
		switch {
		case c.Kind.Latency():
			return fmt.Errorf("--run_infinitely: it is an option of the bandwidth tools, this is %s; -D runs it for a time", c.Kind)
		case c.Both && c.messages():
			return fmt.Errorf("--run_infinitely: not with -b in %s, as in perftest; leave one of them out", c.Kind)
		}
	}
	if !c.timed() {
		switch {
		case c.Iters < leastIters:
			return fmt.Errorf("-n %d: at least %d messages, as in perftest", c.Iters, leastIters)
		case c.Iters > mostIters:
			return fmt.Errorf("-n %d: at most %d messages; -D runs for a time instead", c.Iters, mostIters)
		}
		return nil
	}
	opt := either(c.Infinite, "--run_infinitely") + either(!c.Infinite, "-D")
	switch {
	case c.Duration < 0:
		return fmt.Errorf("-D %v: a time is above 0", c.Duration)
	case c.Events:
		return fmt.Errorf("%s: not with -e, as in perftest; leave one of them out", opt)
	case c.All:
		return fmt.Errorf("%s: not with -a, as in perftest; give one size with -s", opt)
	}
	if c.Margin < 0 {
		c.Margin = c.Duration / 4
		if c.Duration >= time.Second {
			c.Margin = c.Margin.Truncate(time.Second)
		}
	}
	if !c.Infinite && c.Duration <= 2*c.Margin {
		return fmt.Errorf("-f %v: nothing is left of -D %v between two margins; make -D longer or -f shorter", c.Margin, c.Duration)
	}
	return nil
}

func (c *Config) checkDepths() error {
	depth := func(opt string, v, most int) error {
		if v < 1 || v > most {
			return fmt.Errorf("%s %d: 1 to %d are possible", opt, v, most)
		}
		return nil
	}
	if err := errors.Join(depth("-q", c.QPs, mostQPs), depth("-t", c.TxDepth, verbs.MaxQPWR), depth("-r", c.RxDepth, verbs.MaxQPWR), depth("-l", c.PostList, verbs.MaxQPWR)); err != nil {
		return err
	}
	if c.Kind.Latency() {
		for _, o := range []struct {
			name  string
			wrong bool
		}{{"-q", c.QPs > 1}, {"-l", c.PostList > 1}, {"-t", c.TxDepth > 1}} {
			if o.wrong {
				return fmt.Errorf("%s: %s has one message under way at a time; it is an option of the bandwidth tools", o.name, c.Kind)
			}
		}
	}
	if c.PostList > 1 && !c.timed() && c.Iters%c.PostList != 0 {
		return fmt.Errorf("-l %d: -n %d must be a multiple of it: -n %d", c.PostList, c.Iters, (c.Iters/c.PostList+1)*c.PostList)
	}
	if c.PostList > c.TxDepth {
		return fmt.Errorf("-l %d: a list longer than the send queue is never posted; give -t %[1]d or more", c.PostList)
	}
	if c.SRQ && c.QPs > c.RxDepth {
		return fmt.Errorf("--use-srq: the SRQ needs a receive for each queue pair: -r %d or more", c.QPs)
	}
	if !c.timed() {
		c.TxDepth = max(min(c.TxDepth, c.Iters), c.PostList)
		if c.lossy() && c.RxDepth == defaultRx {
			c.RxDepth = lossyRx
		}
		if !c.SRQ {
			c.RxDepth = min(c.RxDepth, c.Iters)
		}
	}
	if n := c.completions(); n > verbs.MaxCQE {
		return fmt.Errorf("-q %d: with -t %d%s that is more than the %d requests a completion queue holds; give less of one of them",
			c.QPs, c.TxDepth, either(c.messages(), fmt.Sprintf(" and -r %d", c.RxDepth)), verbs.MaxCQE)
	}
	return c.settleCQMod()
}

// completions is how many requests can be complete at a time.
func (c *Config) completions() int {
	n := c.QPs*c.TxDepth + 2*noticeSlots
	switch {
	case c.SRQ:
		n += c.RxDepth
	case c.messages():
		n += c.QPs * c.RxDepth
	}
	return n
}

// settleCQMod decides how many sends have one completion.
func (c *Config) settleCQMod() error {
	asked := c.CQMod != 0
	if c.CQMod < 0 {
		return fmt.Errorf("-Q %d: a completion for each so many sends, at least 1", c.CQMod)
	}
	if !asked {
		c.CQMod = defaultCQMod
		if c.Size > largeForMod && !c.All && !c.Events && c.Transport != verbs.UD {
			c.CQMod = 1
		}
		if c.PostList > 1 {
			c.CQMod = c.PostList
		}
	}
	c.CQMod = min(c.CQMod, c.TxDepth)
	if c.PostList > 1 && c.PostList%c.CQMod != 0 {
		return fmt.Errorf("-Q %d: -l %d must be a multiple of it", c.CQMod, c.PostList)
	}
	return nil
}

func (c *Config) checkRest() error {
	lowest := 1
	if c.server() || c.conn != nil {
		lowest = 0 // any free port
	}
	switch {
	case c.Port < lowest || c.Port > 65535:
		return fmt.Errorf("-p %d: a TCP port is 1 to 65535", c.Port)
	case c.IBPort != 1:
		return fmt.Errorf("-i %d: the device has one port, 1", c.IBPort)
	case c.GIDIndex < -1:
		return fmt.Errorf("-x %d: a GID index is 0 or more, or -1 for the one that reaches the peer", c.GIDIndex)
	case c.Inline < 0 || c.Inline > verbs.MaxInline:
		return fmt.Errorf("-I %d: at most %d octets go inline", c.Inline, verbs.MaxInline)
	case c.OutReads < 0 || c.OutReads > verbs.MaxRdAtomic:
		return fmt.Errorf("-o %d: 1 to %d READs and atomics can be outstanding", c.OutReads, verbs.MaxRdAtomic)
	case c.OutReads > 0 && !reads(c.Kind) && !atomics(c.Kind):
		return fmt.Errorf("-o: it is an option of READ and atomics, this is %s", c.Kind)
	case c.QPTimeout < 0 || c.QPTimeout > 31:
		return fmt.Errorf("-u %d: the timeout of a queue pair is a code 0 to 31, 4.096 us * 2^code (14 is 67 ms); a time to run for is -D", c.QPTimeout)
	case c.RetryCount < 0 || c.RetryCount > 7:
		return fmt.Errorf("--retry_count %d: 0 to 7", c.RetryCount)
	case c.SL < 0 || c.SL > 7:
		return fmt.Errorf("-S %d: a service level is 0 to 7 on Ethernet, where it is the priority of a VLAN tag", c.SL)
	case c.RateLimit != 0 && c.Kind.Latency():
		return fmt.Errorf("--rate_limit: it is an option of the bandwidth tools, this is %s", c.Kind)
	case c.TClass < 0 || c.TClass > 255:
		return fmt.Errorf("--tclass %d: an octet, 0 to 255 (DSCP and ECN)", c.TClass)
	case c.Events && writes(c.Kind) && !c.WriteImm:
		return errors.New("-e: not with WRITE, which its target has no completions of, as in perftest")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout %v: it must be above 0", c.Timeout)
	}
	if c.timed() || c.Kind.Latency() || c.Iters > mostPeak || c.messages() && c.server() && !c.Both {
		c.peakless = !c.NoPeak && !c.Kind.Latency()
		c.NoPeak = true
	}
	return nil
}

// RateKbps turns --rate_limit with its --rate_units into kb/s, as perftest 6 does: M
// is MiB/s, g Gb/s. Its third unit, p for packets a second, no NIC can do.
func RateKbps(limit float64, units string) (uint32, error) {
	kbps := limit
	switch units {
	case "M":
		kbps *= 8 << 20 / 1e3
	case "g":
		kbps *= 1e6
	case "p":
		return 0, errors.New("--rate_units p: a NIC, this one too, keeps octets a second, not packets; give M (MiB/s) or g (Gb/s)")
	default:
		return 0, fmt.Errorf("--rate_units %s: there are M (MiB/s) and g (Gb/s)", units)
	}
	if !(kbps >= 1 && kbps <= math.MaxUint32) {
		return 0, fmt.Errorf("--rate_limit %v: it takes a rate from 1 kb/s to 4294 Gb/s; --rate_units M or g is its unit", limit)
	}
	return uint32(math.Round(kbps)), nil
}

// ParseTransport reads -c.
func ParseTransport(s string) (verbs.QPType, error) {
	switch s {
	case "RC":
		return verbs.RC, nil
	case "UC":
		return verbs.UC, nil
	case "UD":
		return verbs.UD, nil
	case "XRC", "DC", "SRD", "RawEth":
		return 0, fmt.Errorf("this device has no %s; there are RC, UC and UD", s)
	}
	if up := strings.ToUpper(s); up != s {
		if t, err := ParseTransport(up); err == nil {
			return t, nil
		}
	}
	return 0, errors.New("a connection type is RC, UC or UD")
}
