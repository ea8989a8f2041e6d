package peer

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// MR is a memory region of the guest, of its own memory.
type MR struct {
	ep    *Endpoint
	index int
	addr  uint64
	rkey  uint32
}

// RegMR registers size octets with an access.
func (e *Endpoint) RegMR(size int, a verbs.Access) (*MR, error) {
	return e.regMR(args{"size": size, "access": a})
}

// RegForeignMR does so in another protection domain than the endpoint's own.
func (e *Endpoint) RegForeignMR(size int, a verbs.Access) (*MR, error) {
	return e.regMR(args{"size": size, "access": a, "foreign": true})
}

func (e *Endpoint) regMR(a args) (*MR, error) {
	var out struct {
		MR   int
		Addr uint64
		RKey uint32
	}
	if err := e.call("mr", a, &out); err != nil {
		return nil, err
	}
	return &MR{e, out.MR, out.Addr, out.RKey}, nil
}

// Addr is the region's first address, RKey its remote key.
func (m *MR) Addr() uint64 { return m.addr }

// RKey is the key by which others reach the region.
func (m *MR) RKey() uint32 { return m.rkey }

// Deregister ends the region.
func (m *MR) Deregister() error { return m.ep.call("dereg", args{"mr": m.index}, nil) }

// Write puts b into the region at an offset.
func (m *MR) Write(off int, b []byte) error {
	return m.ep.call("poke", args{"mr": m.index, "off": off, "data": hex.EncodeToString(b)}, nil)
}

// Read returns n octets of the region from an offset.
func (m *MR) Read(off, n int) ([]byte, error) {
	var out struct{ Data string }
	if err := m.ep.call("peek", args{"mr": m.index, "off": off, "len": n}, &out); err != nil {
		return nil, err
	}
	return hex.DecodeString(out.Data)
}

// SRQ is a shared receive queue of the guest.
type SRQ struct {
	ep    *Endpoint
	index int
}

// CreateSRQ makes a shared receive queue with room for n requests.
func (e *Endpoint) CreateSRQ(n int) (*SRQ, error) {
	var out struct{ SRQ int }
	if err := e.call("srq", args{"max_wr": n}, &out); err != nil {
		return nil, err
	}
	return &SRQ{e, out.SRQ}, nil
}

// SetLimit arms the limit: an event when fewer than n requests are left.
func (s *SRQ) SetLimit(n int) error {
	return s.ep.call("srq_limit", args{"srq": s.index, "limit": n}, nil)
}

// Recv posts a receive request.
func (s *SRQ) Recv(w *Work) error { return s.ep.recv(w, args{"srq": s.index}) }

// QP is a queue pair of the guest.
type QP struct {
	ep    *Endpoint
	index int
	qpn   uint32
}

// CreateQP makes a queue pair with room for 128 work requests each way. s may
// be nil.
func (e *Endpoint) CreateQP(t verbs.QPType, s *SRQ) (*QP, error) {
	var out struct {
		QP  int
		QPN uint32
	}
	a := args{"type": strings.ToLower(t.String())}
	if s != nil {
		a["srq"] = s.index
	}
	if err := e.call("qp", a, &out); err != nil {
		return nil, err
	}
	return &QP{e, out.QP, out.QPN}, nil
}

// QPN is the queue pair's number.
func (q *QP) QPN() uint32 { return q.qpn }

// Connect takes the queue pair to RTS. Of the local endpoint only the PSN
// counts: the first one sent. The zero value of a ConnectOptions is not a
// default here.
func (q *QP) Connect(local, remote verbs.Endpoint, o verbs.ConnectOptions) error {
	return q.ep.call("connect", q.connectArgs(local, remote, o), nil)
}

// Listen takes the queue pair to RTR, where it receives and does not send.
func (q *QP) Listen(local, remote verbs.Endpoint, o verbs.ConnectOptions) error {
	a := q.connectArgs(local, remote, o)
	a["rtr"] = true
	return q.ep.call("connect", a, nil)
}

