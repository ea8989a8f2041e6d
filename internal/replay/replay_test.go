package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
)

// edited is a conversation with events of its own.
func edited(c *Conversation, edit func(events []event) []event) *Conversation {
	d := *c
	d.events = edit(slices.Clone(c.events))
	return &d
}

// wrongs are ways in which a recorded packet may be wrong, each with the packets
// that can be wrong in it.
var wrongs = []struct {
	name string
	edit func(p *bth.Packet) bool
}{
	{"MSN", func(p *bth.Packet) bool { p.MSN++; return p.Info().Ext&bth.ExtAETH != 0 }},
	{"AckReq", func(p *bth.Packet) bool { p.AckReq = !p.AckReq; return true }},
	{"P_Key", func(p *bth.Packet) bool { p.PKey = 0x8001; return true }},
	{"destination QP", func(p *bth.Packet) bool { p.DestQP++; return true }},
	{"pad", func(p *bth.Packet) bool { p.Pad ^= 1; return true }},
	{"BECN", func(p *bth.Packet) bool { p.BECN = true; return true }},
	{"solicited", func(p *bth.Packet) bool { p.SE = true; return p.Info().Has(bth.Response | bth.First | bth.Middle) }},
	{"PSN", func(p *bth.Packet) bool { p.PSN = p.PSN.Add(1000); return p.Info().Has(bth.Response) }},
	{"NAK code", func(p *bth.Packet) bool { p.Syndrome ^= 3; return p.Syndrome.Kind() == bth.KindNAK }},
	{"FIRST", func(p *bth.Packet) bool { p.Opcode = bth.RCReadRespFirst; return p.Opcode == bth.RCReadRespMiddle }},
	{"MIDDLE", func(p *bth.Packet) bool {
		was := p.Opcode
		p.Opcode = bth.RCReadRespMiddle
		return was == bth.RCReadRespLast
	}},
}

// Every packet of the recorded side counts: whichever is wrong, in whatever, it
// is found.
func TestFindsWrong(t *testing.T) {
	tried := 0
	for _, name := range []string{"rping", "err_rnrwait", "ucmatose", "err_mixwrap"} {
		c := recorded(t, name)[0]
		step := len(wrongs)
		if name == "err_mixwrap" {
			step *= 12
		}
		for k, w := range wrongs {
			for i := k; i < len(c.events); i += step {
				d := edited(c, func(ev []event) []event {
					if !w.edit(&ev[i].pkt) {
						return nil
					}
					return ev
				})
				if d.events == nil {
					continue
				}
				tried++
				res, err := Run(d, Options{Side: c.events[i].from.Other()})
				if err == nil && res.Differences == 0 {
					t.Errorf("%s, frame %d, %s: not found: %s", name, c.events[i].frame, w.name, res.Summary())
				}
			}
		}
	}
	require.Greater(t, tried, 45)
}

// An answer that is missing, without a sign of a loss, is a difference; so is
// one too many.
func TestFindsMissing(t *testing.T) {
	c := recorded(t, "err_mixwrap")[0]
	tried := 0
	for i := range c.events {
		e := &c.events[i]
		if op := e.pkt.Info().Op; e.from != B || i%5 != 0 || op != bth.OpReadResp && op != bth.OpAtomicAck {
			continue
		}
		tried++
		for what, edit := range map[string]func(ev []event) []event{
			"missing": func(ev []event) []event { return slices.Delete(ev, i, i+1) },
			"twice":   func(ev []event) []event { return slices.Insert(ev, i, ev[i]) },
		} {
			res, err := Run(edited(c, edit), Options{Side: A})
			require.NoError(t, err)
			if e.pkt.Info().Has(bth.First|bth.Middle) && what == "missing" {
				// Later responses to the READ prove that it was sent.
				require.Zero(t, res.Differences)
				require.Equal(t, 1, res.Lost)
				continue
			}
			require.NotZero(t, res.Differences, "frame %d %s", e.frame, what)
		}
	}
	require.Greater(t, tried, 3)
	// All ACKs may be coalesced but the last.
	res, err := Run(edited(c, func(ev []event) []event {
		return slices.DeleteFunc(ev, func(e event) bool { return e.pkt.Opcode == bth.RCAck && e.frame != ev[len(ev)-1].frame })
	}), Options{Side: A})
	require.NoError(t, err)
	require.Zero(t, res.Differences)
	require.Equal(t, 23, res.Allowed[Coalescing])
}

// A capture may begin anywhere: what belongs to earlier packets is left out, and
// the MSN goes on from where it was.
func TestBeginsLate(t *testing.T) {
	for _, name := range []string{"err_mixwrap", "rping"} {
		c := recorded(t, name)[0]
		for cut := 0; cut < len(c.events)-3; cut += 3 {
			d := edited(c, func(ev []event) []event { return ev[cut:] })
			d.cm = nil
			for _, side := range []Side{A, B} {
				res, err := Run(d, Options{Side: side})
				require.NoError(t, err)
				if res.Differences != 0 {
					var b strings.Builder
					require.NoError(t, res.Write(&b, false))
					t.Fatalf("%s from event %d, side %v:\n%s", name, cut, side, b.String())
				}
			}
		}
	}
}

// A packet may be recorded and lost behind the recorder: the side that did not
// hear it says so, and the engine does not hear it either.
func TestLostBehind(t *testing.T) {
	c := edited(recorded(t, "err_loss")[0], func(ev []event) []event {
		// PSN 259 was lost before the capture (frame 6 asks for it). Let it be
		// recorded.
		lost := ev[slices.IndexFunc(ev, func(e event) bool { return e.frame == 8 })]
		lost.frame, lost.time = 3, ev[2].time
		return slices.Insert(ev, 3, lost)
	})
	for side, lost := range []int{1, 0} {
		res, err := Run(c, Options{Side: Side(side)})
		require.NoError(t, err)
		require.Zero(t, res.Differences)
		require.Equal(t, lost, res.Unheard)
	}
}

