package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// late is how long a rival's server is given to listen.
const late = "sleep 0.3; exec "

// iperf3 is a TCP stream; its figure is Gbit/s received.
func iperf3(name string, d time.Duration, p place, args ...string) program {
	return program{name: name, deb: "iperf3", cmd: "iperf3", run: func(ctx context.Context, b *bed) (samples, error) {
		ctx, cancel := context.WithTimeout(ctx, d+margin)
		defer cancel()
		server := p.in(ctx, b.b, "iperf3", "-s", "-1")
		client := p.in(ctx, b.a, "sh", "-c", fmt.Sprintf("%siperf3 -c %s -J -t %.0f %s", late, p.server, math.Ceil(d.Seconds()), strings.Join(args, " ")))
		out, err := both(server, client, false)
		gbits, perr := parseIperf3(out)
		switch {
		case err != nil && perr != nil:
			err = fmt.Errorf("%w; %w", perr, err)
		case err == nil:
			err = perr
		}
		return samples{name: gbits}, err
	}}
}

func parseIperf3(out []byte) (float64, error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			Sum struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	jerr := json.Unmarshal(out, &r)
	switch {
	case r.Error != "":
		return 0, errors.New(r.Error)
	case jerr != nil:
		return 0, fmt.Errorf("its report: %w", jerr)
	case r.End.Sum.Bits == 0:
		return 0, errors.New("nothing was received")
	}
	return r.End.Sum.Bits / 1e9, nil
}

// ucx is a test of ucx_perftest over its TCP transport. Bandwidth is Gbit/s; a
// latency is half a round trip in microseconds, median and 99th percentile of
// two runs.
func ucx(name string, d time.Duration, test string, size int, latency string) program {
	run := func(ctx context.Context, b *bed, rank string, n int) ([]float64, error) {
		ctx, cancel := context.WithTimeout(ctx, d+margin)
		defer cancel()
		p := bed9000
		server := p.in(ctx, b.b, "env", "UCX_TLS=tcp", "UCX_NET_DEVICES="+p.iface, "sh", "-c", "exec ucx_perftest >/dev/null")
		client := p.in(ctx, b.a, "env", "UCX_TLS=tcp", "UCX_NET_DEVICES="+p.iface, "sh", "-c",
			fmt.Sprintf("%sucx_perftest -t %s -s %d -n %d -w %d -R %s -f -v %s", late, test, size, n, max(n/20, 1), rank, p.server))
		// Its server may die of the client's leaving before it ends.
		out, err := both(server, client, true)
		if err != nil {
			return nil, err
		}
		return parseUCX(out)
	}
	return program{name: name, deb: "ucx-utils", cmd: "ucx_perftest", run: func(ctx context.Context, b *bed) (samples, error) {
		// It counts iterations: as many as take about the time.
		if latency == "" {
			v, err := run(ctx, b, "50", max(int(2e9*d.Seconds())/size, 10))
			if err != nil {
				return nil, err
			}
			return samples{name: v[4] * (1 << 20) * 8 / 1e9}, nil
		}
		out := samples{}
		for part, rank := range map[string]string{"p50": "50", "p99": "99"} {
			v, err := run(ctx, b, rank, int(60000*d.Seconds()))
			if err != nil {
				return nil, err
			}
			out[name+"."+part] = v[1]
		}
		return out, nil
	}}
}

// parseUCX reads the last line of its CSV: iterations, the percentile,
// average and overall latency in microseconds, average and overall MiB/s,
// messages a second.
func parseUCX(out []byte) ([]float64, error) {
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("its report: %w", err)
	}
	if len(rows) < 2 || len(rows[0]) != 8 {
		return nil, fmt.Errorf("its report is not the table of eight columns that was expected: %q", out)
	}
	var v []float64
	for _, f := range rows[len(rows)-1] {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("its report: %w", err)
		}
		v = append(v, x)
	}
	if v[1] == 0 && v[4] == 0 {
		return nil, errors.New("it measured nothing")
	}
	return v, nil
}

var qperfLatency = regexp.MustCompile(`latency\s*=\s*([0-9.,]+) ns`)

// qperf is UDP with both ends blocked while they wait, which qperf reports as
// half a round trip.
func qperf(name string, d time.Duration) program {
	return program{name: name, deb: "qperf", cmd: "qperf", run: func(ctx context.Context, b *bed) (samples, error) {
		ctx, cancel := context.WithTimeout(ctx, d+margin)
		defer cancel()
		p := bed9000
		server := p.in(ctx, b.b, "qperf")
		client := p.in(ctx, b.a, "sh", "-c", fmt.Sprintf("%sqperf -t %.0f -m 2 -u -uu %s udp_lat", late, math.Ceil(d.Seconds()), p.server))
		out, err := both(server, client, true)
		if err != nil {
			return nil, err
		}
		us, err := parseQperf(out)
		return samples{name: us}, err
	}}
}

func parseQperf(out []byte) (float64, error) {
	m := qperfLatency.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no latency in its report: %q", out)
	}
	ns, err := strconv.ParseFloat(strings.ReplaceAll(string(m[1]), ",", ""), 64)
	return ns / 1000, err
}
