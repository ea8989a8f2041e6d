package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// pingpong runs one of rdma-core's pingpongs in the guest against rxe pingpong.
// The TCP port is a new one each time.
func (r *runner) pingpong(ctx context.Context, c *Case, res *Result) error {
	r.port++
	common := fmt.Sprintf("-p %d -s %d -n %d %s", r.port, c.Size, c.Iters, c.Flags)
	if c.Kind != "ud" {
		common += fmt.Sprintf(" -m %d", c.MTU)
	}
	if c.Kind == "srq" {
		common += fmt.Sprintf(" -q %d", c.QPs)
	}
	us := slices.Concat([]string{"pingpong", c.Kind}, r.device(c), strings.Fields(common+" "+c.OurFlags))
	if c.Role == Client && c.Family == 6 {
		us = append(us, "-g", r.gid(6))
	}
	return r.play(ctx, c, &duet{
		port:  r.port,
		guest: fmt.Sprintf("ibv_%s_pingpong -g %d %s", c.Kind, r.sgid[c.Family], common),
		us:    us,
		check: func(who, out string, err error) error { return pingpongSaid(who, out, err, c) },
		note:  rate,
	}, res)
}

// pingpongSaid checks what one of the programs printed.
func pingpongSaid(who, out string, err error, c *Case) error {
	switch err := ended(who, out, err); {
	case err != nil:
		return err
	case strings.Contains(out, "invalid data"):
		return fmt.Errorf("%s: wrong data: %s", who, tail(out))
	case !strings.Contains(out, fmt.Sprintf("%d bytes in ", 2*c.Size*c.Iters)), !strings.Contains(out, fmt.Sprintf("%d iters in ", c.Iters)):
		return fmt.Errorf("%s: %d exchanges of %d octets are not in its report: %s", who, c.Iters, c.Size, tail(out))
	}
	return nil
}

// rate returns the figure of a report that a person wants to see.
func rate(out string) string {
	for line := range strings.Lines(out) {
		if _, after, ok := strings.Cut(line, " iters in "); ok {
			if _, after, ok = strings.Cut(after, "= "); ok {
				return strings.TrimSpace(after)
			}
		}
	}
	return ""
}