func (q *QP) connectArgs(local, remote verbs.Endpoint, o verbs.ConnectOptions) args {
	return args{
		"qp": q.index, "dest_qpn": remote.QPN, "dgid": netip.AddrFrom16(remote.GID).String(),
		"rq_psn": remote.PSN, "sq_psn": local.PSN, "mtu": int(o.PathMTU), "timeout": o.Timeout, "retry": o.RetryCnt,
		"rnr_retry": o.RNRRetry, "min_rnr": o.MinRNRTimer, "rd_atomic": o.MaxRdAtomic,
		"dest_rd_atomic": o.MaxDestRdAtomic, "access": o.Access,
		"tclass": o.TrafficClass,
	}
}

// CNP is a congestion notification packet that the guest's program makes by hand: its
// Soft-RoCE never sends one.
type CNP struct {
	To       uint32 // queue pair number
	Src, Dst netip.Addr
	MAC      string // of the destination, as 02:00:00:00:00:64
	Count    int    // how often it is sent
}

// CNP sends CNPs, through a packet socket.
func (e *Endpoint) CNP(c CNP) error {
	return e.call("cnp", args{"dest_qpn": c.To, "src": c.Src.String(), "dst": c.Dst.String(), "mac": c.MAC, "n": c.Count}, nil)
}

// Activate takes a UD queue pair to RTS.
func (q *QP) Activate(o verbs.DatagramOptions) error {
	return q.ep.call("connect", args{"qp": q.index, "qkey": o.QKey, "sq_psn": o.PSN}, nil)
}

// Attach makes a UD queue pair receive what is sent to a multicast group. The
// guest's kernel does not tell its IP layer, which is made to let the group's
// packets in by a socket.
func (q *QP) Attach(group verbs.GID) error {
	return q.ep.call("attach", args{"qp": q.index, "group": netip.AddrFrom16(group).String(), "join": true}, nil)
}

// Detach ends what Attach began.
func (q *QP) Detach(group verbs.GID) error {
	return q.ep.call("detach", args{"qp": q.index, "group": netip.AddrFrom16(group).String()}, nil)
}

// State returns the queue pair's state.
func (q *QP) State() (verbs.QPState, error) {
	var out struct{ State int }
	err := q.ep.call("state", args{"qp": q.index}, &out)
	return verbs.QPState(out.State), err
}

// MoveTo changes the queue pair's state to RESET, SQD or ERR.
func (q *QP) MoveTo(s verbs.QPState) error {
	return q.ep.call("modify", args{"qp": q.index, "to": strings.ToLower(s.String())}, nil)
}

// Destroy destroys the queue pair.
func (q *QP) Destroy() error { return q.ep.call("destroy", args{"qp": q.index}, nil) }

// Work is a work request, of pieces of one region.
type Work struct {
	ID       uint64
	Code     verbs.WROpcode // for Send
	MR       *MR
	Off, Len int
	Pieces   [][2]int        // offsets and lengths, instead of Off and Len
	Twist    uint32          // bits of the local key that are to be wrong
	Flags    verbs.SendFlags // for Send

	RemoteAddr       uint64
	RKey             uint32
	Imm              uint32 // host order
	CompareAdd, Swap uint64 // atomics

	To        verbs.AV // UD; of it the GID, traffic class and hop limit (0: 64)
	QPN, QKey uint32   // UD
}

var codes = map[verbs.WROpcode]string{
	verbs.WRSend: "send", verbs.WRSendImm: "send_imm", verbs.WRSendInv: "send_inv", verbs.WRWrite: "write",
	verbs.WRWriteImm: "write_imm", verbs.WRRead: "read", verbs.WRFetchAdd: "fadd", verbs.WRCmpSwap: "cswap",
}

var flagNames = []struct {
	flag verbs.SendFlags
	name string
}{
	{verbs.SendSignaled, "signaled"}, {verbs.SendSolicited, "solicited"}, {verbs.SendFence, "fence"}, {verbs.SendInline, "inline"},
}

// Send posts send requests, without a pause between them.
func (q *QP) Send(ws ...*Work) error {
	var calls []args
	for _, w := range ws {
		a, err := q.sendArgs(w)
		if err != nil {
			return err
		}
		if len(ws) == 1 {
			return q.ep.call("send", a, nil)
		}
		a["op"] = "send"
		calls = append(calls, a)
	}
	return q.ep.call("together", args{"calls": calls}, nil)
}

