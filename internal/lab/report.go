package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorxe/gorxe/sim"
)

// Report is what became of a scenario. Times are in the units that their names say.
type Report struct {
	Name       string      `json:"name"`
	Title      string      `json:"title"`
	About      string      `json:"about,omitempty"`
	Parameters []Parameter `json:"parameters"`

	Flows  []FlowReport  `json:"flows"`
	Queues []QueueReport `json:"queues"`

	// Jain is the index of fairness of what flows got in the last half of the time:
	// of those that ran all through it, and 0 where there were not two.
	Jain float64 `json:"jain"`
	// Bottleneck is the port of a switch that was busiest in the last half, and
	// Utilisation what part of its line's rate it used.
	Bottleneck  string    `json:"bottleneck"`
	Utilisation float64   `json:"utilisation"`
	Settled     []Settled `json:"settled"`

	Marks  uint64 `json:"marks"`
	Drops  uint64 `json:"drops"`
	CNPs   uint64 `json:"cnps"`
	Pauses uint64 `json:"pauses"`

	Series Series `json:"series"`
}

// Parameter is one of those that a run was made with.
type Parameter struct {
	Section string `json:"section"`
	Name    string `json:"name"`
	Value   string `json:"value"`
}

// FlowReport is about a flow. Goodput is payload that came in order, over the time
// that the flow ran; a message took what Took says.
type FlowReport struct {
	Name     string  `json:"name"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Op       string  `json:"op"`
	Octets   uint64  `json:"octets"`
	Goodput  float64 `json:"goodput_mbit"`
	LastHalf float64 `json:"goodput_last_half_mbit"`
	Messages int     `json:"messages"`
	Mean     float64 `json:"mean_us"`
	P99      float64 `json:"p99_us"`
	CNPs     uint64  `json:"cnps"`    // that reached the sender of the data
	Marks    uint64  `json:"marks"`   // packets of data that came with CE
	Retries  uint64  `json:"retries"` // times that it went back and sent again
	Failed   string  `json:"failed,omitempty"`
	Took     []Took  `json:"-"`
}

// QueueReport is about a port and its queue: depths in octets, over all of the time.
// Ports of switches are left out whose queue never held two packets, and hosts' that
// were never paused.
type QueueReport struct {
	Port        string  `json:"port"`
	Mean        float64 `json:"mean_octets"`
	P99         int     `json:"p99_octets"`
	Max         int     `json:"max_octets"`
	Marks       uint64  `json:"marks"`
	Drops       uint64  `json:"drops"`
	Pauses      uint64  `json:"pauses"` // of this port, by its peer
	Paused      float64 `json:"paused_us"`
	Utilisation float64 `json:"utilisation"` // of its line
}

// Settled says how long it took after flows came or went until what they get was
// fair, a Jain index of 0.95 or more, and the busiest port of a switch used 90 % of
// its line: from then on until the next change, in each Window, of which there are
// two at least.
type Settled struct {
	At     float64 `json:"at_ms"`
	Flows  int     `json:"flows"` // that there are from then on
	After  float64 `json:"after_ms"`
	OK     bool    `json:"ok"` // it was so in the end
	Window float64 `json:"window_ms"`
}

// Series are points in time.
type Series struct {
	Time  []float64    `json:"time_ms"`
	Flows []FlowSeries `json:"flows"`
	Ports []PortSeries `json:"ports"`
}

// FlowSeries is a flow at each point. All are of the time since the point before,
// but Limit, which is what congestion control allowed then; 0 is no limit, or nothing
// to send.
type FlowSeries struct {
	Name  string    `json:"name"`
	Rate  []float64 `json:"rate_mbit"`
	Limit []float64 `json:"limit_mbit"`
	CNPs  []float64 `json:"cnps"`
	Marks []float64 `json:"marks"`
}

// PortSeries is a port at each point: the longest queue since the point before, and
// counts and the part of the time that it was paused since.
type PortSeries struct {
	Name   string    `json:"name"`
	Host   bool      `json:"host"` // it is a host's, whose queue is its NIC's own
	Queue  []float64 `json:"queue_octets"`
	Marks  []float64 `json:"marks"`
	Drops  []float64 `json:"drops"`
	Paused []float64 `json:"paused"`
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func (r *run) report() *Report {
	s := r.s
	p := &Report{Name: s.Name, Title: orElse(s.Title, s.Name), About: s.About, Parameters: s.parameters()}
	for _, x := range r.samples {
		p.Series.Time = append(p.Series.Time, ms(x.at))
	}
	var shares []float64
	for i, f := range r.flows {
		p.Flows = append(p.Flows, r.flowReport(f))
		p.CNPs += f.cnps
		if f.Start <= s.Duration/2 && f.Stop >= s.Duration && f.ended == 0 {
			shares = append(shares, float64(f.octets-f.halfway))
		}
		p.Series.Flows = append(p.Series.Flows, r.flowSeries(i))
	}
	if len(shares) > 1 {
		p.Jain = jain(shares)
	}
	for i, x := range r.ports {
		st := x.Stats()
		p.Marks += st.Marked
		p.Drops += st.Dropped
		p.Pauses += st.Pauses
		node, _ := x.Owner()
		if node == nil {
			if u := use(x, st, x.halfway, s.Duration-s.Duration/2); u > p.Utilisation {
				p.Utilisation, p.Bottleneck = u, x.String()
			}
		}
		if st.Pauses == 0 && (node != nil || st.MaxQueue < 2*s.mtu() && st.Dropped == 0) {
			continue // nothing of note
		}
		x.depth.add(x.queue, int64(s.Duration)-x.since)
		p.Queues = append(p.Queues, QueueReport{
			Port: x.String(), Mean: st.MeanQueue(sim.PortStats{}, s.Duration), P99: min(x.depth.quantile(0.99), st.MaxQueue), Max: st.MaxQueue,
			Marks: st.Marked, Drops: st.Dropped, Pauses: st.Pauses, Paused: float64(st.Paused) / 1e3,
			Utilisation: use(x, st, sim.PortStats{}, s.Duration),
		})
		p.Series.Ports = append(p.Series.Ports, r.portSeries(i))
	}
	p.Settled = r.settled()
	return p
}

// use is what part of its line's rate a port used.
func use(p *port, now, before sim.PortStats, over time.Duration) float64 {
	return float64(now.Octets-before.Octets) * 8 / (float64(p.Line().Rate) * over.Seconds())
}

// jain is the index of Jain, Chiu and Hawe (DEC-TR-301, 1984): 1 is all the same,
// 1/n all to one.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(x)) * squares)
}

func (r *run) flowReport(f *flow) FlowReport {
	end := min(r.s.Duration, f.Stop)
	if f.ended > 0 {
		end = time.Duration(f.ended)
	}
	p := FlowReport{
		Name: f.Name, From: f.From, To: f.To, Op: f.Service + " " + f.Op, Octets: f.octets, Messages: f.done, CNPs: f.cnps, Marks: f.marks,
		Failed: f.failed, Took: f.took, LastHalf: float64(f.octets-f.halfway) * 8 / (r.s.Duration - r.s.Duration/2).Seconds() / 1e6,
	}
	if end > f.Start {
		p.Goodput = float64(f.octets) * 8 / (end - f.Start).Seconds() / 1e6
	}
	if n := len(f.took); n > 0 {
		all := make([]time.Duration, n)
		sum := time.Duration(0)
		for i, t := range f.took {
			all[i] = t.Took
			sum += t.Took
		}
		slices.Sort(all)
		p.Mean, p.P99 = float64(sum)/float64(n)/1e3, float64(all[(n*99+99)/100-1])/1e3
	}
	if d, err := f.from.node.NIC.QP(f.qp.QPN()); err == nil {
		p.Retries = d.Counters["completer_retry_err"]
	}
	return p
}

func (r *run) flowSeries(i int) FlowSeries {
	p := FlowSeries{Name: r.flows[i].Name}
	var before flowSample
	at := time.Duration(0)
	for _, x := range r.samples {
		y := x.flows[i]
		p.Rate = append(p.Rate, float64(y.octets-before.octets)*8/(x.at-at).Seconds()/1e6)
		p.Limit = append(p.Limit, float64(y.limit)/1e6)
		p.CNPs = append(p.CNPs, float64(y.cnps-before.cnps))
		p.Marks = append(p.Marks, float64(y.marks-before.marks))
		before, at = y, x.at
	}
	return p
}

func (r *run) portSeries(i int) PortSeries {
	node, _ := r.ports[i].Owner()
	p := PortSeries{Name: r.ports[i].String(), Host: node != nil}
	at := time.Duration(0)
	for _, x := range r.samples {
		y := x.ports[i]
		p.Queue = append(p.Queue, float64(y.high))
		p.Marks = append(p.Marks, float64(y.marked))
		p.Drops = append(p.Drops, float64(y.dropped))
		p.Paused = append(p.Paused, float64(y.paused)/float64(x.at-at))
		at = x.at
	}
	return p
}

// settled looks at each time between two changes.
func (r *run) settled() (out []Settled) {
	window := r.s.Settle
	back := int((window + r.s.Sample - 1) / r.s.Sample)
	window = time.Duration(back) * r.s.Sample
	changes := []time.Duration{}
	for _, f := range r.flows {
		changes = append(changes, f.Start)
		if f.ended > 0 {
			changes = append(changes, time.Duration(f.ended))
		}
	}
	slices.Sort(changes)
	for i, c := range changes {
		next := r.s.Duration
		if i+1 < len(changes) {
			next = changes[i+1]
		}
		if next-c < 3*window {
			continue // more come and go at about the same time
		}
		var on []int
		for j, f := range r.flows {
			if f.Start <= c && (f.ended == 0 || time.Duration(f.ended) > c) {
				on = append(on, j)
			}
		}
		if len(on) == 0 {
			continue
		}
		x := Settled{At: ms(c), Flows: len(on), Window: ms(window)}
		good := time.Duration(0) // the end of the first window of those that are good until the end
		for k := back; k < len(r.samples) && r.samples[k].at <= next; k++ {
			if r.samples[k-back].at < c {
				continue
			}
			switch fair := r.fair(on, k-back, k); {
			case !fair:
				good = 0
			case good == 0:
				good = r.samples[k].at
			}
		}
		if x.OK = good > 0 && next-good >= 2*window; x.OK {
			x.After = ms(good - c)
		}
		out = append(out, x)
	}
	return out
}

// fair reports whether it was, between two samples.
func (r *run) fair(on []int, a, b int) bool {
	from, to := r.samples[a], r.samples[b]
	var got []float64
	for _, j := range on {
		got = append(got, float64(to.flows[j].octets-from.flows[j].octets))
	}
	busiest := 0.0
	for i, p := range r.ports {
		if node, _ := p.Owner(); node != nil {
			continue
		}
		octets := uint64(0)
		for k := a + 1; k <= b; k++ {
			octets += r.samples[k].ports[i].octets
		}
		busiest = max(busiest, float64(octets)*8/(float64(p.Line().Rate)*(to.at-from.at).Seconds()))
	}
	return busiest >= 0.9 && jain(got) >= 0.95
}

// parameters lists what the run was made with.
func (s *Scenario) parameters() (out []Parameter) {
	add := func(section, name string, v any) { out = append(out, Parameter{section, name, fmt.Sprint(v)}) }
	add("scenario", "seed", s.Seed)
	add("scenario", "duration", s.Duration)
	add("scenario", "sample", s.Sample)
	add("scenario", "settle", s.Settle)
	add("scenario", "mtu", s.MTU)
	if s.Faults != "" {
		add("scenario", "faults", s.Faults)
	}
	add("topology", "kind", s.Kind)
	add("topology", "hosts", s.Hosts)
	if s.Kind == ParkingLot || s.Kind == LeafSpine {
		add("topology", "switches", s.Switches)
	}
	add("topology", "rate", bitrate(float64(s.Line.Rate)))
	add("topology", "delay", s.Line.Delay)
	if s.Kind != Star {
		add("topology", "trunk_rate", bitrate(float64(s.Trunk.Rate)))
		add("topology", "trunk_delay", s.Trunk.Delay)
	}
	for _, h := range s.Nodes {
		add("host "+h.Name, "rate", bitrate(float64(orElse(h.Line.Rate, s.Line.Rate))))
		add("host "+h.Name, "delay", orElse(h.Line.Delay, s.Line.Delay))
	}
	add("topology", "port_queue", s.PortQueue)
	add("topology", "window", s.Window)
	add("topology", "burst", s.Burst)
	add("switch", "buffer", s.Buffer)
	if s.RED != nil {
		add("switch", "kmin", s.RED.Kmin)
		add("switch", "kmax", s.RED.Kmax)
		add("switch", "pmax", s.RED.Pmax)
		add("switch", "mark", map[sim.MarkPoint]string{sim.MarkDequeue: "dequeue", sim.MarkEnqueue: "enqueue"}[s.MarkAt])
	}
	if p := s.pfc(); p != nil {
		add("switch", "pfc", true)
		if p.XOFF > 0 {
			add("switch", "xoff", p.XOFF)
			add("switch", "xon", p.XON)
		} else {
			add("switch", "alpha", orElse(p.Alpha, 1))
		}
		add("switch", "headroom", p.Headroom)
	}
	for _, f := range ccFields() {
		add("cc", f.Name, f.Get(&s.CC))
	}
	for i := range s.Flows {
		for _, c := range s.Flows[i].CC {
			add("flow "+s.Flows[i].Name, c[0], c[1])
		}
	}
	return out
}
