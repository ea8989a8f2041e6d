package script

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Every way in which a queue pair may do otherwise than the script says is
// found, and told with the line, what came, and the last packets.
func TestFailures(t *testing.T) {
	write := "qp rc epsn=100\n0ms < WRITE_ONLY psn=100 len=4 ack\n"
	send := "qp rc psn=100 timeout=14\n0ms post send id=1 len=4\n"
	sent := send + "0ms > SEND_ONLY psn=100 ack\n"
	for _, c := range []struct{ name, text, want string }{
		{"opcode", write + "> NAK_SEQ psn=100", "x:3: > NAK_SEQ psn=100\n\tgot > ACK psn=100 msn=1\n\tsyndrome is 0x1f, not 0x60"},
		{"other opcode", write + "> ATOMIC_ACK", "opcode is RC_ACK"},
		{"psn", write + "> ACK psn=101", "psn is 100, not 101"},
		{"msn", write + "> ACK msn=2", "msn is 1, not 2"},
		{"ack flag", write + "> ACK ack", "ack is false"},
		{"credits", write + "> ACK credits=3", "syndrome is 0x1f, not 0x3"},
		{"rnr", write + "> RNR_NAK", "syndrome is ACK"},
		{"rnr for ack", "qp rc\n0ms < SEND_ONLY psn=100 ack\n> ACK", "syndrome is RNR NAK timer 12"},
		{"dest", write + "> ACK dest=0x13", "dest is 0x12, not 0x13"},
		{"nothing sent", write + "> ACK\n> ACK", "nothing was sent by 0s"},
		{"too early", write + "1ms > ACK", "a packet left at 0s already"},
		{"too early for a range", write + "1ms..2ms > ACK", "a packet left at 0s already"},
		{"too late", sent + "1ms..60ms > SEND_ONLY psn=100 ack", "nothing was sent by 60ms"},
		{"too early by the timer", sent + "100ms > SEND_ONLY psn=100 ack", "a packet left at 68.108864ms already"},
		{"not quiet", write + "1ms quiet", "x:3: 1ms quiet\n\t1 packets were sent that nothing expects:\n\t\t0s > ACK psn=100 msn=1"},
		{"left over packet", write, "x:2: (the end)\n\t1 packets were sent"},
		{"left over send completion", sent + "0ms < ACK psn=100", "a completion that nothing expects: cq send SUCCESS id=1 op=send len=0"},
		{"left over receive completion", "qp rc\nrecv id=7 len=8\n0ms < SEND_ONLY psn=100 len=4", "cq recv SUCCESS id=7 op=recv len=4"},
		{"no completion", send + "> SEND_ONLY ack\ncq send id=1", "nothing completed by 0s"},
		{"early completion", sent + "0ms < ACK psn=100\n1ms cq send id=1", "it completed at 0s already"},
		{"status", sent + "0ms < ACK psn=100\ncq send REM_OP_ERR id=1", "status is SUCCESS"},
		{"id", sent + "0ms < ACK psn=100\ncq send id=2", "id is 0x1, not 0x2"},
		{"op", sent + "0ms < ACK psn=100\ncq send op=write", "op is send"},
		{"reason", sent + "0ms < NAK_OP psn=100\ncq send REM_OP_ERR reason=wr_flushed", "reason is req_remote_operational"},
		{"length", "qp rc\nrecv id=7 len=8\n0ms < SEND_ONLY psn=100 len=4\ncq recv len=5", "len is 0x4, not 0x5"},
		{"immediate", "qp rc\nrecv id=7 len=8\n0ms < SEND_ONLY_IMM psn=100 imm=4\ncq recv", "immediate data: true, 0x4"},
		{"no immediate", "qp rc\nrecv id=7 len=8\n0ms < SEND_ONLY psn=100\ncq recv imm=4", "immediate data: false"},
		{"solicited", "qp rc\nrecv id=7 len=8\n0ms < SEND_ONLY psn=100 se\ncq recv", "solicited is true"},
		{"payload", "qp rc\n0ms < READ_REQ psn=100 dma=4\n> READ_RESP_ONLY data=00000100", "payload differs: octet 2 is 00, not 01"},
		{"payload length", "qp rc\n0ms < READ_REQ psn=100 dma=4\n> READ_RESP_ONLY len=5", "payload is 4 octets, not 5"},
		{"memory", write + "> ACK\nmem m+2 5a5b", "memory differs: octet 1 is 5a, not 5b"},
		{"memory beyond", write + "> ACK\nmem m+65535 0000", "region m has 65536 octets"},
		{"memory far beyond", write + "> ACK\nmem m+0xffffffffffffffff 00", "region m has 65536 octets"},
		{"word", write + "> ACK\nword m 1", "the word is 0x"},
		{"state", write + "> ACK\nstate ERR", "state is RTS"},
		{"modify", "qp rc\nmodify mtu=512", "refused: verbs: queue pair state"},
		{"not refused", "qp rc\nmodify state=sqd refused", "it was not refused"},
		{"post", "qp rc inline=4\npost send inline data=0011223344", "refused: verbs: invalid work request"},
		{"post not refused", "qp rc\npost send refused", "it was not refused"},
		{"event", "qp rc\nmodify state=sqd\nevent none", "events are [SQ_DRAINED]"},
		{"no event", "qp rc\nevent COMM_EST", "events are []"},
		{"count", write + "> ACK\ncount duplicate_request=1", "duplicate_request is 0"},
		{"time", "qp rc\n1ms quiet\n0ms quiet", "it is 1ms already"},
		{"withdrawn twice", "qp rc\nregion g addr=0x90000\nwithdraw g\nwithdraw g", "no region has this key"},
		{"other kind", "qp rc device\n", "a whole device"},
		{"endless", "qp rc epsn=100\nregion m size=0x1000000\n" + strings.Repeat("< READ_REQ psn=100 dma=0x1000000\n", 2), "more than 65536 packets"},
		{"region", "qp rc\nregion g addr=0xffffffffffffff00 size=512\n", "wraps the address space"},
	} {
		s, err := Parse("x", c.text)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, shift := range []uint32{0, 0xffff9b} {
			if err := s.Run(Options{Shift: shift}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
			}
		}
	}
}

