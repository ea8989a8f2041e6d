package main

import (
	"errors"
	"strings"
	"testing"
)

// What ib_write_bw 6.06, ib_send_lat 6.24 and a guest whose clock is no good
// print.
const (
	bandwidth = ` GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:02
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      64               16.85              16.85  		   0.000270
---------------------------------------------------------------------------------------
`
	latency = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 1023    100          403.45         5032.52      954.12   	       1410.99     	1075.07		5032.52 		5032.52
---------------------------------------------------------------------------------------
`
	noDeviation = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 1048576 5          279858.14        508283.95      370949.51  	       370949.51     	-nan   		508283.95 		508283.95
`
	clockOfGuest = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      64               0.00               inf  		   0.000000
`
	forDuration = ` #bytes        #iterations       t_avg[usec]    tps average
 2048          812           1231.51        811.99   
`
	sizesOfUD = ` #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          200              0.01               0.01  		     0.005000
 4          200              0.02               0.02  		     0.005000
`
)

func TestPerfSaid(t *testing.T) {
	bw := Case{Kind: "write_bw/RC", Size: 65536, Iters: 64, QPs: 1}
	lat := Case{Kind: "send_lat/UD", Size: 1023, Iters: 100, QPs: 1}
	with := func(c Case, change func(*Case)) *Case {
		change(&c)
		return &c
	}
	for _, k := range []struct {
		name, who, out string
		err            error
		c              *Case
		ok             bool
	}{
		{"bandwidth", "our client", bandwidth, nil, &bw, true},
		{"bandwidth of 8 queue pairs", "our client", bandwidth, nil, with(bw, func(c *Case) { c.Iters, c.QPs = 8, 8 }), true},
		{"latency", "the guest's client", latency, nil, &lat, true},
		{"latency without deviation", "the guest's client", noDeviation, nil, with(lat, func(c *Case) { c.Size, c.Iters = 1<<20, 5 }), true},
		{"latency for a duration", "our client", forDuration, nil, with(lat, func(c *Case) { c.Size, c.Form = 2048, "duration" }), true},
		{"all sizes", "our client", sizesOfUD, nil, with(lat, func(c *Case) { c.Kind, c.Form, c.MTU, c.Iters = "send_bw/UD", "all-sizes", 4, 200 }), true},
		{"server of a READ", "our server", "", nil, with(bw, func(c *Case) { c.Kind = "read_bw/RC" }), true},
		{"client of a READ without results", "our client", "", nil, with(bw, func(c *Case) { c.Kind = "read_bw/RC" }), false},
		{"a size is missing", "our client", sizesOfUD, nil, with(lat, func(c *Case) { c.Kind, c.Form, c.MTU, c.Iters = "send_bw/UD", "all-sizes", 8, 200 }), false},
		{"another size", "our client", bandwidth, nil, with(bw, func(c *Case) { c.Size = 65535 }), false},
		{"too few messages", "our client", bandwidth, nil, with(bw, func(c *Case) { c.Iters = 65 }), false},
		{"rates that differ", "our client", strings.Replace(bandwidth, "16.85  \t", "26.85  \t", 1), nil, &bw, false},
		{"Gb/s for MiB/s", "our client", bandwidth, nil, with(bw, func(c *Case) { c.Form = "gbits" }), false},
		{"no bandwidth", "our client", strings.Replace(bandwidth, "0.000270", "0.000000", 1), nil, &bw, false},
		{"most below typical", "our client", strings.Replace(latency, "5032.52 ", "932.52 ", 1), nil, &lat, false},
		{"least of nothing", "our client", strings.Replace(latency, "403.45", "0.00", 1), nil, &lat, false},
		{"a guest without clock", "the guest's server", clockOfGuest, nil, &bw, true},
		{"our clock", "our server", clockOfGuest, nil, &bw, false},
		{"a guest without clock, other messages", "the guest's server", clockOfGuest, nil, with(bw, func(c *Case) { c.Iters = 65 }), false},
		{"status", "our client", bandwidth, errors.New("exit status 1"), &bw, false},
	} {
		err := perfSaid(k.who, k.out, k.err, k.c)
		if (err == nil) != k.ok {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	if got := headline(bandwidth) + ", " + headline(latency); got != "16.85 MiB/s, 954 usec" {
		t.Errorf("headlines are %s", got)
	}
}
