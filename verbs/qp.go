package verbs

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
)

// QPConfig describes a queue pair.
type QPConfig struct {
	Type           QPType // RC when zero
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // shared receive queue (RC, UD); nil for one of its own
	Cap            QPCap
	SignalAll      bool // every send request completes, whatever its flags
}

// QP is a queue pair.
type QP struct {
	pd   *PD
	info QPInfo
	typ  QPType
	cap  QPCap

	sqMu sync.Mutex
	sq   *SendQueue
	rqMu sync.Mutex
	rq   *RecvQueue // nil with an SRQ
	srq  *SRQ

	sendCQ, recvCQ *CQ
	sends          sendTrack
	recvs          recvTrack // unused with an SRQ

	stMu  sync.Mutex // one Modify at a time
	state atomic.Uint32
}

// QPN returns the queue pair number.
func (q *QP) QPN() uint32 { return q.info.QPN }

// Type returns the transport service.
func (q *QP) Type() QPType { return q.typ }

// Cap returns the capacity it was created with.
func (q *QP) Cap() QPCap { return q.cap }

// Endpoint returns what the peer at an address must know: QPN, a random first
// PSN, and the GID from which that peer is reached.
func (q *QP) Endpoint(peer netip.Addr) (Endpoint, error) {
	g, err := q.pd.ctx.ChooseGID(peer)
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{QPN: q.info.QPN, PSN: q.info.PSN, GID: g.GID, GIDIndex: g.Index}, nil
}

// ConnectOptions are the attributes of a connection. A field left 0 has its
// default, that of DefaultConnectOptions; Zero in it is a literal 0 (a Timeout
// that never ends, an RNRRetry that fails at once).
type ConnectOptions struct {
	PathMTU MTU // the same at both ends; 0 means the port's active MTU
	Access  Access
	// MaxRdAtomic is how many READs and atomics this end has outstanding at
	// most: no more than the peer's MaxDestRdAtomic, which is how many it
	// answers at once.
	MaxRdAtomic     int
	MaxDestRdAtomic int
	// MinRNRTimer is how long a peer that found no receive request here is
	// told to wait: a code, 0 to 31 (1 is 10 us, 12 is 0.64 ms, 0 is 655 ms;
	// IBA table 46).
	MinRNRTimer uint8
	// Timeout is how long an answer is waited for: 4.096 us * 2^Timeout (14
	// is 67 ms); 0 is for ever.
	Timeout  uint8
	RetryCnt uint8 // sendings after the first without progress, 0 to 7, literally
	RNRRetry uint8 // the same after RNR NAKs, 0 to 6; 7 is for ever

	// FlowControl makes end-to-end credits bind; see QPAttr. Only for a peer
	// that has it too: ConnectX and Soft-RoCE peers set up over TCP have not.
	FlowControl bool

	TrafficClass uint8 // DSCP and ECN of the IP header
	HopLimit     uint8 // TTL; 0 means 64
	SL           uint8 // service level, 0 to 7; see AV

	StaticRate Rate   // of the address vector; see AV
	RateLimit  uint32 // kb/s; see QPAttr. QP.SetRateLimit changes it later
}

// Zero is a literal 0 in a field of ConnectOptions, and NoAccess no permission at
// all.
const (
	Zero            = 0xff
	NoAccess Access = 1 << 31
)

// DefaultConnectOptions returns defaults that do not hurt: timeout 14 (67 ms),
// retry count 7, infinite RNR retries, RNR timer 12 (0.64 ms), 16 READs and
// atomics each way, all remote access.
func DefaultConnectOptions() ConnectOptions {
	return ConnectOptions{
		Access: AccessAll, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7, HopLimit: 64,
	}
}