// A long conversation takes time in proportion, also with a difference in it.
func TestLong(t *testing.T) {
	const n = 5000
	c := &Conversation{Ends: [2]Endpoint{{Addr: "a", QPN: 1}, {Addr: "b", QPN: 2}}}
	data := make([]byte, 1024)
	for i := range n {
		at, psn := time.Unix(1, int64(i)*1000), bth.MakePSN(uint32(i))
		c.events = append(c.events,
			event{2*i + 1, at, A, bth.Packet{Opcode: bth.RCSendOnly, AckReq: true, MigReq: true, PKey: 0xffff, DestQP: 2, PSN: psn, Payload: data}},
			event{2*i + 2, at, B, bth.Packet{Opcode: bth.RCAck, MigReq: true, PKey: 0xffff, DestQP: 1, PSN: psn, Syndrome: bth.AckUnlimited, MSN: uint32(i + 1)}})
	}
	c.events[n+1].pkt.MSN++ // an ACK
	for side, want := range []string{"5000 answers compared, 1 difference", "5000 answers compared, 0 differences"} {
		res, err := Run(c, Options{Side: Side(side)})
		require.NoError(t, err)
		require.Equal(t, want, res.Summary())
	}
}

// The JSON form: a line for each packet, then the summary.
func TestJSON(t *testing.T) {
	res, err := Run(recorded(t, "err_loss")[0], Options{Side: A})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, res.Write(&b, true))
	verdicts := map[string]int{}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for _, l := range lines[:len(lines)-1] {
		var v struct {
			Verdict string
			Allowed []string
		}
		require.NoError(t, json.Unmarshal([]byte(l), &v))
		verdicts[v.Verdict]++
		for _, a := range v.Allowed {
			verdicts[a]++
		}
	}
	var sum struct {
		Side                  string
		Compared, Differences int
		Allowed               map[string]int
		Lost                  int `json:"lost_before_capture"`
	}
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &sum))
	require.Equal(t, "A", sum.Side)
	require.Equal(t, 99, sum.Compared)
	require.Equal(t, 222, verdicts["played"])
	require.Equal(t, sum.Lost, verdicts["unrecorded"])
	for name, n := range sum.Allowed {
		require.Equal(t, n, verdicts[name], name)
	}
}

// What cannot be replayed is refused with a reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, hex, want string }{
		{"nothing", "# no packets\n", "no packets of a reliable connection"},
		{"other", "00", "no packets of a reliable connection"},
	} {
		r, err := pcap.NewReader(strings.NewReader(c.hex), c.name+".hex")
		require.NoError(t, err)
		_, _, err = Read(r)
		require.ErrorIs(t, err, ErrNoRC)
		require.ErrorContains(t, err, c.want)
	}
	conv := recorded(t, "err_mixwrap")[0]
	_, err := Run(edited(conv, func(ev []event) []event {
		ev[0].pkt.Payload = ev[0].pkt.Payload[:1000]
		return ev
	}), Options{Side: A})
	require.ErrorContains(t, err, "no path MTU fits")
	_, err = Run(edited(conv, func(ev []event) []event {
		ev[0].pkt.DMALen = 1 << 30
		return ev
	}), Options{Side: A})
	require.ErrorContains(t, err, "MiB of memory")
}

// No capture, however wrong, is more than refused.
func FuzzRun(f *testing.F) {
	f.Add([]byte{0, 0, 1, 5, 3, 7, 9, 1, 200})
	f.Add([]byte{4, 2, 255, 30, 4, 128, 12, 5, 1, 13, 6, 0, 40, 7, 9})
	conv := recorded(f, "rping")[0]
	mix := recorded(f, "err_rnrwait")[0]
	f.Fuzz(func(t *testing.T, edits []byte) {
		for _, c := range []*Conversation{conv, mix} {
			d := edited(c, func(ev []event) []event {
				for ; len(edits) >= 3 && len(ev) > 1; edits = edits[3:] {
					i, v := int(edits[0])%len(ev), int(edits[2])
					p := &ev[i].pkt
					switch edits[1] % 11 {
					case 0:
						p.PSN = p.PSN.Add(v - 128)
					case 1:
						p.PSN = p.PSN.Add(v << 16)
					case 2:
						p.DMALen = uint32(v) << (v & 31)
					case 3:
						p.VA += uint64(v) << (v & 63)
					case 4:
						p.RKey = uint32(v)
					case 5:
						if op := bth.Opcode(v & 0x1f); op.Info().Valid() {
							p.Opcode = op
						}
					case 6:
						p.Payload = p.Payload[:min(len(p.Payload), v)]
					case 7:
						p.Syndrome = bth.Syndrome(v)
					case 8:
						ev = slices.Delete(ev, i, i+1)
					case 9:
						ev = slices.Insert(ev, i, ev[v%len(ev)])
					case 10:
						ev[i].from = ev[i].from.Other()
					}
				}
				return ev
			})
			for _, side := range []Side{A, B} {
				res, err := Run(d, Options{Side: side})
				if err != nil {
					continue
				}
				if n := res.Compared + res.Outside; n < 0 || len(res.Lines) < len(d.events) {
					t.Fatal(fmt.Sprint(len(res.Lines), " lines of ", len(d.events)))
				}
			}
		}
	})
}
