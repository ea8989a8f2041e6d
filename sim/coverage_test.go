package sim

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/rules"
	"github.com/gorxe/gorxe/script"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// sight is one thing that shows that a rule was exercised.
type sight struct{ rule, what string }

// Sights that packets and programs show; see connection, flow and refused. What
// an observer cannot tell for sure it does not count.
var (
	seenWrap          = sight{"psn-compare", "the PSN wraps inside a message"}
	seenGapNAK        = sight{"nak-once", "a sequence NAK reaches the requester"}
	seenAcksBefore    = sight{"nak-acknowledges", "a NAK acknowledges what is before its PSN"}
	seenRestartFirst  = sight{"restart-exact", "the packet that a sequence NAK names comes again: FIRST, ONLY, a READ or an atomic"}
	seenRestartMiddle = sight{"restart-exact", "... MIDDLE"}
	seenRestartLast   = sight{"restart-exact", "... LAST"}
	seenNAKAgain      = sight{"restart-once", "a second NAK of one loss"}
	seenReadPSNs      = sight{"read-psns", "a READ of several PSNs"}
	seenReadPart      = sight{"read-parts", "the next part of a long READ"}
	seenCoalesced     = sight{"coalesced-ack", "an ACK acknowledges more than one packet"}
	seenReadEnd       = sight{"read-response", "the last response of a READ, or an ATOMIC_ACK"}
	seenReadMiddle    = sight{"read-restart", "a READ is asked for again from its middle on"}
	seenAckReq        = sight{"ack-requested", "a packet asks for an ACK"}
	seenAckReqEarly   = sight{"ackreq", "a packet inside a message asks for an ACK"}
	seenOtherKind     = sight{"response-order", "an ACK follows a READ's response or an atomic's, or goes before it"}
	seenDupSend       = sight{"duplicate-send", "a SEND that was executed comes again"}
	seenDupWrite      = sight{"duplicate-write", "a WRITE that was executed comes again"}
	seenDupRead       = sight{"duplicate-read", "a READ that was executed comes again"}
	seenDupAtomic     = sight{"duplicate-atomic", "an atomic that was executed comes again"}
	seenDupDepth      = sight{"duplicate-depth", "... with max_dest_rd_atomic - 1 newer ones behind it, and that is not 1"}
	seenMSN           = sight{"msn-counts", "an answer has another MSN than the last"}
	seenReadFirst     = sight{"aeth-placement", "a READ's response of several packets"}
	seenCreditCount   = sight{"credit-offered", "an answer offers a count of credits"}
	seenNoCredit      = sight{"credit-codes", "an answer offers none"}
	seenLimited       = sight{"credit-limited-send", "FIRST of a SEND asks for an ACK when the last answer offered no credit"}
	seenNeedsNone     = sight{"credit-who", "a WRITE, READ or atomic begins when the last answer offered no credit"}
	seenUnbound       = sight{"credit-bind", "an answer where credits do not bind offers none to count"}
	seenShared        = sight{"credit-shared", "credits bind, and the receive queue is shared"}
	seenRNR           = sight{"rnr-nak", "an RNR NAK reaches the requester"}
	seenAfterRNR      = sight{"rnr-wait", "the packet that an RNR NAK names comes again"}
	seenRNRCode       = sight{"rnr-timer", "an RNR NAK with another code than 12"}
	seenFirst         = sight{"segmentation", "a message of several packets"}
	seenPad           = sight{"pad", "a packet with pad octets"}
	seenZero          = sight{"zero-length", "a message without octets"}
	seenEntries       = sight{"sge-lists", "a request of several entries"}
	seenWriteImm      = sight{"write-imm-receive", "the last packet of a WRITE with immediate"}
	seenInvalid       = sight{"error-class", "NAK 0x61, invalid request"}
	seenAccess        = sight{"error-class", "NAK 0x62, remote access error"}
	seenOperational   = sight{"error-class", "NAK 0x63, remote operational error"}
	seenReadsFull     = sight{"max-rd-atomic", "max_rd_atomic READs and atomics are outstanding"}
	seenAtomic        = sight{"atomic-operands", "an atomic"}
	seenFence         = sight{"fence", "a request with a fence behind a READ"}
	seenUnsignaled    = sight{"unsignaled", "an unsignaled request"}
	seenInline        = sight{"inline", "inline data"}
	seenFlush         = sight{"flush", "a queue pair is flushed"}
	seenLastWQE       = sight{"last-wqe", "LAST_WQE_REACHED"}
	seenUnreliable    = sight{"ackreq-unreliable", "a packet of UC or UD"}
	seenLate          = sight{"uc-duplicate", "a packet of UC behind the last comes"}
	seenLimit         = sight{"srq-limit", "a shared receive queue falls below its limit"}
)