// Literal returns o with Zero in every field that is 0, for those who mean each
// as it stands; PathMTU and HopLimit keep their defaults.
func (o ConnectOptions) Literal() ConnectOptions {
	if o.Access == 0 {
		o.Access = NoAccess
	}
	for _, f := range []*uint8{&o.MinRNRTimer, &o.Timeout, &o.RetryCnt, &o.RNRRetry} {
		if *f == 0 {
			*f = Zero
		}
	}
	for _, f := range []*int{&o.MaxRdAtomic, &o.MaxDestRdAtomic} {
		if *f == 0 {
			*f = Zero
		}
	}
	return o
}

// complete puts defaults and literal zeros in their places.
func (o ConnectOptions) complete() ConnectOptions {
	d := DefaultConnectOptions()
	pick(&o.Access, d.Access, NoAccess)
	pick(&o.MaxRdAtomic, d.MaxRdAtomic, Zero)
	pick(&o.MaxDestRdAtomic, d.MaxDestRdAtomic, Zero)
	pick(&o.MinRNRTimer, d.MinRNRTimer, Zero)
	pick(&o.Timeout, d.Timeout, Zero)
	pick(&o.RetryCnt, d.RetryCnt, Zero)
	pick(&o.RNRRetry, d.RNRRetry, Zero)
	pick(&o.HopLimit, d.HopLimit, 0)
	return o
}

func pick[T comparable](v *T, def, zero T) {
	var none T
	switch *v {
	case none:
		*v = def
	case zero:
		*v = none
	}
}

// Connect takes an RC or UC queue pair from RESET through INIT and RTR to RTS.
// Local is what Endpoint returned and the peer was told.
func (q *QP) Connect(local, remote Endpoint, o ConnectOptions) error {
	if q.typ == UD {
		return fmt.Errorf("%w: a UD queue pair is not connected; Activate it, and name a destination (AH, RemoteQPN, RemoteQKey) in each SendWR", ErrState)
	}
	o = o.complete()
	if o.PathMTU == 0 {
		p, err := q.pd.ctx.Port()
		if err != nil {
			return err
		}
		o.PathMTU = p.ActiveMTU
	}
	a := QPAttr{
		State: StateInit, Port: 1, Access: o.Access, PathMTU: o.PathMTU, DestQPN: remote.QPN, RQPSN: remote.PSN, SQPSN: local.PSN,
		AV:          AV{DGID: remote.GID, SGIDIndex: local.GIDIndex, TrafficClass: o.TrafficClass, HopLimit: o.HopLimit, SL: o.SL, StaticRate: o.StaticRate},
		MaxRdAtomic: o.MaxRdAtomic, MaxDestRdAtomic: o.MaxDestRdAtomic,
		MinRNRTimer: o.MinRNRTimer, Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry,
		FlowControl: o.FlowControl, RateLimit: o.RateLimit,
	}
	if err := q.Modify(&a, AttrState|AttrPKeyIndex|AttrPort|AttrAccess); err != nil {
		return err
	}
	rtr, rts := AttrState|AttrAV|AttrPathMTU|AttrDestQPN|AttrRQPSN, AttrState|AttrSQPSN
	if o.RateLimit != 0 {
		rtr |= AttrRateLimit
	}
	if q.typ == RC {
		rtr |= AttrMaxDestRdAtomic | AttrMinRNRTimer | AttrFlowControl
		rts |= AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic
	}
	a.State = StateRTR
	if err := q.Modify(&a, rtr); err != nil {
		return err
	}
	a.State = StateRTS
	return q.Modify(&a, rts)
}

// SetRateLimit bounds the rate of a queue pair that is connected, or activated, in
// kb/s of IP packets; 0 is no limit. It takes effect at once.
func (q *QP) SetRateLimit(kbps uint32) error {
	return q.Modify(&QPAttr{RateLimit: kbps}, AttrRateLimit)
}

// DatagramOptions are the attributes of a UD queue pair.
type DatagramOptions struct {
	// QKey must be that of the sender's SendWR for a datagram to be taken.
	QKey uint32
	// PSN is the first PSN sent; receivers take any. 0 means a random one.
	PSN uint32
}

