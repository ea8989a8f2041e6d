package report

import (
	"encoding/json"
	"io"
	"strconv"
)

// row is a row of the table, for JSON: of bandwidth in the table's units, or of
// latency.
type row struct {
	size, iters     uint64
	peak, avg, rate float64
	fine            bool // six digits of the bandwidth
	lat             *latency
}

// file is perftest's report (--out_json), and what is ours under one key.
type file struct {
	Info    info    `json:"test_info"`
	Results results `json:"results"`
	Ours    ours    `json:"gorxe"`
}

// info is the header in JSON; keys, order and spelling are perftest 6.24's.
type info struct {
	Test       string `json:"test"`
	Events     string `json:"Test with events,omitempty"`
	Multicast  string `json:"MultiCast_runs,omitempty"`
	DualPort   string `json:"Dual_port"`
	Device     string `json:"Device"`
	QPs        int    `json:"Number_of_qps"`
	Transport  string `json:"Transport_type"`
	Connection string `json:"Connection_type"`
	SRQ        string `json:"Using_SRQ"`
	PCIe       string `json:"PCIe_relax_order"`
	WRAPI      string `json:"ibv_wr_API"`
	TxDepth    *int   `json:"TX_depth,omitempty"`
	Post       int    `json:"Post_List,omitempty"`
	RxDepth    *int   `json:"RX_depth,omitempty"`
	CQMod      *int   `json:"CQ_Moderation,omitempty"`
	MTU        int    `json:"Mtu"`
	Link       string `json:"Link_type"`
	GIDIndex   int    `json:"GID_index"`
	Inline     *int   `json:"Max_inline_data,omitempty"`
	OutReads   *int   `json:"Outstand_reads,omitempty"`
	CM         string `json:"rdma_cm_QPs"`
	ROCm       string `json:"Use_ROCm_memory"`
	Exchange   string `json:"Data_ex_method"`
}

// results is a row. Numbers have the digits of the table.
type results struct {
	Size    uint64      `json:"MsgSize"`
	Iters   uint64      `json:"n_iterations"`
	Peak    json.Number `json:"BW_peak,omitempty"`
	Average json.Number `json:"BW_average,omitempty"`
	Rate    json.Number `json:"MsgRate,omitempty"`
	Min     json.Number `json:"t_min,omitempty"`
	Max     json.Number `json:"t_max,omitempty"`
	Typical json.Number `json:"t_typical,omitempty"`
	Avg     json.Number `json:"t_avg,omitempty"`
	Stdev   json.Number `json:"t_stdev,omitempty"`
	P99     json.Number `json:"percentile_99,omitempty"`
	P999    json.Number `json:"percentile_99.9,omitempty"`
	TPS     json.Number `json:"tps_average,omitempty"`
	// Ours is in no file of perftest's, and in none of our "results".
	Ours *percentiles `json:"percentiles_usec,omitempty"`
}

// ours has all rows, where perftest keeps the last.
type ours struct {
	Sizes []results `json:"sizes"`
}

type percentiles struct {
	P50  json.Number `json:"p50"`
	P90  json.Number `json:"p90"`
	P99  json.Number `json:"p99"`
	P999 json.Number `json:"p99.9"`
	Max  json.Number `json:"max"`
}

// WriteJSON writes perftest's report file, of the last row, and all rows with
// their percentiles under the key "gorxe". Before the first row it writes
// nothing.
func (p *Printer) WriteJSON(w io.Writer) error {
	if len(p.rows) == 0 {
		return nil
	}
	f := file{Info: p.t.info()}
	for i := range p.rows {
		f.Ours.Sizes = append(f.Ours.Sizes, p.rows[i].results())
	}
	f.Results = f.Ours.Sizes[len(p.rows)-1]
	f.Results.Ours = nil
	b, err := json.MarshalIndent(f, "", "")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func (t *Test) info() info {
	i := info{
		Test: t.title("_") + "Test", DualPort: "OFF", Device: t.Device, QPs: t.QPs, Transport: "IB", Connection: t.Transport,
		SRQ: onOff(t.SRQ), PCIe: "OFF", WRAPI: "OFF", MTU: t.MTU, Link: "Ethernet", GIDIndex: t.GIDIndex, CM: "OFF", ROCm: "OFF", Exchange: "Ethernet",
	}
	if t.Events {
		i.Events = "Using_" + t.Device + "_comp0"
	}
	if t.Multicast {
		i.Multicast = "on_UD"
	}
	if t.sends() {
		i.TxDepth = &t.TxDepth
	}
	if t.Post > 1 {
		i.Post = t.Post
	}
	if t.takes() {
		i.RxDepth = &t.RxDepth
	}
	if !t.Latency {
		i.CQMod = &t.CQMod
	}
	if t.reads() {
		i.OutReads = &t.OutReads
	} else {
		i.Inline = &t.Inline
	}
	return i
}

func (r *row) results() results {
	x := results{Size: r.size, Iters: r.iters}
	if l := r.lat; l != nil {
		x.Avg = number(l.avg, 2)
		if l.sorted == nil {
			x.TPS = number(l.tps, 2)
		} else {
			x.Min, x.Max, x.Typical = number(l.min, 2), number(l.max, 2), number(l.typical, 2)
			x.Stdev, x.P99, x.P999 = number(l.stdev, 2), number(l.p99, 2), number(l.p999, 2)
		}
		x.Ours = &percentiles{number(l.hist50, 3), number(l.hist90, 3), number(l.hist99, 3), number(l.hist999, 3), number(l.histogram, 3)}
		return x
	}
	n := 2
	if r.fine {
		n = 6
	}
	x.Peak, x.Average, x.Rate = number(r.peak, n), number(r.avg, n), number(r.rate, 6)
	return x
}

func number(x float64, digits int) json.Number {
	return json.Number(strconv.FormatFloat(x, 'f', digits, 64))
}
