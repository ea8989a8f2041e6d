package metrics

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gorxe/gorxe/control/admin"
)

// Handler answers scrapes with what the devices count, and with what the Go
// runtime and the system say of the process. Devices is called at each; version
// is the program's.
func Handler(devices func() []admin.Device, version string) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(New(devices, version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// collector is a prometheus.Collector of devices. It describes nothing
// beforehand, as links have counters of their own.
type collector struct {
	devices func() []admin.Device
	version string
}

// New returns a collector of what the devices count at each scrape.
func New(devices func() []admin.Device, version string) prometheus.Collector {
	return &collector{devices, version}
}

// Describe describes nothing.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks every device.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	constant(ch, prometheus.GaugeValue, 1, "gorxe_build_info", "Version of the program; the value is always 1.", []string{"version"}, c.version)
	for _, d := range c.devices() {
		d := device{ch: ch, Device: d}
		d.collect()
	}
}

func constant(ch chan<- prometheus.Metric, t prometheus.ValueType, v float64, name, help string, labels []string, values ...string) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), t, v, values...)
}

// device is one of them during a scrape.
type device struct {
	admin.Device
	ch chan<- prometheus.Metric
}

func (d *device) collect() {
	info, err := d.Info()
	if err != nil {
		info.Error = err.Error()
	}
	counters, err := d.Counters()
	up := err == nil && info.Error == ""
	d.gauge("gorxe_up", "Whether the device works.", truth(up))
	if !up {
		return
	}
	d.gauge("gorxe_port_active", "Whether the port's interface is up.", truth(info.Active))
	d.gauge("gorxe_queue_pairs", "Queue pairs that there are.", float64(info.QPs))
	d.gauge("gorxe_clients", "Processes that use the device through the daemon.", float64(info.Clients))
	d.gauge("gorxe_captures", "Live captures that are going on.", float64(info.Captures))
	if c, err := d.CC(); err == nil {
		constant(d.ch, prometheus.GaugeValue, 1, "gorxe_congestion_control_info", "Algorithm of congestion control; the value is always 1.",
			[]string{"device", "algorithm"}, d.Name(), c.Get("algorithm"))
	}
	d.asNodeExporter(&info, counters)
	for name, v := range counters {
		d.counter(name, v)
	}
}

func (d *device) gauge(name, help string, v float64) {
	constant(d.ch, prometheus.GaugeValue, v, name, help, []string{"device"}, d.Name())
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// inSysfs are the counters that node_exporter reads of an InfiniBand port, by
// its names. What sysfs has in words of 4 octets it shows in bytes.
var inSysfs = map[string]struct {
	name, help string
	factor     float64
}{
	"port_xmit_data":     {"port_data_transmitted_bytes_total", "Octets of packets that the port sent, from base transport header to invariant CRC.", 4},
	"port_rcv_data":      {"port_data_received_bytes_total", "Octets of packets that the port received, from base transport header to invariant CRC.", 4},
	"port_xmit_packets":  {"port_packets_transmitted_total", "Packets that the port sent.", 1},
	"port_rcv_packets":   {"port_packets_received_total", "Packets that the port received, bad ones included.", 1},
	"port_xmit_wait":     {"port_transmit_wait_total", "Ticks of a nanosecond during which a packet was ready and the link had no room.", 1},
	"port_xmit_discards": {"port_discards_transmitted_total", "Packets that the system refused to send.", 1},
	"port_rcv_errors":    {"port_errors_received_total", "Packets that came malformed or damaged.", 1},
	"link_downed":        {"link_downed_total", "Times that the link failed or its interface went down.", 1},

	"np_cnp_sent":                {"np_cnp_packets_sent_total", "Congestion notifications (CNPs) sent.", 1},
	"np_ecn_marked_roce_packets": {"np_ecn_marked_roce_packets_received_total", "Packets that came with a congestion mark.", 1},
	"rp_cnp_handled":             {"rp_cnp_packets_handled_total", "CNPs received and heeded.", 1},
	"rp_cnp_ignored":             {"rp_cnp_ignored_packets_received_total", "CNPs received and not heeded.", 1},
	"roce_slow_restart":          {"roce_slow_restart_used_total", "Losses that were taken for congestion.", 1},
	"roce_slow_restart_cnps":     {"roce_slow_restart_cnps_total", "CNPs sent along with a sequence NAK.", 1},
	"roce_slow_restart_trans":    {"roce_slow_restart_total", "The first such losses since the rate was full.", 1},
}

// asNodeExporter shows what node_exporter's infiniband collector would.
func (d *device) asNodeExporter(info *admin.DeviceInfo, counters map[string]uint64) {
	labels := []string{"device", "port"}
	for from, to := range inSysfs {
		constant(d.ch, prometheus.CounterValue, float64(counters[from])*to.factor, "node_infiniband_"+to.name, to.help, labels, d.Name(), "1")
	}
	state, phys := 1.0, 3.0
	if info.Active {
		state, phys = 4, 5
	}
	for _, g := range [...]struct {
		name, help string
		v          float64
	}{
		{"state_id", "State of the port: 1 down, 4 active.", state},
		{"physical_state_id", "Physical state of the port: 3 disabled, 5 link up.", phys},
		{"rate_bytes_per_second", "Rate of the port's interface, 0 where it has none.", float64(info.SpeedMbit) * 1e6 / 8},
	} {
		constant(d.ch, prometheus.GaugeValue, g.v, "node_infiniband_"+g.name, g.help, labels, d.Name(), "1")
	}
	constant(d.ch, prometheus.GaugeValue, 1, "node_infiniband_info", "What the device is; the value is always 1.",
		[]string{"device", "board_id", "firmware_version", "hca_type"}, d.Name(), "gorxe", "", "gorxe")
}

// counter shows one counter by a name of our own, in Prometheus' base units.
func (d *device) counter(name string, v uint64) {
	if _, shown := inSysfs[name]; shown {
		return
	}
	about := d.DescribeCounter(name)
	kinds := map[string]struct{ name, help string }{
		"drop":    {"gorxe_drops_total", "Received packets that went no further, by reason."},
		"failure": {"gorxe_failures_total", "Requests and queue pairs that failed, by reason."},
		"retry":   {"gorxe_retries_total", "Times that something was sent again, by reason."},
		"note":    {"gorxe_notes_total", "Other things of note, by what it is."},
	}
	if k, ok := kinds[about.Kind]; ok {
		constant(d.ch, prometheus.CounterValue, float64(v), k.name, k.help, []string{"device", "reason"}, d.Name(), name)
		return
	}
	value, full := float64(v), "gorxe_"+name
	switch about.Unit {
	case "ns":
		value /= 1e9
		full += "_seconds"
	case "octets":
		full = strings.TrimSuffix(full, "_bytes") + "_bytes"
	}
	help := about.Text
	if about.Unit != "" {
		help = strings.ToUpper(help[:1]) + help[1:] + "."
	}
	constant(d.ch, prometheus.CounterValue, value, full+"_total", help, []string{"device"}, d.Name())
}