// Activate takes a UD queue pair from RESET through INIT and RTR to RTS.
func (q *QP) Activate(o DatagramOptions) error {
	if q.typ != UD {
		return fmt.Errorf("%w: Activate is for UD queue pairs; Connect this %v one", ErrState, q.typ)
	}
	if o.PSN == 0 {
		o.PSN = q.info.PSN
	}
	a := QPAttr{State: StateInit, Port: 1, QKey: o.QKey, SQPSN: o.PSN}
	if err := q.Modify(&a, AttrState|AttrPKeyIndex|AttrPort|AttrQKey); err != nil {
		return err
	}
	a.State = StateRTR
	if err := q.Modify(&a, AttrState); err != nil {
		return err
	}
	a.State = StateRTS
	return q.Modify(&a, AttrState|AttrSQPSN)
}

// AttachMulticast makes a UD queue pair receive what is sent to a multicast
// group, an IPv4 or IPv6 multicast address as GID, with its Q_Key. The device
// joins the group at its interface. What the queue pair itself sends there does
// not come back to it.
func (q *QP) AttachMulticast(group GID) error {
	return q.pd.ctx.p.AttachMulticast(q.info.Handle, group)
}

// DetachMulticast ends what AttachMulticast began.
func (q *QP) DetachMulticast(group GID) error {
	return q.pd.ctx.p.DetachMulticast(q.info.Handle, group)
}

// Modify changes attributes, and the state when m has AttrState. It returns an
// error that names what is missing, too much or out of range.
func (q *QP) Modify(a *QPAttr, m AttrMask) error {
	q.stMu.Lock()
	defer q.stMu.Unlock()
	if m&AttrState != 0 && a.State == StateReset {
		q.sqMu.Lock()
		defer q.sqMu.Unlock()
		q.rqMu.Lock()
		defer q.rqMu.Unlock()
		if err := q.pd.ctx.p.ModifyQP(q.info.Handle, a, m); err != nil {
			return err
		}
		q.sq.Reset()
		if q.rq != nil {
			q.rq.Reset()
		}
		q.forget()
		q.state.Store(uint32(StateReset))
		return nil
	}
	if err := q.pd.ctx.p.ModifyQP(q.info.Handle, a, m); err != nil {
		return err
	}
	if m&AttrState != 0 {
		q.state.Store(uint32(a.State))
	}
	return nil
}

// Query returns all attributes; State is the current state.
func (q *QP) Query() (QPAttr, error) {
	a, _, err := q.pd.ctx.p.QueryQP(q.info.Handle)
	return a, err
}

// Stats returns the queue pair's counters by name.
func (q *QP) Stats() (QPStats, error) {
	_, s, err := q.pd.ctx.p.QueryQP(q.info.Handle)
	return s, err
}

