package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorxe/gorxe/control/admin"
)

// WriteQPs lists the queue pairs of some devices, whose names go with the lists.
func WriteQPs(w io.Writer, devs []string, lists [][]admin.QP) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tQPN\tTYPE\tSTATE\tPEER\tPEER QPN\tOWNER\tDEPTH (SEND/RECV)\tUNDER WAY\tIN FLIGHT\tRATE")
	n := 0
	for i, l := range lists {
		for j := range l {
			q := &l[j]
			n++
			recv := fmt.Sprint(q.RecvDepth)
			if q.SRQ {
				recv = "shared"
			}
			peer, dest := "-", "-"
			if q.Peer.IsValid() {
				peer, dest = q.Peer.String(), fmt.Sprintf("%#06x", q.DestQPN)
			}
			fmt.Fprintf(t, "%s\t%#06x\t%s\t%s\t%s\t%s\t%s\t%d/%s\t%d\t%d\t%s\n", devs[i], q.QPN, q.Type, q.State, peer, dest, owner(q), q.SendDepth, recv, q.Requests, q.InFlight, bitRate(q.Rate))
		}
	}
	if n == 0 {
		_, err := fmt.Fprintf(w, "no queue pairs on %s\n", strings.Join(devs, ", "))
		return err
	}
	return t.Flush()
}

func owner(q *admin.QP) string {
	switch {
	case q.ClientID == 0:
		return "rxed"
	case q.PID == 0:
		return fmt.Sprintf("client %d", q.ClientID)
	case q.Command == "":
		return fmt.Sprint(q.PID)
	}
	return fmt.Sprintf("%d (%s)", q.PID, q.Command)
}

// WriteQP writes all there is to say of a queue pair but its counters. Now is the
// time to reckon the age of events from.
func WriteQP(w io.Writer, dev string, q *admin.QPDetail, now time.Time) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s queue pair %#06x\n", dev, q.QPN)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("type, state", "%s, %s", q.Type, q.State)
	line("owner", "%s", owner(&q.QP))
	if q.Peer.IsValid() {
		line("connected", "%s to %s, queue pair %#06x, UDP source port %d, GID index %d", q.Local, q.Peer, q.DestQPN, q.SrcPort, q.GIDIndex)
	}
	if q.PathMTU > 0 {
		line("path MTU", "%d", q.PathMTU)
	}
	if q.Type == "UD" {
		line("Q_Key", "%#08x", q.QKey)
	}
	line("depth", "%s", depth(q))
	line("under way", "%s%s", plural(q.Requests, "send request"), waiting(q))
	if slices.Contains([]string{"RTS", "SQD", "SQE", "ERR"}, q.State) {
		line("PSN to send", "%d next, %d oldest unacknowledged, %d highest sent", q.NextPSN, q.UnackedPSN, q.HighestPSN)
	}
	if q.Type == "RC" || q.Type == "UC" {
		line("PSN expected", "%d", q.ExpectedPSN)
	}
	if q.Type == "RC" {
		reliable(line, q)
	}
	rates(line, q)
	if q.Stall != "none" {
		line("waits for", "%s", stall(q.Stall))
	}
	if q.Ended != nil {
		line("ended", "%s: %s", q.Ended.Name, q.Ended.Text)
	}
	if e := q.Last; e != nil {
		line("last of note", "%s ago: %s: %s", short(int64(now.Sub(e.Time))), e.Reason, e.Text)
	}
	t.Flush()
	return out.Flush()
}

// reliable writes what only a reliable connection has.
func reliable(line func(name, format string, args ...any), q *admin.QPDetail) {
	line("messages completed", "%d as responder (MSN)", q.MSN)
	line("access", "%s", cmp.Or(strings.Join(q.Access, " "), "none"))
	line("READs and atomics", "%d outstanding of %d; %d of the peer's at once", q.Reads, q.MaxRdAtomic, q.MaxDestRd)
	line("window", "%d of %s in flight", q.InFlight, plural(q.Window, "packet"))
	credits := "do not bind"
	if q.CreditsBind {
		credits = fmt.Sprintf("%d", q.Credits)
	}
	line("credits", "%s", credits)
	rnr := fmt.Sprintf("%d of %d", q.RNRRetriesLeft, q.RNRRetry)
	if q.RNRRetry == 7 {
		rnr = "for ever"
	}
	line("retries left", "%d of %d; after RNR %s", q.RetriesLeft, q.RetryCount, rnr)
	timer := "not running"
	if q.TimerNanos >= 0 {
		timer = "fires in " + short(q.TimerNanos)
	}
	timeout := "never"
	if q.TimeoutNanos > 0 {
		timeout = fmt.Sprintf("%s (%d)", short(q.TimeoutNanos), q.Timeout)
	}
	line("timeout", "%s, timer %s", timeout, timer)
	rtt := "not measured"
	if q.RTTNanos > 0 {
		rtt = short(q.RTTNanos) + ", the longest of late"
	}
	line("round trip", "%s", rtt)
}

// rates writes what bounds the rate of what is sent.
func rates(line func(name, format string, args ...any), q *admin.QPDetail) {
	limit := "none of its own"
	if q.RateLimit != 0 {
		limit = bitRate(q.RateLimit) + " of its own"
	}
	line("rate", "%s, limit %s", cmp.Or(strings.TrimPrefix(bitRate(q.Rate), "-"), "as fast as it can"), limit)
	if q.Algorithm == "" {
		return
	}
	s := q.Algorithm
	switch {
	case q.CCRate != 0:
		s += ", rate " + bitRate(q.CCRate)
	default:
		s += ", no limit"
	}
	if q.TargetRate != 0 {
		s += ", target " + bitRate(q.TargetRate)
	}
	if q.Algorithm == "dcqcn" {
		s += fmt.Sprintf(", alpha %.4f", q.Alpha)
	}
	line("congestion control", "%s", s)
}

func depth(q *admin.QPDetail) string {
	s := fmt.Sprintf("%d send requests of %s and %d octets inline, ", q.SendDepth, entries(q.MaxSendSGE), q.MaxInline)
	if q.SRQ {
		return s + "shared receive queue"
	}
	return s + fmt.Sprintf("%d receive requests of %s, %d posted", q.RecvDepth, entries(q.MaxRecvSGE), q.Receives)
}

func waiting(q *admin.QPDetail) string {
	if q.Posted {
		return ", more in the ring"
	}
	return ""
}

func stall(s string) string {
	switch s {
	case "window":
		return "room in the congestion window"
	case "credits":
		return "the peer to post a receive request (credits)"
	case "rnr":
		return "the time that an RNR NAK asked for"
	case "pacing":
		return "its rate to be kept (pacing)"
	}
	return s
}

// WriteTrace writes events, one a line, with their age.
func WriteTrace(w io.Writer, events []admin.Event, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := range events {
		e := &events[i]
		what, psn := e.Text, fmt.Sprintf("PSN %d", e.PSN)
		if e.State != "" {
			what, psn = "now in state "+e.State, "-"
		}
		dir := map[string]string{"tx": ">", "rx": "<"}[e.Dir]
		fmt.Fprintf(t, "%s ago\t%#06x\t%s\t%s\t%s\t%s\t%s\n", short(int64(now.Sub(e.Time))), e.QPN, cmp.Or(dir, "-"), cmp.Or(e.Opcode, "-"), psn, e.Reason, what)
	}
	if len(events) == 0 {
		_, err := fmt.Fprintln(w, "the recorder holds nothing of it: there were no losses, errors or changes of state of late")
		return err
	}
	return t.Flush()
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
