package peer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// script is a peer that expects requests and gives answers.
func script(t *testing.T, steps ...[2]string) *Endpoint {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _ = a.Close() })
	go func() {
		defer b.Close()
		lines := bufio.NewScanner(b)
		for _, s := range steps {
			if !lines.Scan() {
				t.Errorf("no request, want %s", s[0])
				return
			}
			if !reflect.DeepEqual(exactly(t, lines.Bytes()), exactly(t, []byte(s[0]))) {
				t.Errorf("request %s, want %s", lines.Bytes(), s[0])
			}
			if _, err := b.Write([]byte(s[1] + "\n")); err != nil {
				t.Error(err)
			}
		}
	}()
	return New(a)
}

// exactly decodes JSON without rounding its numbers.
func exactly(t *testing.T, b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Errorf("%s: %v", b, err)
	}
	return v
}

func TestRequests(t *testing.T) {
	e := script(t,
		[2]string{`{"op":"mr","size":4096,"access":1}`, `{"ok":true,"mr":3,"addr":140000000000000,"rkey":4660,"lkey":1}`},
		[2]string{`{"op":"poke","mr":3,"off":9,"data":"0a0b"}`, `{"ok":true}`},
		[2]string{`{"op":"peek","mr":3,"off":9,"len":2}`, `{"ok":true,"data":"0a0b"}`},
		[2]string{`{"op":"qp","type":"rc"}`, `{"ok":true,"qp":1,"qpn":17}`},
		[2]string{`{"op":"send","qp":1,"code":"cswap","mr":3,"off":8,"len":8,"id":7,"raddr":18446744073709551615,"rkey":9,"imm":0,"flags":["signaled","fence"],"pieces":[[8,3],[16,5]],"compare":72623859790382856,"swap":1}`, `{"ok":true}`},
		[2]string{
			`{"op":"together","calls":[` +
				`{"op":"send","qp":1,"code":"read","mr":3,"off":8,"len":1,"id":8,"raddr":1,"rkey":9,"imm":0,"flags":["signaled"]},` +
				`{"op":"send","qp":1,"code":"fadd","mr":3,"off":8,"len":8,"id":9,"raddr":8,"rkey":9,"imm":0,"flags":[],"add":5}]}`, `{"ok":true}`,
		},
		[2]string{`{"op":"poll","n":2,"ms":1500}`, `{"ok":true,"wc":[{"id":7,"status":10,"opcode":128,"len":8,"vendor":1,"imm":287454020,"qpn":17,"flags":2}]}`},
		[2]string{`{"op":"counters"}`, `{"ok":true,"rcvd_seq_err":2,"sent_pkts":3}`},
	)
	m, err := e.RegMR(4096, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	if m.Addr() != 140000000000000 || m.RKey() != 4660 {
		t.Errorf("region %+v", m)
	}
	if err := m.Write(9, []byte{10, 11}); err != nil {
		t.Error(err)
	}
	if b, err := m.Read(9, 2); err != nil || string(b) != "\n\v" {
		t.Errorf("read %x, %v", b, err)
	}
	q, err := e.CreateQP(verbs.RC, nil)
	if err != nil || q.QPN() != 17 {
		t.Fatalf("queue pair %+v, %v", q, err)
	}
	// Values that a float64 cannot hold arrive whole.
	if err := q.Send(&Work{ID: 7, Code: verbs.WRCmpSwap, MR: m, Off: 8, Len: 8, Pieces: [][2]int{{8, 3}, {16, 5}}, Flags: verbs.SendSignaled | verbs.SendFence, RemoteAddr: 1<<64 - 1, RKey: 9, CompareAdd: 0x0102030405060708, Swap: 1}); err != nil {
		t.Error(err)
	}
	if err := q.Send(
		&Work{ID: 8, Code: verbs.WRRead, MR: m, Off: 8, Len: 1, RemoteAddr: 1, RKey: 9, Flags: verbs.SendSignaled},
		&Work{ID: 9, Code: verbs.WRFetchAdd, MR: m, Off: 8, Len: 8, RemoteAddr: 8, RKey: 9, CompareAdd: 5},
	); err != nil {
		t.Error(err)
	}
	wc, err := e.Poll(2, 1500*time.Millisecond)
	want := []verbs.WC{{ID: 7, Status: verbs.WCRemAccessErr, Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, VendorErr: 1, ByteLen: 8, Imm: 0x11223344, QPN: 17}}
	if err != nil || !reflect.DeepEqual(wc, want) {
		t.Errorf("completions %+v, %v", wc, err)
	}
	c, err := e.Counters()
	if err != nil || c["rcvd_seq_err"] != 2 || c["sent_pkts"] != 3 || len(c) != 2 {
		t.Errorf("counters %v, %v", c, err)
	}
}

// Datagrams, groups and shared receive queues.
func TestDatagramRequests(t *testing.T) {
	e := script(t,
		[2]string{`{"op":"mr","size":4096,"access":1}`, `{"ok":true,"mr":0,"addr":4096,"rkey":1}`},
		[2]string{`{"op":"srq","max_wr":16}`, `{"ok":true,"srq":2}`},
		[2]string{`{"op":"qp","type":"ud","srq":2}`, `{"ok":true,"qp":1,"qpn":18}`},
		[2]string{`{"op":"connect","qp":1,"qkey":286331153,"sq_psn":7}`, `{"ok":true}`},
		[2]string{`{"op":"recv","srq":2,"mr":0,"off":8,"len":99,"id":3}`, `{"ok":true}`},
		[2]string{`{"op":"attach","qp":1,"group":"::ffff:239.1.2.3","join":true}`, `{"ok":true}`},
		[2]string{`{"op":"send","qp":1,"code":"send_imm","mr":0,"off":0,"len":9,"id":4,"raddr":0,"rkey":0,"imm":5,"flags":["signaled"],"dgid":"ff0e::1","dest_qpn":16777215,"qkey":19088743,"tclass":72,"hop":64}`, `{"ok":true}`},
		[2]string{`{"op":"reply","qp":1,"code":"send","mr":0,"off":0,"len":9,"id":5,"raddr":0,"rkey":0,"imm":0,"flags":[],"wc":3,"grh_mr":0,"grh_off":8,"qkey":19088743}`, `{"ok":true}`},
		[2]string{`{"op":"poll","n":1,"ms":0}`, `{"ok":true,"wc":[{"id":3,"status":0,"opcode":128,"len":49,"vendor":0,"imm":0,"qpn":18,"flags":1,"src":77}]}`},
		[2]string{`{"op":"detach","qp":1,"group":"::ffff:239.1.2.3"}`, `{"ok":true}`},
	)
	m, err := e.RegMR(4096, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.CreateSRQ(16)
	if err != nil {
		t.Fatal(err)
	}
	q, err := e.CreateQP(verbs.UD, s)
	if err != nil || q.QPN() != 18 {
		t.Fatalf("queue pair %+v, %v", q, err)
	}
	group := verbs.GIDOf(netip.MustParseAddr("239.1.2.3"))
	for i, err := range []error{
		q.Activate(verbs.DatagramOptions{QKey: 0x11111111, PSN: 7}),
		s.Recv(&Work{ID: 3, MR: m, Off: 8, Len: 99}),
		q.Attach(group),
		q.Send(&Work{
			ID: 4, Code: verbs.WRSendImm, MR: m, Len: 9, Imm: 5, Flags: verbs.SendSignaled,
			To: verbs.AV{DGID: verbs.GIDOf(netip.MustParseAddr("ff0e::1")), TrafficClass: 72}, QPN: 0xffffff, QKey: 0x01234567,
		}),
		q.Reply(&Work{ID: 5, Code: verbs.WRSend, MR: m, Len: 9, QKey: 0x01234567}, 3, m, 8),
	} {
		if err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	wc, err := e.Poll(1, 0)
	want := []verbs.WC{{ID: 3, Opcode: verbs.WCRecv, Flags: verbs.WCGRH, ByteLen: 49, QPN: 18, SrcQP: 77}}
	if err != nil || !reflect.DeepEqual(wc, want) {
		t.Errorf("completions %+v, %v", wc, err)
	}
	if err := q.Detach(group); err != nil {
		t.Error(err)
	}
}

// A refusal leaves the connection good; an answer that never comes does not.
func TestErrors(t *testing.T) {
	e := script(t,
		[2]string{`{"op":"mr","size":-1,"access":0}`, `{"ok":false,"error":"PyverbsRDMAError: Failed to register"}`},
		[2]string{`{"op":"mr","size":1,"access":0}`, `{"ok":true,"mr":0,"addr":1,"rkey":1}`},
		[2]string{`{"op":"state","qp":0}`, `no JSON`},
	)
	var refused *Error
	if _, err := e.RegMR(-1, 0); !errors.As(err, &refused) || refused.Op != "mr" {
		t.Errorf("a refusal is %v", err)
	}
	if _, err := e.RegMR(1, 0); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	q := &QP{ep: e}
	if _, err := q.State(); err == nil || errors.As(err, &refused) && refused.Op == "state" {
		t.Errorf("an answer that is no JSON is %v", err)
	}
	if _, err := e.RegMR(1, 0); err == nil {
		t.Error("a broken connection is used again")
	}
}

func TestSilence(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	go func() { _, _ = b.Read(make([]byte, 4096)) }()
	e := New(a)
	e.Timeout = 10 * time.Millisecond
	if _, err := e.Counters(); err == nil {
		t.Error("no answer is an answer")
	}
}
