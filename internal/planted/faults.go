package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fault is a mistake that was made before, or is near at hand.
type fault struct {
	name  string
	from  string // the report that tells of it, or the rule it breaks
	edits []edit
}

// edit replaces lines of a file. They stand in it once, or it is to be looked at
// again.
type edit struct{ file, old, new string }

// apply returns the files that a fault changes, as changed.
func (f *fault) apply(root string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, e := range f.edits {
		text, ok := out[e.file]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.file)); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return nil, fmt.Errorf("%s: %s has these lines %d times, not once; fit the fault to the code as it is:\n%s", f.name, e.file, n, e.old)
		}
		out[e.file] = []byte(strings.Replace(string(text), e.old, e.new, 1))
	}
	return out, nil
}

// faults are in the order of the rules they break. B numbers are those of the
// public reports that docs/rules.md lists.
var faults = []fault{
	// Sequence numbers.
	{"PSNs are compared as numbers", "B33, IBA 9.7.2", []edit{{
		"bth/psn.go",
		"return int(int32((p.v-q.v)<<8) >> 8)",
		"return int(p.v) - int(q.v)",
	}}},
	{"a sequence NAK for every packet behind a gap", "B32, C9-114", []edit{{
		"rc/responder.go",
		"r.nakked = true\n\tq.note(now, trace.NoteSequenceNAK",
		"q.note(now, trace.NoteSequenceNAK",
	}}},
	{"a NAK acknowledges the packet that it names", "B32, IBA 9.7.5.1.2", []edit{{
		"rc/acks.go",
		"p.PSN != q.req.una && !q.ackThrough(now, p.PSN.Add(-1), p)",
		"!q.ackThrough(now, p.PSN, p)",
	}}},
	{"after a loss the packet behind the lost one is the first to be sent again", "B32, B34", []edit{{
		"rc/retransmit.go",
		"q.rewind(r.una)\n\tr.deadline = math.MaxInt64 // armed",
		"if q.rewind(r.una); r.high.Diff(r.una) > 1 {\n\t\tq.rewind(r.una.Add(1))\n\t}\n\tr.deadline = math.MaxInt64 // armed",
	}}},
	{"each sign of a loss starts a restart", "B26, IBA 9.7.5.1.2", []edit{{
		"rc/retransmit.go",
		"known := r.restarted || r.next == r.una ||",
		"known := r.next == r.una ||",
	}}},

	// What ACKs cover.
	{"a later ACK covers a READ that is not answered", "B25, C9-115", []edit{{
		"rc/acks.go",
		"if w.answered() || w.Bad != verbs.WCSuccess {",
		"if w.Bad != verbs.WCSuccess {",
	}}},
	{"an ACK for a duplicate covers a READ that waits for its answer", "B25, C9-110", []edit{{
		"rc/replay.go",
		"last = f.Add(-1)",
		"_ = f",
	}}},
	{"READ responses are taken in any order", "B38, IBA 9.7.5.1.6", []edit{{
		"rc/acks.go",
		"if !q.ackThrough(now, p.PSN.Add(-1), p) || q.attr.State == verbs.StateErr {",
		"if w := r.headWQE(); (w == nil || !w.answered()) && (!q.ackThrough(now, p.PSN.Add(-1), p) || q.attr.State == verbs.StateErr) {",
	}, {
		"rc/acks.go",
		"w != nil && r.una == p.PSN && w.Bad",
		"w != nil && !p.PSN.Before(w.first) && p.PSN.Before(w.end()) && w.Bad",
	}}},

	// Duplicates.
	{"a duplicate atomic is carried out again", "B20, C9-112", []edit{{
		"rc/replay.go",
		"a.repeat(a.first, a.pkts)",
		"q.runAtomic(p)",
	}}},
	{"a duplicate READ is answered beyond what it was", "C9-111", []edit{{
		"rc/replay.go",
		"p.VA != a.va+uint64(off) || off > a.length || n > a.length-off {",
		"p.DMALen > transport.MaxMessage {",
	}}},
	{"a duplicate counts as a message", "C9-105, IBA 9.7.5.1.2", []edit{{
		"rc/replay.go",
		"q.note(now, trace.NoteDuplicate, trace.Rx, p)\n\t\tif p.AckReq {",
		"q.note(now, trace.NoteDuplicate, trace.Rx, p)\n\t\tif r.msn++; p.AckReq {",
	}}},

	// Retries.
	{"retry_cnt 7 means for ever", "B23, IBA 9.9.2.4.1", []edit{{
		"rc/retransmit.go",
		"\tr.retries--\n",
		"\tif q.attr.RetryCnt != 7 {\n\t\tr.retries--\n\t}\n",
	}}},
	{"one retry too many", "B23", []edit{{
		"rc/retransmit.go",
		"if r.retries == 0 {",
		"if r.retries < 0 {",
	}}},
	{"an ACK without progress gives the retries back", "B35, IBA 9.7.6.1.3", []edit{{
		"rc/acks.go",
		"q.note(now, trace.DropGhostAck, trace.Rx, p)\n",
		"q.note(now, trace.DropGhostAck, trace.Rx, p)\n\t\tr.retries = int(q.attr.RetryCnt)\n",
	}}},
	{"nothing waits after an RNR NAK", "B21, IBA 9.7.5.2.8", []edit{{
		"rc/retransmit.go",
		"r.rnrWait, r.probing, r.hurry = true, true, false",
		"r.rnrWait, r.probing, r.hurry = false, true, false",
	}}},
	{"rnr_retry 7 means seven", "B22", []edit{{
		"rc/retransmit.go",
		"if q.attr.RNRRetry != 7 {",
		"if true {",
	}}},

	// Resources.
	{"a WRITE with immediate takes its receive request at the first packet", "B59, IBA 9.7.5.2.8", []edit{{
		"rc/responder.go",
		"if !info.Has(bth.TakesRecv) {",
		"if !info.Has(bth.Starts) {",
	}}},
	{"a receive request that was too short serves the next message", "IBA 9.7.4.1.7", []edit{{
		"rc/responder.go",
		"len(p.Payload) > q.resp.recv.Len-q.resp.recv.Got",
		"len(p.Payload) > q.resp.recv.Len",
	}}},
	{"one READ more than was agreed", "B47", []edit{{
		"rc/requester.go",
		"len(r.reads) >= max(1, q.attr.MaxRdAtomic)",
		"len(r.reads) > max(1, q.attr.MaxRdAtomic)",
	}}},
	{"credits are not heeded", "IBA 9.7.7.2", []edit{{
		"rc/credits.go",
		"if !q.attr.FlowControl || c.unlimited || !w.takesRecv() {",
		"if true {",
	}}},
	{"a fence waits for nothing", "IBA 10.8.3.3", []edit{{
		"rc/requester.go",
		"w.Flags&verbs.SendFence != 0 && len(r.reads) > 0:",
		"false && len(r.reads) > 0:",
	}}},

	{"a local operation runs again when what is around it is sent again", "B29", []edit{{
		"rc/sq.go",
		"if w := r.at(r.cur); p.Before(w.end()) || w.Local() && !w.ran {\n",
		"if w := r.at(r.cur); p.Before(w.end()) || w.Local() {\n\t\t\tw.ran = false\n",
	}}},

	// Memory and errors.
	{"the end of a range wraps", "B05", []edit{{
		"mr/mr.go",
		"if off > uint64(len(r.Mem)) || uint64(n) > uint64(len(r.Mem))-off {",
		"if addr+uint64(n) > r.IOVA+uint64(len(r.Mem)) {",
	}}},
	{"the key of nothing is looked at", "B28, C9-88", []edit{{
		"rc/responder.go",
		"if info.Ext&bth.ExtRETH == 0 || p.DMALen == 0 {",
		"if info.Ext&bth.ExtRETH == 0 {",
	}}},
	{"pad octets are delivered", "B70, C9-95", []edit{{
		"bth/packet.go",
		"Payload: b[info.HdrLen:end:end],",
		"Payload: b[info.HdrLen : end+pad : end+pad],",
	}, {
		"transport/recv.go",
		"if int(p.Pad) != -n&3 {",
		"if n&3 != 0 {",
	}}},
	{"an atomic's result stays in network order", "B60", []edit{{
		"rc/acks.go",
		"atomic.Store(parts[0], v)",
		"copy(parts[0], []byte{byte(v >> 56), byte(v >> 48), byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})",
	}}},
	{"a refused READ or WRITE is not answered", "B40, IBA 9.9.3", []edit{{
		"rc/responder.go",
		"\t\tq.queueNAK(bth.NAKRemoteAccess)\n",
		"",
	}}},
}