// PostSend posts send requests in order and returns how many were taken; when
// that is fewer than all, err tells why of the next one. What was taken runs.
// It never blocks; on success it does not allocate.
func (q *QP) PostSend(wr []SendWR) (n int, err error) {
	if q.pd.ctx.closed.Load() {
		return 0, ErrClosed
	}
	bounce := q.pd.ctx.bounce.on.Load()
	q.sqMu.Lock()
	for n = range wr {
		if err = q.checkSend(&wr[n]); err == nil {
			if bounce {
				err = q.putShadowed(&wr[n])
			} else {
				err = q.sq.Put(&wr[n])
			}
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		n = len(wr)
	}
	if n > 0 {
		q.sq.Publish()
	}
	q.sqMu.Unlock()
	if n > 0 {
		q.pd.ctx.p.Doorbell(q.info.Handle)
	}
	return n, q.pd.ctx.full(err)
}

func (q *QP) checkSend(w *SendWR) error {
	switch w.Opcode {
	case WRSend, WRSendImm:
	case WRWrite, WRWriteImm:
		if q.typ == UD {
			return fmt.Errorf("%w: a UD queue pair only sends", ErrInvalidWR)
		}
	case WRRead, WRCmpSwap, WRFetchAdd, WRSendInv:
		if q.typ != RC {
			return fmt.Errorf("%w: %v needs an RC queue pair, this is %v", ErrInvalidWR, w.Opcode, q.typ)
		}
	case WRLocalInv, WRBindMW:
		if err := q.checkLocal(w); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: unknown opcode %d", ErrInvalidWR, w.Opcode)
	}
	if q.typ == UD {
		if err := q.checkDatagram(w); err != nil {
			return err
		}
	}
	switch q.postState() {
	case StateReset, StateInit, StateRTR:
		return fmt.Errorf("%w: send request posted before RTS; connect the queue pair first", ErrState)
	case stateDestroyed:
		return fmt.Errorf("%w: the queue pair was destroyed", ErrClosed)
	}
	return nil
}

// checkDatagram refuses what a UD queue pair would drop without a word: IBA
// C10-93.1.1 lets no completion tell of a message that is too long.
func (q *QP) checkDatagram(w *SendWR) error {
	n := uint64(len(w.Inline))
	if w.Flags&SendInline == 0 {
		n = 0
		for i := range w.SGL {
			n += uint64(w.SGL[i].Length)
		}
	}
	switch {
	case w.AH == 0:
		return fmt.Errorf("%w: a UD send request needs an address handle (PD.CreateAH)", ErrInvalidWR)
	case n > uint64(q.info.MaxDatagram):
		return fmt.Errorf("%w: %d octets, a UD message is one packet of at most %d, the port's active MTU", ErrInvalidWR, n, q.info.MaxDatagram)
	}
	return nil
}

// postState is the state as far as the program set it: enough to refuse what
// can never be posted.
func (q *QP) postState() QPState { return QPState(q.state.Load()) }

// stateDestroyed is the last state of a QP, one that no device knows.
const stateDestroyed QPState = 0xff

// PostRecv posts receive requests, like PostSend.
func (q *QP) PostRecv(wr []RecvWR) (n int, err error) {
	if q.pd.ctx.closed.Load() {
		return 0, ErrClosed
	}
	if q.srq != nil {
		return 0, fmt.Errorf("%w: the queue pair has a shared receive queue; post to that", ErrInvalidWR)
	}
	bounce := q.pd.ctx.bounce.on.Load()
	q.rqMu.Lock()
	err = q.checkRecv()
	for i := 0; i < len(wr) && err == nil; i++ {
		if bounce {
			err = q.recvs.put(&q.pd.ctx.bounce, q.rq, &wr[i])
		} else {
			err = q.rq.Put(&wr[i])
		}
		if err == nil {
			n++
		}
	}
	if n > 0 {
		q.rq.Publish()
	}
	flush := n > 0 && q.rq.flushing() // there may be no ring of one that is destroyed
	q.rqMu.Unlock()
	if flush {
		q.pd.ctx.p.Doorbell(q.info.Handle)
	}
	return n, q.pd.ctx.full(err)
}

func (q *QP) checkRecv() error {
	switch q.postState() {
	case stateDestroyed:
		return fmt.Errorf("%w: the queue pair was destroyed", ErrClosed)
	case StateReset:
		return fmt.Errorf("%w: receive request posted in RESET; Modify to INIT first", ErrState)
	}
	return nil
}

// Destroy frees the queue pair. On the wire it falls silent; completions that
// are in its queues stay there.
func (q *QP) Destroy() error {
	q.stMu.Lock()
	defer q.stMu.Unlock()
	q.sqMu.Lock() // posts under way end first: the rings may go
	defer q.sqMu.Unlock()
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	b := &q.pd.ctx.bounce
	b.life.Lock()
	defer b.life.Unlock()
	if err := q.pd.ctx.p.Destroy(KindQP, q.info.Handle); err != nil {
		return err
	}
	q.state.Store(uint32(stateDestroyed))
	q.forget()
	b.removeQP(q)
	if q.srq != nil {
		q.srq.recvs.leave(q.srq.rq)
	}
	return nil
}