// A failure knows its place, and the packets before it as a script would have
// them.
func TestFailure(t *testing.T) {
	s, err := Parse("x", "qp rc epsn=100\n0ms < WRITE_ONLY psn=100 va=m+16 data=0102 ack\n0ms > ACK psn=99\n")
	if err != nil {
		t.Fatal(err)
	}
	var f *Failure
	if err := s.Run(Options{}); !errors.As(err, &f) {
		t.Fatal(err)
	}
	if f.File != "x" || f.Line != 3 || f.Text != "0ms > ACK psn=99" || f.Why == nil {
		t.Errorf("%+v", f)
	}
	want := "0s < WRITE_ONLY psn=100 va=m+16 rkey=m dma=2 len=2 ack, 0s > ACK psn=100 msn=1"
	if got := strings.Join(f.Packets, ", "); got != want {
		t.Errorf("packets %s\nwant    %s", got, want)
	}
}

// What a log has of the packets is a script again.
func TestLogIsAScript(t *testing.T) {
	for _, s := range load(t) {
		var log []string
		err := s.Run(Options{Log: func(line string) { log = append(log, line) }})
		if errors.Is(err, ErrOther) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, line := range log {
			if strings.Contains(line, "octets") { // of what was no packet
				continue
			}
			header := "qp " + strings.ToLower(s.Type().String()) + "\n"
			for _, g := range s.regions {
				header += "region " + g.name + "\n"
			}
			for _, w := range s.windows {
				header += "window " + w.Name + "\n"
			}
			if _, err := Parse("log", header+line+"\n"); err != nil {
				t.Errorf("%s: %v", s.File, err)
			}
		}
	}
}

// slow is a queue pair whose timers run late.
type slow struct {
	Subject
	late int64
}

func (s *slow) Timer(now int64) int64 {
	d := s.Subject.Timer(now - s.late)
	if d == Never {
		return d
	}
	return d + s.late
}

// Slack lets timers be late, not early.
func TestSlack(t *testing.T) {
	s, err := Parse("x", `qp rc psn=100
0ms    post send id=1 len=4
0ms    > SEND_ONLY psn=100 ack
0ms    < RNR_NAK psn=100 timer=12
640us  > SEND_ONLY psn=100 ack
640us  < ACK psn=100
640us  cq send id=1
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		late  int64
		slack time.Duration
		want  string
	}{{0, 0, ""}, {5000, 5 * time.Microsecond, ""}, {5001, 5 * time.Microsecond, "nothing was sent by 645"}, {-1, 5 * time.Microsecond, "already"}} {
		make := func(s *Setup) (Subject, error) {
			e, err := Engine(s)
			return &slow{e, c.late}, err
		}
		err := s.Run(Options{Make: make, Slack: c.slack})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("late %d, slack %v: %v", c.late, c.slack, err)
		}
	}
}
