package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// result is one round.
type result struct {
	rows []row

	dropped  uint64 // packets lost on purpose, both ways
	repeated uint64 // request packets sent again
	seqNAKs  uint64
	implied  uint64
	timeouts uint64
}

func (r *result) count(a, b map[string]uint64) {
	for _, k := range []string{"fault_tx_drop", "fault_rx_drop", "fault_both_drop"} {
		r.dropped += a[k]
	}
	r.repeated = a["repeated_requests"] + b["repeated_requests"]
	r.seqNAKs = a["packet_seq_err"] + b["packet_seq_err"]
	r.implied = a["implied_nak_seq_err"] + b["implied_nak_seq_err"]
	r.timeouts = a["local_ack_timeout_err"] + b["local_ack_timeout_err"]
}

func table(out io.Writer, faults string, clean, lossy *result) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "operation\toctets\tclean wire\twith loss\tdata\t\n")
	for i := range clean.rows {
		c, l := &clean.rows[i], &lossy.rows[i]
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t\n", c.op.name, c.op.size, c.rate(), l.rate(), l.check)
	}
	w.Flush()
	fmt.Fprintln(out)
	for _, r := range clean.rows {
		if r.op.code == verbs.WRWrite && r.bursts > 0 {
			fmt.Fprintf(out, "Clean wire: the packets of RDMA WRITE left in super-packets of %.1f.\n", float64(r.packets)/float64(r.bursts))
		}
	}
	fmt.Fprintf(out, "With loss (%s): %d packets dropped; %d sequence NAKs, %d implied NAKs, %d timeouts; %d packets sent again.\nEvery operation completed once and in order; the data at the far end are right.\n",
		faults, lossy.dropped, lossy.seqNAKs, lossy.implied, lossy.timeouts, lossy.repeated)
}

// rate is the time of one for those that run one at a time; otherwise payload
// bits a second for large messages, operations a second for small.
func (r *row) rate() string {
	s := max(r.took.Seconds(), 1e-9)
	switch {
	case len(r.times) > 0:
		return fmt.Sprintf("%s, worst %s", brief(r.times[len(r.times)/2]), brief(r.times[len(r.times)-1]))
	case r.op.size >= 4096:
		return fmt.Sprintf("%.2f Gbit/s", float64(r.n)*float64(r.op.size)*8/s/1e9)
	}
	return fmt.Sprintf("%.0f k/s", float64(r.n)/s/1e3)
}

func brief(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.0f us", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}