// sights is the order of the table's rows where a rule has several.
var sights = []sight{
	seenWrap, seenGapNAK, seenAcksBefore, seenRestartFirst, seenRestartMiddle, seenRestartLast, seenNAKAgain, seenReadPSNs, seenReadPart, seenCoalesced, seenReadEnd,
	seenReadMiddle, seenAckReq, seenAckReqEarly, seenOtherKind, seenDupSend, seenDupWrite, seenDupRead, seenDupAtomic, seenDupDepth, seenMSN, seenReadFirst, seenCreditCount,
	seenNoCredit, seenLimited, seenNeedsNone, seenUnbound, seenShared, seenRNR, seenAfterRNR, seenRNRCode, seenFirst, seenPad, seenZero, seenEntries, seenWriteImm,
	seenInvalid, seenAccess, seenOperational, seenReadsFull, seenAtomic, seenFence, seenUnsignaled, seenInline, seenFlush, seenLastWQE, seenLimit, seenUnreliable, seenLate,
}

// counted are the rules that a device's counter shows, by its name.
var counted = map[string]sight{
	trace.DropOutOfOrder.String():    {"psn-window", "a request beyond a gap is dropped"},
	trace.RetryImplied.String():      {"implied-nak", "a READ or atomic is asked for again because a later answer came"},
	trace.DropGhostAck.String():      {"ghost-ack", "an ACK of what was acknowledged"},
	"ack_deffered":                   {"ack-coalescing", "an ACK is left to a later one"},
	trace.RetryTimeout.String():      {"timeout-range", "the retransmission timer fires"},
	trace.RetryAdaptive.String():     {"adaptive-retransmission", "what a NAK asked for is lost again and sent ahead of the timer"},
	trace.FailRetryExceeded.String(): {"retry-count", "all retries are used up"},
	trace.FailRNRExceeded.String():   {"rnr-retry", "all RNR retries are used up"},
	"link_tx_short":                  {"link-short", "the link takes fewer packets than offered"},
	trace.DropICRC.String():          {"icrc", "a corrupted packet is dropped"},
	trace.DropQKey.String():          {"qkey-match", "a datagram with another Q_Key is dropped"},
	"uc_lost_packets":                {"uc-gap", "a packet of UC that never came"},
	trace.DropTooLong.String():       {"ud-too-long", "a message longer than its receive request is dropped"},
	trace.DropState.String():         {"state-receive", "a packet reaches a queue pair in ERR"},
}

// coverage is what all simulations of a process came to.
type coverage struct {
	mu         sync.Mutex
	start      time.Time
	seen       map[sight]uint64
	runs       uint64
	seeds      map[uint64]bool
	packets    uint64
	violations uint64
}

var covered = coverage{start: time.Now(), seen: map[sight]uint64{}, seeds: map[uint64]bool{}}

// add takes what one run saw.
func (c *coverage) add(w *world, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.seeds[w.s.cfg.Seed] = true
	c.packets += w.s.Counts().Arrived
	if failed {
		c.violations++
	}
	for s, n := range w.seen {
		c.seen[s] += n
	}
}

// report writes the table and the verdict, and returns what was seen fewer than
// so many times.
func (c *coverage) report(w io.Writer, scripts map[string][]string, least uint64) (missed []sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == 0 {
		return nil
	}
	took := time.Since(c.start)
	rows := map[string][]sight{}
	for _, s := range sights {
		rows[s.rule] = append(rows[s.rule], s)
	}
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		rows[counted[name].rule] = append(rows[counted[name].rule], counted[name])
	}
	for _, k := range refusals {
		rows[k.rule] = append(rows[k.rule], k.sight)
	}
	for _, r := range rules.All {
		switch s := scripts[r.ID]; {
		case len(rows[r.ID]) > 0:
			for _, x := range rows[r.ID] {
				fmt.Fprintf(w, "%-22s %11d  %s\n", r.ID, c.seen[x], x.what)
				if c.seen[x] < least {
					missed = append(missed, x)
				}
			}
		case r.Gap != "":
			fmt.Fprintf(w, "%-22s %11s  %s\n", r.ID, "gap", r.Gap)
		case len(s) > 0:
			fmt.Fprintf(w, "%-22s %11s  %s\n", r.ID, "by script", strings.Join(s, " "))
		default:
			fmt.Fprintf(w, "%-22s %11s  %s\n", r.ID, "by test", strings.Join(r.Tests, ", "))
		}
	}
	fmt.Fprintf(w, "%d seeds, %d simulations, %d packets in %.1f s, %.0f packets/s, %d violations\n",
		len(c.seeds), c.runs, c.packets, took.Seconds(), float64(c.packets)/took.Seconds(), c.violations)
	return missed
}

