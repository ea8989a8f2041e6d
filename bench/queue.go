package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/verbs"
)

// How long a small message waits in a daemon beside a client that sends all it can.
// Both are attached to one rxed; the small one writes, now and then, what time it is
// into the other end's memory. A capture, with the kernel's time stamps, then tells how
// many super-packets of the bulk left between that time and the message, which is its
// wait in the daemon's queue, and how long it took, which on two processors for four
// busy threads is also the wait for one of those. The unit of time is what a
// super-packet takes at the rate that the bulk had meanwhile.

// stampLen is the payload of a probe: its number and the time it was posted.
const stampLen = 16

// superPacket is how many octets a burst of bulk carries: 15 packets of 4096.
const superPacket = 15 * 4096

// probe posts a message, waits until it is done, and rests.
func (e *end) probe() (samples, error) {
	if e.Server {
		var last hello
		return nil, e.in.Decode(&last) // the other end's WRITEs need nobody here
	}
	var stamp [stampLen]byte
	wr := []verbs.SendWR{{Opcode: verbs.WRWrite, Inline: stamp[:], RemoteAddr: e.peer.Addr + uint64(e.Region), RKey: e.peer.RKey, Flags: verbs.SendInline | verbs.SendSignaled}}
	n := uint64(0)
	for start := time.Now(); time.Since(start) < e.Time; n++ {
		time.Sleep(e.Think)
		binary.BigEndian.PutUint64(stamp[:], n)
		binary.BigEndian.PutUint64(stamp[8:], uint64(time.Now().UnixNano()))
		if _, err := e.qps[0].PostSend(wr); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), stuck)
		var wc [1]verbs.WC
		_, err := e.cq.Wait(ctx, wc[:])
		cancel()
		if err == nil {
			err = wc[0].Err()
		}
		if err != nil {
			return nil, err
		}
	}
	return samples{"probes": float64(n)}, e.out.Encode(hello{})
}

// queueing runs bulk and probes through one daemon.
func queueing(o *options, name string) program {
	return program{name: name, deb: "tcpdump", cmd: "tcpdump", run: func(ctx context.Context, b *bed) (samples, error) {
		got, err := b.queueing(ctx, o)
		if err != nil {
			return nil, err
		}
		named := samples{}
		for k, v := range got {
			named[name+"."+k] = v
		}
		return named, nil
	}}
}

func (b *bed) queueing(ctx context.Context, o *options) (got samples, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.d+margin)
	defer cancel()
	p := bed9000
	sockets := map[string]string{}
	for _, ns := range []string{b.a, b.b} {
		var j job
		stop, err := b.daemon(ctx, p, ns, &j)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		sockets[ns] = j.Socket
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, "probes.pcap")
	dump := p.in(ctx, b.a, "tcpdump", "-q", "-i", p.iface, "-Q", "out", "--time-stamp-precision=nano", "-B", "65536", "-s", "128", "-w", file, "udp port 4791")
	ended, err := started(dump)
	if err != nil {
		return nil, err
	}
	type result struct {
		out []byte
		err error
	}
	run := func(j job) <-chan result {
		c := make(chan result, 1)
		j.Interface, j.Peer, j.Time = p.iface, p.server, o.d
		cmd := func(ns string, server bool) *exec.Cmd {
			j.Server, j.Socket = server, sockets[ns]
			text, _ := json.Marshal(j) // of plain fields
			return p.in(ctx, ns, self, "-end", string(text))
		}
		server, client := cmd(b.b, true), cmd(b.a, false)
		go func() {
			out, err := both(server, client, false)
			c <- result{out, err}
		}()
		return c
	}
	bulk := run(job{Op: "write", Size: 1 << 20})
	small := run(job{Op: "probe", Size: stampLen, Port: benchPort + 1, Think: 300 * time.Microsecond})
	rb, rs := <-bulk, <-small
	_ = dump.Process.Signal(syscall.SIGINT)
	if err := errors.Join(rb.err, rs.err, <-ended); err != nil {
		return nil, err
	}
	var figures samples
	if err := json.Unmarshal(rb.out, &figures); err != nil {
		return nil, err
	}
	delays, ahead, err := stamps(file)
	if err != nil {
		return nil, err
	}
	unit := superPacket * 8 / figures[""] // nanoseconds
	at := func(l []time.Duration, q float64) float64 { return float64(l[int(q*float64(len(l)-1))]) }
	return samples{
		"ahead.p50": at(ahead, 0.5), "ahead.p99": at(ahead, 0.99), "ahead.p999": at(ahead, 0.999),
		"time.p50": at(delays, 0.5) / unit, "time.p99": at(delays, 0.99) / unit,
		"unit_us": unit / 1000, "gbits": figures[""], "probes": float64(len(delays)),
	}, nil
}

// started starts a capture and returns when it captures; the channel gives how it
// ended.
func started(dump *exec.Cmd) (<-chan error, error) {
	errs, err := dump.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := dump.Start(); err != nil {
		return nil, err
	}
	line := make([]byte, 4096)
	if _, err := errs.Read(line); err != nil { // "listening on eth0"
		return nil, fmt.Errorf("tcpdump: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := errs.Read(line); err != nil {
				break
			}
		}
		ended <- dump.Wait()
	}()
	return ended, nil
}

// stamps returns how long probes took until they left, and how many super-packets
// left meanwhile, each ascending, without those of the first tenth.
func stamps(file string) (delays, ahead []time.Duration, err error) {
	r, err := pcap.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	const header, icrc = 14 + 20 + 8 + 12 + 16, 4 // Ethernet to RETH
	var bulk []int64                              // when super-packets left
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		at := f.Time.UnixNano()
		switch {
		case f.Len > superPacket/2:
			bulk = append(bulk, at)
		case len(f.Data) == header+stampLen+icrc:
			posted := int64(binary.BigEndian.Uint64(f.Data[header+8:]))
			first, _ := slices.BinarySearch(bulk, posted)
			delays = append(delays, time.Duration(at-posted))
			ahead = append(ahead, time.Duration(len(bulk)-first))
		}
	}
	if len(delays) < 100 || len(bulk) < 100 {
		return nil, nil, fmt.Errorf("only %d probes and %d super-packets were captured", len(delays), len(bulk))
	}
	delays, ahead = delays[len(delays)/10:], ahead[len(ahead)/10:]
	slices.Sort(delays)
	slices.Sort(ahead)
	return delays, ahead, nil
}

// address is where the two ends of a job meet.
func (j *job) address(host string) string {
	port := j.Port
	if port == 0 {
		port = benchPort
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}
