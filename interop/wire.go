package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
)

// seen is a packet of a capture, as tshark decoded it.
type seen struct {
	at     time.Duration // since some time
	opcode uint8
	to     uint32 // queue pair
	psn    uint32
	aeth   bool
	syn    uint8 // syndrome
}

// captured decodes a capture by tshark, which has nothing of ours in it.
func captured(ctx context.Context, file string) ([]seen, error) {
	args := []string{"-r", file, "-T", "fields"}
	for _, f := range []string{"frame.time_epoch", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.aeth.syndrome"} {
		args = append(args, "-e", f)
	}
	out, err := exec.CommandContext(ctx, "tshark", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("tshark: %w", err)
	}
	return parseSeen(string(out))
}

func parseSeen(out string) ([]seen, error) {
	var ps []seen
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 || f[1] == "" {
			return nil, fmt.Errorf("tshark: no RoCE packet: %q", line)
		}
		sec, frac, _ := strings.Cut(f[0], ".")
		var n [5]uint64
		var errs []error
		for i, s := range []string{sec, (frac + "000000000")[:9], f[1], f[2], f[3]} {
			var err error
			base := 0
			if i < 2 {
				base = 10
			}
			n[i], err = strconv.ParseUint(s, base, 64)
			errs = append(errs, err)
		}
		p := seen{at: time.Duration(n[0])*time.Second + time.Duration(n[1]), opcode: uint8(n[2]), to: uint32(n[3]), psn: uint32(n[4])}
		if f[4] != "" {
			v, err := strconv.ParseUint(f[4], 0, 8)
			errs = append(errs, err)
			p.aeth, p.syn = true, uint8(v)
		}
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("tshark: %q: %w", line, err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// judgeAll checks claims against what was captured, and says in words what was
// found.
func judgeAll(cs []claim, ps []seen) (notes []string, err error) {
	var errs []error
	for i := range cs {
		found, err := cs[i].judge(ps)
		notes = append(notes, cs[i].What+": "+found)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (%s)", cs[i].What, err, found))
		}
	}
	return notes, errors.Join(errs...)
}

// judge checks one claim.
func (c *claim) judge(ps []seen) (found string, err error) {
	var sent, naks []time.Duration
	var errs []error
	for i := range ps {
		p := &ps[i]
		switch {
		case p.to == c.To && p.psn == c.PSN && !p.aeth:
			sent = append(sent, p.at)
		case p.to == c.Back && p.psn == c.PSN && p.aeth && bth.Syndrome(p.syn).Kind() == bth.KindRNR:
			naks = append(naks, p.at)
		case p.to == c.To && !p.aeth:
			errs = append(errs, fmt.Errorf("a packet with PSN %#x, which nobody posted", p.psn))
		}
	}
	found = fmt.Sprintf("%d sent", len(sent))
	if len(sent) < c.Least || c.Most != 0 && len(sent) > c.Most {
		errs = append(errs, fmt.Errorf("%d sendings, not %d to %d", len(sent), c.Least, c.Most))
	}
	least, most := time.Duration(0), time.Duration(0)
	from := sent
	if c.RNR != 0 {
		from = naks
		found += fmt.Sprintf(", %d RNR NAKs", len(naks))
		want := len(sent)
		if c.Most == 0 { // the last was taken
			want--
		}
		if len(naks) != want {
			return found, errors.Join(append(errs, fmt.Errorf("%d RNR NAKs, not %d", len(naks), want))...)
		}
	}
	for i := 1; i < len(sent); i++ {
		gap := sent[i] - from[i-1]
		if i == 1 || gap < least {
			least = gap
		}
		most = max(most, gap)
	}
	if len(sent) > 1 {
		found += fmt.Sprintf(", %v to %v apart", least.Round(10*time.Microsecond), most.Round(10*time.Microsecond))
		switch {
		case c.Rough:
		case least < c.Timeout || c.Timeout != 0 && most > 4*c.Timeout:
			errs = append(errs, fmt.Errorf("not between %v and four times that", c.Timeout))
		case least < c.RNR:
			errs = append(errs, fmt.Errorf("sooner than %v", c.RNR))
		}
	}
	return found, errors.Join(errs...)
}
