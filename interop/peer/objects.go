package peer

import (
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
	var out struct {
		MR   int
		Addr uint64
		RKey uint32
	}
	if err := e.call("mr", args{"size": size, "access": a}, &out); err != nil {
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

// QP is a reliable connection of the guest.
type QP struct {
	ep    *Endpoint
	index int
	qpn   uint32
}

// CreateQP makes an RC queue pair with room for 128 work requests each way.
func (e *Endpoint) CreateQP() (*QP, error) {
	var out struct {
		QP  int
		QPN uint32
	}
	if err := e.call("qp", args{"type": "rc"}, &out); err != nil {
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
	return q.ep.call("connect", args{
		"qp": q.index, "dest_qpn": remote.QPN, "dgid": netip.AddrFrom16(remote.GID).String(),
		"rq_psn": remote.PSN, "sq_psn": local.PSN, "mtu": int(o.PathMTU), "timeout": o.Timeout, "retry": o.RetryCnt,
		"rnr_retry": o.RNRRetry, "min_rnr": o.MinRNRTimer, "rd_atomic": o.MaxRdAtomic,
		"dest_rd_atomic": o.MaxDestRdAtomic, "access": o.Access,
	}, nil)
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
	Flags    verbs.SendFlags // for Send

	RemoteAddr       uint64
	RKey             uint32
	Imm              uint32 // host order
	CompareAdd, Swap uint64 // atomics
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
	if w.Pieces != nil {
		a["pieces"] = w.Pieces
	}
	switch w.Code {
	case verbs.WRFetchAdd:
		a["add"] = w.CompareAdd
	case verbs.WRCmpSwap:
		a["compare"], a["swap"] = w.CompareAdd, w.Swap
	}
	return a, nil
}

// Recv posts a receive request.
func (q *QP) Recv(w *Work) error {
	a := args{"qp": q.index, "mr": w.MR.index, "off": w.Off, "len": w.Len, "id": w.ID}
	if w.Pieces != nil {
		a["pieces"] = w.Pieces
	}
	return q.ep.call("recv", a, nil)
}

// Poll returns up to n completions of the endpoint, as soon as there are n or
// wait has passed.
func (e *Endpoint) Poll(n int, wait time.Duration) ([]verbs.WC, error) {
	var out struct {
		WC []struct {
			ID                    uint64
			Status, Opcode, Flags int
			Len, Vendor, Imm, QPN uint32
		}
	}
	if err := e.callFor(wait+e.Timeout, "poll", args{"n": n, "ms": wait.Milliseconds()}, &out); err != nil {
		return nil, err
	}
	wcs := make([]verbs.WC, len(out.WC))
	for i, w := range out.WC {
		wcs[i] = verbs.WC{
			ID: w.ID, Status: verbs.WCStatus(w.Status), Opcode: verbs.WCOpcode(w.Opcode), Flags: verbs.WCFlags(w.Flags),
			VendorErr: w.Vendor, ByteLen: w.Len, Imm: w.Imm, QPN: w.QPN,
		}
	}
	return wcs, nil
}
