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
// into the other end's memory, and the time at which the packet left the host, by
// the kernel's stamp on a capture, tells the rest. The unit is what a super-packet of
// the bulk takes at the rate that it had meanwhile.

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
	dump := p.in(ctx, b.a, "tcpdump", "-q", "-i", p.iface, "-Q", "out", "--time-stamp-precision=nano", "-s", "128", "-w", file, "udp port 4791 and less 120")
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
	delays, err := stamps(file)
	if err != nil {
		return nil, err
	}
	unit := superPacket * 8 / figures[""] // nanoseconds
	at := func(q float64) float64 { return float64(delays[int(q*float64(len(delays)-1))]) / unit }
	return samples{"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "unit_us": unit / 1000, "gbits": figures[""], "probes": float64(len(delays))}, nil
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

// stamps returns how long probes took until they left, ascending, without those of
// the first tenth.
func stamps(file string) ([]time.Duration, error) {
	r, err := pcap.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const header, icrc = 14 + 20 + 8 + 12 + 16, 4 // Ethernet to RETH
	var out []time.Duration
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(f.Data) != header+stampLen+icrc {
			continue
		}
		posted := int64(binary.BigEndian.Uint64(f.Data[header+8:]))
		out = append(out, time.Duration(f.Time.UnixNano()-posted))
	}
	if len(out) < 100 {
		return nil, fmt.Errorf("only %d probes were captured", len(out))
	}
	out = out[len(out)/10:]
	slices.Sort(out)
	return out, nil
}

// address is where the two ends of a job meet.
func (j *job) address(host string) string {
	port := j.Port
	if port == 0 {
		port = benchPort
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}
