package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What tshark prints of a packet, with an AETH and without.
func TestParseSeen(t *testing.T) {
	ps, err := parseSeen("1700000000.000000500\t4\t0x000011\t16777215\t\n1700000001.5\t17\t0x123456\t7\t33\n")
	if err != nil || len(ps) != 2 {
		t.Fatal(ps, err)
	}
	if p := ps[0]; p.opcode != 4 || p.to != 0x11 || p.psn != 0xffffff || p.aeth {
		t.Errorf("%+v", p)
	}
	if p := ps[1]; p.opcode != 17 || p.to != 0x123456 || p.psn != 7 || !p.aeth || p.syn != 0x21 || p.at-ps[0].at != 1500*time.Millisecond-500 {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{"1700000000.0\t\t\t\t\n", "x\t4\t0x11\t1\t\n", "1.0\t4\t0x11\t1\n", "1.0\t4\t0x11\t1\t900\n"} {
		if _, err := parseSeen(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A claim is judged by the number of sendings, by the gaps between them, by the
// RNR NAKs and by what was not posted.
func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	sent := func(at ...time.Duration) (ps []seen) {
		for _, a := range at {
			ps = append(ps, seen{at: a, opcode: 4, to: 1, psn: 5})
		}
		return ps
	}
	naks := func(ps []seen, after time.Duration) (out []seen) {
		for _, p := range ps {
			out = append(out, p, seen{at: p.at + after, opcode: 17, to: 2, psn: 5, aeth: true, syn: 0x2c})
		}
		return out
	}
	timer := claim{To: 1, Back: 2, PSN: 5, Least: 3, Most: 3, Timeout: 10 * ms}
	late := claim{To: 1, Back: 2, PSN: 5, Least: 3, Most: 3, RNR: 10 * ms}
	endless := claim{To: 1, Back: 2, PSN: 5, Least: 3, RNR: 10 * ms}
	rough := timer
	rough.Rough = true
	good := sent(0, 10*ms, 50*ms)
	for _, c := range []struct {
		name string
		c    claim
		ps   []seen
		says string // "" all is well
	}{
		{"exactly", timer, good, ""},
		{"of others too", timer, append(sent(0, 10*ms, 50*ms), seen{at: ms, to: 9, psn: 5}, seen{at: ms, to: 2, psn: 8}), ""},
		{"one too few", timer, good[:2], "2 sendings"},
		{"one too many", timer, sent(0, 10*ms, 20*ms, 30*ms), "4 sendings"},
		{"too soon", timer, sent(0, 9*ms, 50*ms), "four times"},
		{"a little too soon", timer, sent(0, 10*ms-1, 49*ms), "four times"},
		{"too late", timer, sent(0, 10*ms, 51*ms), "four times"},
		{"too late by a rough clock", rough, sent(0, 3*ms, 51*ms), ""},
		{"another packet", timer, append(sent(0, 10*ms, 50*ms), seen{at: ms, to: 1, psn: 6}), "nobody posted"},
		{"RNR", late, naks(sent(0, 13*ms, 25*ms), 2*ms), ""},
		{"RNR, too soon after the NAK", late, naks(sent(0, 11*ms, 25*ms), 2*ms), "sooner"},
		{"RNR, a NAK missing", late, naks(sent(0, 13*ms, 25*ms), 2*ms)[:5], "2 RNR NAKs"},
		{"RNR, for ever, and the last one taken", endless, naks(sent(0, 13*ms, 25*ms, 38*ms), 2*ms)[:7], ""},
		{"RNR, for ever, and ended", endless, naks(sent(0, 13*ms, 25*ms), 2*ms), "3 RNR NAKs"},
		{"nothing", timer, nil, "0 sendings"},
	} {
		slices.SortFunc(c.ps, func(a, b seen) int { return int(a.at - b.at) })
		_, err := c.c.judge(c.ps)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	if notes, err := judgeAll([]claim{timer, late}, good); err == nil || len(notes) != 2 {
		t.Errorf("%q, %v", notes, err)
	}
}