func (q *QP) sendArgs(w *Work) (args, error) {
	code, ok := codes[w.Code]
	if !ok {
		return nil, fmt.Errorf("peer: no name for %v", w.Code)
	}
	a := args{
		"qp": q.index, "code": code, "mr": w.MR.index, "off": w.Off, "len": w.Len, "id": w.ID,
		"raddr": w.RemoteAddr, "rkey": w.RKey, "imm": w.Imm,
	}
	flags := []string{}
	for _, f := range flagNames {
		if w.Flags&f.flag != 0 {
			flags = append(flags, f.name)
		}
	}
	a["flags"] = flags
	w.spoil(a)
	if w.To.DGID != (verbs.GID{}) {
		a["dgid"], a["dest_qpn"], a["qkey"] = netip.AddrFrom16(w.To.DGID).String(), w.QPN, w.QKey
		a["tclass"], a["hop"] = w.To.TrafficClass, cmp.Or(w.To.HopLimit, 64)
	}
	switch w.Code {
	case verbs.WRFetchAdd:
		a["add"] = w.CompareAdd
	case verbs.WRCmpSwap:
		a["compare"], a["swap"] = w.CompareAdd, w.Swap
	}
	return a, nil
}

// Reply sends to where a datagram came from: by its completion, the last with
// that ID, and the 40 octets at an offset of a region that it began with. The
// guest's library makes the address handle of them (ibv_create_ah_from_wc).
func (q *QP) Reply(w *Work, id uint64, grh *MR, off int) error {
	a, err := q.sendArgs(w)
	if err != nil {
		return err
	}
	delete(a, "dgid")
	delete(a, "dest_qpn")
	a["wc"], a["grh_mr"], a["grh_off"], a["qkey"] = id, grh.index, off, w.QKey
	return q.ep.call("reply", a, nil)
}

// Recv posts a receive request.
func (q *QP) Recv(w *Work) error { return q.ep.recv(w, args{"qp": q.index}) }

func (e *Endpoint) recv(w *Work, a args) error {
	a["mr"], a["off"], a["len"], a["id"] = w.MR.index, w.Off, w.Len, w.ID
	w.spoil(a)
	return e.call("recv", a, nil)
}

// spoil adds what few requests have.
func (w *Work) spoil(a args) {
	if w.Pieces != nil {
		a["pieces"] = w.Pieces
	}
	if w.Twist != 0 {
		a["twist"] = w.Twist
	}
}

// Poll returns up to n completions of the endpoint, as soon as there are n or
// wait has passed.
func (e *Endpoint) Poll(n int, wait time.Duration) ([]verbs.WC, error) {
	var out struct {
		WC []struct {
			ID                         uint64
			Status, Opcode, Flags      int
			Len, Vendor, Imm, QPN, Src uint32
		}
	}
	if err := e.callFor(wait+e.Timeout, "poll", args{"n": n, "ms": wait.Milliseconds()}, &out); err != nil {
		return nil, err
	}
	wcs := make([]verbs.WC, len(out.WC))
	for i, w := range out.WC {
		wcs[i] = verbs.WC{
			ID: w.ID, Status: verbs.WCStatus(w.Status), Opcode: verbs.WCOpcode(w.Opcode), Flags: verbs.WCFlags(w.Flags),
			VendorErr: w.Vendor, ByteLen: w.Len, Imm: w.Imm, QPN: w.QPN, SrcQP: w.Src,
		}
	}
	return wcs, nil
}

// UseCQ makes a new completion queue, for the queue pairs to come and for Poll.
func (e *Endpoint) UseCQ(depth int) error { return e.call("use_cq", args{"depth": depth}, nil) }

// Events returns the asynchronous events of the endpoint since the last call.
func (e *Endpoint) Events() ([]verbs.AsyncEvent, error) {
	var out struct {
		Events []struct {
			Type int
			QPN  uint32
		}
	}
	if err := e.call("events", nil, &out); err != nil {
		return nil, err
	}
	var es []verbs.AsyncEvent
	for _, v := range out.Events {
		es = append(es, verbs.AsyncEvent{Type: verbs.EventType(v.Type), QPN: v.QPN})
	}
	return es, nil
}
