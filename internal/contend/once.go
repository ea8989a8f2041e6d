package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// process is an end that runs.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	r   *json.Decoder
	w   *json.Encoder
}

func (p *place) start(ctx context.Context, ns string, o *orders) (*process, error) {
	c := p.command(ctx, ns, "contend", endFlag)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	e := &process{c, in, json.NewDecoder(out), json.NewEncoder(in)}
	return e, e.w.Encode(o)
}

// once is one experiment.
func (s *setting) once(ctx context.Context, p *place, e *experiment) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, e.For+60*time.Second)
	defer cancel()
	var reports bytes.Buffer
	direction := []string{"left", "right"}
	if e.Op == "read" {
		direction = []string{"right", "left"} // data goes to who asks
	}
	args := append([]string{"relay"}, direction...)
	args = append(args, "--rate", strconv.Itoa(s.rate), "--buffer", strconv.Itoa(s.buffer), "--kmin", strconv.Itoa(s.kmin), "--kmax", strconv.Itoa(s.kmax),
		"--pmax", s.pmax, "--mark", s.mark, "--delay", s.delay.String(), "--json", "--report", (e.For / 2).String())
	bottleneck := p.command(ctx, p.middle, "rxe", args...)
	bottleneck.Stdout, bottleneck.Stderr = &reports, nil
	said, err := bottleneck.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := bottleneck.Start(); err != nil {
		return nil, err
	}
	first, err := bufio.NewReader(said).ReadString('\n') // it forwards, or says why not
	go func() { _, _ = io.Copy(io.Discard, said) }()
	stop := func() error {
		_ = bottleneck.Process.Signal(os.Interrupt)
		return bottleneck.Wait()
	}
	var samples []sample
	var counts [2]map[string]uint64
	if err == nil {
		samples, counts, err = s.ends(ctx, p, e)
	}
	if e := stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	r := &result{e: e, samples: samples, counts: counts, rate: s.rate}
	for d := json.NewDecoder(&reports); ; {
		var one report
		if err := d.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what the relay says: %w", err)
		}
		r.reports = append(r.reports, one)
	}
	if len(r.reports) == 0 {
		return nil, fmt.Errorf("the relay reported nothing, it said: %s", first)
	}
	if s.verbose {
		r.show(os.Stdout)
	}
	return r, nil
}

// ends runs both, and returns the sender's samples and the counters of both.
func (s *setting) ends(ctx context.Context, p *place, e *experiment) (samples []sample, counts [2]map[string]uint64, err error) {
	o := orders{
		Link: s.link, Control: e.Control, Op: e.Op, Flows: e.Flows, Size: s.size, Depth: s.depth, For: e.For,
		Begin: make([]time.Duration, e.Flows), End: make([]time.Duration, e.Flows),
	}
	o.Begin[e.Flows-1], o.End[0] = e.Join, e.Leave
	var both [2]*process
	defer func() {
		for _, x := range both {
			if x != nil {
				_ = x.in.Close()
				if e := x.cmd.Wait(); err == nil && e != nil {
					err = e
				}
			}
		}
	}()
	for i, ns := range []string{p.sender, p.receiver} {
		o.Addr, o.Sends = addrs[i], i == 0
		if both[i], err = p.start(ctx, ns, &o); err != nil {
			return nil, counts, err
		}
	}
	var known [2][]remote
	for i, x := range both {
		if err := x.r.Decode(&known[i]); err != nil {
			return nil, counts, fmt.Errorf("end %d: %w", i, err)
		}
	}
	var ready string
	for i, x := range both {
		if err := x.w.Encode(known[1-i]); err != nil {
			return nil, counts, err
		}
		if err := x.r.Decode(&ready); err != nil {
			return nil, counts, fmt.Errorf("end %d: %w", i, err)
		}
	}
	for i := range both { // the receiver first
		if err := both[1-i].w.Encode("go"); err != nil {
			return nil, counts, err
		}
	}
	for {
		var one sample
		if err := both[0].r.Decode(&one); err != nil {
			return nil, counts, fmt.Errorf("the sender: %w", err)
		}
		samples = append(samples, one)
		if one.Counts != nil {
			counts[0] = one.Counts
			break
		}
	}
	if err := both[1].w.Encode("stop"); err != nil {
		return nil, counts, err
	}
	return samples, counts, both[1].r.Decode(&counts[1])
}