// scriptsByRule returns the names of packet scripts by the rules they prove.
func scriptsByRule() (map[string][]string, error) {
	files, err := filepath.Glob("../script/testdata/*.pkt")
	if err != nil {
		return nil, err
	}
	by := map[string][]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := script.Parse(f, string(text))
		if err != nil {
			return nil, err
		}
		for _, id := range s.Rules {
			by[id] = append(by[id], strings.TrimSuffix(filepath.Base(f), ".pkt"))
		}
	}
	return by, nil
}

// TestSights: what is counted is of rules that there are, and each rule is
// counted, or has a script, a test or a gap.
func TestSights(t *testing.T) {
	scripts, err := scriptsByRule()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, r := range rules.All {
		known[r.ID] = true
	}
	shown := map[string]bool{}
	for _, s := range sights {
		require.Contains(t, known, s.rule)
		shown[s.rule] = true
	}
	for _, s := range counted {
		require.Contains(t, known, s.rule)
		shown[s.rule] = true
	}
	for _, s := range refusals {
		require.Contains(t, known, s.rule)
		shown[s.rule] = true
	}
	for _, r := range rules.All {
		require.True(t, shown[r.ID] || r.Gap != "" || len(scripts[r.ID])+len(r.Tests) > 0, r.ID)
	}
}

// TestObserved: what is counted is what happens, to the packet.
func TestObserved(t *testing.T) {
	for _, c := range []struct {
		faults string
		op     verbs.WROpcode
		posts  int
		want   map[sight]uint64
	}{
		{"", verbs.WRWrite, 1, map[sight]uint64{seenGapNAK: 0, seenDupWrite: 0, seenRestartMiddle: 0, seenWrap: 1, seenFirst: 1}},
		{"tx drop opcode=RC_WRITE_MIDDLE every=2 limit=1", verbs.WRWrite, 1, map[sight]uint64{seenGapNAK: 1, seenAcksBefore: 1, seenRestartMiddle: 1, seenRestartLast: 0, seenNAKAgain: 0}},
		{"tx drop opcode=RC_WRITE_ONLY every=2 limit=1", verbs.WRWrite, 3, map[sight]uint64{seenGapNAK: 1, seenRestartFirst: 1}},
		{"rx drop opcode=RC_ACK limit=1", verbs.WRWrite, 3, map[sight]uint64{seenDupWrite: 3, seenGapNAK: 0, seenCoalesced: 1}},
		{"rx drop opcode=RC_READ_RESP_MIDDLE every=3 limit=1", verbs.WRRead, 1, map[sight]uint64{seenDupRead: 1, seenReadMiddle: 1, seenReadPSNs: 2, seenReadEnd: 2}},
		{"rx drop opcode=RC_ATOMIC_ACK limit=1", verbs.WRFetchAdd, 4, map[sight]uint64{seenDupAtomic: 4, seenDupDepth: 1, seenReadsFull: 1, seenAtomic: 8}},
	} {
		s, a, b := two(t, Config{Faults: c.faults})
		w := &world{t: t, s: s, seen: map[sight]uint64{}, arriv: map[arrival]func(Packet, *bth.Packet){}}
		for _, p := range []*peer{a, b} {
			var err error
			p.host = &host{}
			p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
			require.NoError(t, err)
		}
		conn := Conn{PSN: 0xfffffd, Options: verbs.DefaultConnectOptions()}
		conn.Options.PathMTU, conn.Options.MaxRdAtomic, conn.Options.MaxDestRdAtomic = 1024, 4, 4
		require.NoError(t, Connect(a.node, b.node, a.qp, b.qp, conn))
		observe(w, a, b, &conn)
		s.Watch(w.watch)
		n := 8
		if c.posts == 1 {
			n = 20000
		}
		var wrs []verbs.SendWR
		for range c.posts {
			wrs = append(wrs, verbs.SendWR{Opcode: c.op, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
		}
		_, err := a.qp.PostSend(wrs)
		require.NoError(t, err)
		for range c.posts {
			wc, _ := done(t, s, a)
			require.NoError(t, wc.Err())
		}
		s.Run(s.Now() + time.Second)
		for k, n := range c.want {
			require.Equal(t, n, w.seen[k], "%s: %s", c.faults, k.what)
		}
	}
}
