package server_test

import (
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// FuzzSocket says what a client would not: the input is a sequence of messages (see
// says). The daemon must not crash, must answer or hang up, and holds nothing when
// the client has gone: no object, no descriptor.
func FuzzSocket(f *testing.F) {
	f.Add(talk(
		say{op: control.OpAllocPD},
		say{op: control.OpCreateCQ, body: control.Append(nil, &control.CreateCQReq{Depth: 8})},
		say{op: control.OpRegMR, body: control.Append(nil, &control.RegMRReq{Access: 15, Len: 5000}), handle: 1, at: 0},
		say{op: control.OpCreateAH, body: control.Append(nil, &control.CreateAHReq{AV: control.AV{DGID: verbs.GIDOf(peerAddr)}}), handle: 1},
		say{op: control.OpQueryDevice}, say{op: control.OpQueryPort}, say{op: control.OpGIDs}, say{op: control.OpCounters},
	))
	f.Add(talk(
		say{op: control.OpAllocPD},
		say{op: control.OpCreateSRQ, body: control.Append(nil, &control.CreateSRQReq{MaxWR: 4, MaxSGE: 2}), handle: 1},
		say{op: control.OpModifySRQ, body: control.Append(nil, &control.LimitReq{Limit: 2}), handle: 2},
		say{op: control.OpQuerySRQ, body: control.Append(nil, &control.LimitReq{}), handle: 2},
		say{op: control.OpAllocMW, body: control.Append(nil, &control.AllocMWReq{Type: 2}), handle: 1},
		say{op: control.OpDestroy, body: control.Append(nil, &control.HandleReq{Kind: uint32(verbs.KindMW)}), handle: 3},
	))
	f.Add(talk(
		say{op: control.OpAllocPD, fd: true}, say{op: control.OpCreateCQ, body: control.Append(nil, &control.CreateCQReq{Depth: 8})},
		say{op: control.OpCreateQP, body: control.Append(nil, &control.CreateQPReq{Type: uint32(verbs.UD)}), all: true},
		say{op: control.OpModifyQP, body: control.Append(nil, &control.ModifyQPReq{Mask: 1 | 16 | 32 | 64, Attr: control.QPAttr{State: 1, Port: 1}}), handle: 3},
		say{op: control.OpAttachMcast, body: control.Append(nil, &control.McastReq{Group: [16]byte{10: 255, 11: 255, 12: 239, 15: 1}}), handle: 3},
		say{op: control.OpQueryQP, body: control.Append(nil, &control.HandleReq{}), handle: 3, fd: true},
		say{op: control.OpWake, body: control.Append(nil, &control.WakeReq{}), fd: true},
	))
	f.Add([]byte{0xff, 0x02, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		s := newSite(t, gorxe.PairConfig{Seed: 1}, server.Config{PerClient: server.Limits{Bytes: 4 << 20, QPs: 32, CQs: 32}})
		empty, files := s.server.Held(), openFiles(t)
		r := s.raw(t)
		says(r, in)
		_ = r.conn.Close()
		end := time.Now().Add(10 * time.Second)
		for !maps.Equal(empty, s.server.Held()) || openFiles(t) != files {
			require.True(t, time.Now().Before(end), "held: %v; %d descriptors, before: %d", s.server.Held(), openFiles(t), files)
			time.Sleep(20 * time.Microsecond)
		}
		require.NoError(t, s.served.Err())
	})
}

// opsByNumber are the operations that a byte of the input chooses from.
var opsByNumber = slices.Sorted(maps.Keys(structs))

// say is a message of a seed.
type say struct {
	op     control.Op
	body   []byte
	handle byte // which of the handles so far stands where at says, 0 for none
	at     byte // in fours of octets
	fd     bool
	all    bool // handles 1, 2, 2 in the first three places: CREATE_QP
}

// talk writes messages as says reads them:
//
//	octet 0  operation
//	octet 1  1: with descriptors, as many as the top three bits say, 2: the body is the message, 4: a handle is put in
//	octet 2  length of the body
//	with 4   which handle, and where
//	         body
func talk(msgs ...say) (b []byte) {
	for _, m := range msgs {
		var flags byte
		if m.fd {
			flags |= 1 | 2<<5
		}
		if m.handle > 0 {
			flags |= 4
		}
		if m.all {
			flags |= 8
		}
		b = append(b, byte(m.op), flags, byte(len(m.body)))
		if m.handle > 0 {
			b = append(b, m.handle, m.at)
		}
		b = append(b, m.body...)
	}
	return b
}

// says says what the input has, until it or the connection is at its end.
func says(r *raw, in []byte) {
	var handles []uint32
	for len(in) >= 3 {
		op, flags, n := control.Op(in[0]), in[1], int(in[2])
		if op >= 200 { // those that are likely to be there
			op = opsByNumber[int(op)%len(opsByNumber)]
		}
		var which, at int
		in = in[3:]
		if flags&4 != 0 && len(in) >= 2 {
			which, at, in = int(in[0]), int(in[1])*4, in[2:]
		}
		n = min(n, len(in))
		body := append([]byte(nil), in[:n]...)
		in = in[n:]
		put := func(which, at int) {
			if which > 0 && len(handles) > 0 && at+4 <= len(body) {
				binary.LittleEndian.PutUint32(body[at:], handles[(which-1)%len(handles)])
			}
		}
		put(which, at)
		if flags&8 != 0 {
			put(1, 0)
			put(2, 4)
			put(2, 8)
		}
		msg := body
		if flags&2 == 0 {
			msg = r.message(op, body)
		}
		var fds []int
		for range flags & 1 * (flags >> 5) {
			fds = append(fds, int(os.Stdin.Fd()))
		}
		if len(msg) == 0 || r.write(msg, fds...) != nil {
			return // an empty datagram is the end
		}
		if op == control.OpWake && flags&2 == 0 {
			continue
		}
		m, err := r.answer()
		if err != nil {
			require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "no answer, and no end")
			return
		}
		sys.CloseFDs(m.FDs...)
		if m.Status == control.OK && len(m.Body) >= 4 && len(handles) < 64 {
			handles = append(handles, binary.LittleEndian.Uint32(m.Body))
		}
	}
}
