package pingpong

import (
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// A wr_id is, as in the original, 1 for a receive and 2 for a send; above these
// bits a receive has its slot.
const (
	recvWR   = 1
	sendWR   = 2
	slotBits = 2
)

// lane is a queue pair of a run, and its peer. It sends when its last message
// has left and the answer has come.
type lane struct {
	qp      *verbs.QP
	ah      *verbs.AH // UD
	local   verbs.Endpoint
	peer    verbs.Endpoint
	pending int // what must complete before the next send
	slot    int // where the last message came to, or -1
	wr      [1]verbs.SendWR
}

func (r *run) addLane(i int) error {
	most := verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	if r.srq == nil {
		most.MaxRecvWR = r.cfg.RxDepth
	}
	q, err := r.pd.CreateQP(verbs.QPConfig{Type: r.svc.typ, SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq, Cap: most})
	if err != nil {
		return err
	}
	r.own(q.Destroy)
	r.lanes = append(r.lanes, &lane{qp: q, slot: -1, wr: [1]verbs.SendWR{{
		ID: sendWR, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.buf.sendSGE(i)},
	}}})
	return nil
}

// up brings the queue pairs that have a peer to RTS, with the original's
// attributes, and posts the receives.
func (r *run) up() error {
	used := r.lanes[:0]
	for _, l := range r.lanes {
		if l.peer.QPN == 0 {
			continue
		}
		used = append(used, l)
		up := r.upConnected
		if r.svc.typ == verbs.UD {
			up = r.upDatagram
		}
		if err := up(l); err != nil {
			return err
		}
	}
	r.lanes = used
	r.recv[0].SGL = make([]verbs.SGE, 1)
	return r.postRecv()
}

func (r *run) upConnected(l *lane) error {
	return l.qp.Connect(l.local, l.peer, verbs.ConnectOptions{
		PathMTU: verbs.MTU(r.cfg.MTU), MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		MinRNRTimer: 12, Timeout: r.cfg.ackTimeout, RetryCnt: 7, RNRRetry: 7, HopLimit: hopLimit, SL: uint8(r.cfg.SL),
	})
}

func (r *run) upDatagram(l *lane) (err error) {
	if err := l.qp.Activate(verbs.DatagramOptions{QKey: qkey, PSN: l.local.PSN}); err != nil {
		return err
	}
	l.ah, err = r.pd.CreateAH(verbs.AV{DGID: l.peer.GID, SGIDIndex: l.local.GIDIndex, HopLimit: hopLimit, SL: uint8(r.cfg.SL)})
	if err != nil {
		return err
	}
	r.own(l.ah.Destroy)
	l.wr[0].AH, l.wr[0].RemoteQPN, l.wr[0].RemoteQKey = l.ah.Handle(), l.peer.QPN, qkey
	return nil
}

// postRecv posts receives up to the depth.
func (r *run) postRecv() error {
	post := r.lanes[0].qp.PostRecv
	if r.srq != nil {
		post = r.srq.PostRecv
	}
	for ; r.posted < r.cfg.RxDepth; r.posted++ {
		s := r.buf.take()
		r.recv[0].ID, r.recv[0].SGL[0] = uint64(recvWR|s<<slotBits), r.buf.recvSGE(s)
		if _, err := post(r.recv[:]); err != nil {
			return fmt.Errorf("couldn't post receive (%d): %w", r.posted, err)
		}
	}
	return nil
}

func (r *run) postSend(l *lane) error {
	if r.check.on {
		r.prepare(l)
	}
	if _, err := l.qp.PostSend(l.wr[:]); err != nil {
		return fmt.Errorf("couldn't post send: %w", err)
	}
	r.sends++
	l.pending = recvWR | sendWR
	return nil
}

// prepare makes the message to be sent of the one that came, if one did.
func (r *run) prepare(l *lane) {
	i := 0
	for r.lanes[i] != l {
		i++
	}
	if l.slot < 0 {
		r.check.prepare(r.buf.message(i), nil, r.sends)
		return
	}
	r.check.prepare(r.buf.message(i), r.buf.received(l.slot), r.sends)
	r.buf.put(l.slot)
	l.slot = -1
}

func (r *run) complete(w *verbs.WC) error {
	if err := r.failure(w); err != nil {
		return fmt.Errorf("%w\n  check: %s", err, r.hint(w))
	}
	l := r.laneOf(w.QPN)
	what := int(w.ID) & (recvWR | sendWR)
	switch what {
	case sendWR:
		r.sent++
	case recvWR:
		if r.posted--; r.posted <= len(r.lanes) {
			if err := r.postRecv(); err != nil {
				return err
			}
		}
		if r.svc.typ == verbs.UD && w.SrcQP != l.peer.QPN {
			r.strays.Add(1)
			return nil
		}
		if err := r.received(l, w); err != nil {
			return err
		}
	}
	l.pending &^= what
	if r.sends < r.cfg.Iters && l.pending == 0 {
		return r.postSend(l)
	}
	return nil
}

func (r *run) received(l *lane, w *verbs.WC) error {
	r.recvd.Add(1)
	if n := int(w.ByteLen) - r.svc.grh; n != r.cfg.Size {
		return fmt.Errorf("the peer sends %d octets, this side expects %d: give both the same -s", n, r.cfg.Size)
	}
	l.slot = int(w.ID >> slotBits)
	r.stamp()
	if r.check.on {
		r.check.examine(r.buf.received(l.slot))
	}
	return nil
}

func (r *run) laneOf(qpn uint32) *lane {
	for _, l := range r.lanes {
		if l.qp.QPN() == qpn {
			return l
		}
	}
	return nil // the queue is of these alone
}

// failure is w's error. Its reason, which looks for the cause in the network, is
// left out of a lost peer's when fault rules are at work.
func (r *run) failure(w *verbs.WC) error {
	err := w.Err()
	var s *verbs.StatusError
	if r.cfg.Faults != "" && w.Status == verbs.WCRetryExcErr && errors.As(err, &s) {
		s.Reason = trace.None
	}
	return err
}

// hint adds what the reason alone cannot know: the parameters that commonly
// differ between the two ends.
func (r *run) hint(w *verbs.WC) string {
	if r.cfg.Faults != "" {
		return "the fault rules of this side break traffic on purpose: " + r.cfg.Faults
	}
	switch w.Status {
	case verbs.WCRetryExcErr:
		return fmt.Sprintf("does the peer still run, is %v its address on this network, by a GID of RoCE v2 (-g on both sides), does UDP port 4791 pass, do packets of path MTU %d (-m)?", r.lanes[0].peer.GID.Addr(), r.cfg.MTU)
	case verbs.WCLocLenErr, verbs.WCRemInvReqErr, verbs.WCWRFlushErr:
		return "the same -s and -m on both sides?"
	}
	return "what does the peer print?"
}
