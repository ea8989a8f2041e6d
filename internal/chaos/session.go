package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

const (
	qkey = 0x1ee7

	recvLen   = maxSend + guard // a receive buffer
	rcRecvs   = 16
	ucRecvs   = 8
	udRecvs   = 8
	allRecvs  = rcRecvs + ucRecvs + udRecvs
	grantLen  = 8
	grantFlag = 0xc000_0000 // of the immediate data of a grant; a round's number is below
	immFlag   = 0x8000_0000 // of a SEND's or WRITE's

	// idle is how long nothing happens before a session asks whether the peer is
	// there, and stuck how long before it says that something is wrong.
	idle  = 300 * time.Millisecond
	stuck = 60 * time.Second
)

// Classes of work requests, in the highest octet of their IDs.
const (
	cRC = iota + 1
	cUC
	cUD
	cBind
	cGrant
	cProbe
	cRecv
)

func id(class, n, i int) uint64 { return uint64(class)<<56 | uint64(n)<<16 | uint64(i) }

// card is what a peer must know of a session's end.
type card struct {
	RC, UC, UD verbs.Endpoint
	Dst        uint64 // arenas
	DstKey     uint32
	Fixed      uint64
	FixedKey   uint32
	Grants     uint64
	GrantKey   uint32
}

// errLost: the peer is gone, in the way that it has to look like.
var errLost = errors.New("the peer is gone")

// session is one end of one.
type session struct {
	seed  uint64
	side  int
	mem   *memory
	tally *tally

	report func() // every so often, or nil
	every  time.Duration

	rc, uc, ud *verbs.QP
	srq        *verbs.SRQ // of rc and ud, or nil
	ah         *verbs.AH
	windows    [depth]*verbs.MW
	mine, far  card
	rounds     int
	expect     []uint64  // IDs of RC's signaled requests that have not completed, in order
	moved      time.Time // when something completed last
	flushed    time.Time // when the first request was flushed

	sender
	receiver
}

// newSession makes an end and says what the peer must know. Peer is the address of the
// peer's device.
func newSession(m *memory, seed uint64, side int, peer netip.Addr, t *tally) (*session, error) {
	s := &session{seed: seed, side: side, mem: m, tally: t, rounds: rounds(seed)}
	err := s.make(peer)
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// coin is a decision that both ends make alike.
func (s *session) coin(what string) bool {
	h := s.seed
	for _, c := range []byte(what) {
		h = mix(h ^ uint64(c))
	}
	return h&1 == 1
}

func (s *session) mtu() verbs.MTU {
	if s.coin("mtu") {
		return 4096
	}
	return 1024
}

func (s *session) make(peer netip.Addr) (err error) {
	m := s.mem
	if s.coin("srq") {
		if s.srq, err = m.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 64, MaxSGE: 1}); err != nil {
			return err
		}
	}
	for _, q := range []struct {
		to  **verbs.QP
		end *verbs.Endpoint
		typ verbs.QPType
		srq *verbs.SRQ
	}{{&s.rc, &s.mine.RC, verbs.RC, s.srq}, {&s.uc, &s.mine.UC, verbs.UC, nil}, {&s.ud, &s.mine.UD, verbs.UD, s.srq}} {
		*q.to, err = m.pd.CreateQP(verbs.QPConfig{Type: q.typ, SendCQ: m.cq, RecvCQ: m.cq, SRQ: q.srq, Cap: verbs.QPCap{MaxRecvWR: 32}})
		if err != nil {
			return err
		}
		if *q.end, err = (*q.to).Endpoint(peer); err != nil {
			return err
		}
	}
	for i := range s.windows {
		if s.windows[i], err = m.pd.AllocMW(verbs.MWType2); err != nil {
			return err
		}
	}
	s.mine.Dst, s.mine.DstKey = m.dst.Addr(), m.dst.RKey()
	s.mine.Fixed, s.mine.FixedKey = m.fixed.Addr(), m.fixed.RKey()
	s.mine.Grants, s.mine.GrantKey = m.grants.Addr(), m.grants.RKey()
	return nil
}

// prepare fills the memory.
func (s *session) prepare() error {
	for _, b := range [][]byte{s.mem.dst.Bytes(), s.mem.recv.Bytes(), s.mem.src.Bytes()} {
		wipe(b)
	}
	for i := range depth {
		clear(s.mem.dst.Bytes()[i*arenaLen : i*arenaLen+wordsLen])
	}
	clear(s.mem.grants.Bytes())
	fixed(s.seed, s.side).fill(s.mem.fixed.Bytes(), 0)
	gram := maxGram
	if p, err := s.mem.dev.Port(); err != nil {
		return err
	} else if int(p.ActiveMTU) < gram {
		gram = int(p.ActiveMTU)
	}
	s.out = newScript(s.seed, s.side, gram)
	s.in = newScript(s.seed, 1-s.side, gram)
	s.got = map[int]*arrival{}
	s.sent = map[int]*sending{}
	return nil
}

// wipe fills memory with what nothing writes.
func wipe(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// connect connects to the peer, and posts receives.
func (s *session) connect(far card) (err error) {
	s.far = far
	o := verbs.ConnectOptions{
		PathMTU: s.mtu(), Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic,
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: 15, MinRNRTimer: 6,
	}
	if err := s.rc.Connect(s.mine.RC, far.RC, o); err != nil {
		return err
	}
	if err := s.uc.Connect(s.mine.UC, far.UC, o); err != nil {
		return err
	}
	if err := s.ud.Activate(verbs.DatagramOptions{QKey: qkey}); err != nil {
		return err
	}
	if s.ah, err = s.mem.pd.CreateAH(verbs.AV{DGID: far.UD.GID, SGIDIndex: s.mine.UD.GIDIndex}); err != nil {
		return err
	}
	for i := range allRecvs {
		if err := s.repost(i); err != nil {
			return err
		}
	}
	return nil
}

// run is the session, from the first grants to the last. It returns nil when all rounds
// of both directions were right, errLost when the peer ended as one that was killed, and
// ctx's error.
func (s *session) run(ctx context.Context) error {
	s.moved = time.Now()
	told := s.moved
	wc := make([]verbs.WC, 32)
	for !s.over() {
		if s.flushed.IsZero() {
			if err := errors.Join(s.grantMore(), s.sendMore()); err != nil {
				return err
			}
		} else if time.Since(s.flushed) > 5*time.Second {
			return errors.New("requests were flushed, and none says why")
		}
		wait, cancel := context.WithTimeout(ctx, idle)
		n, err := s.mem.cq.Wait(wait, wc)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			err = s.quiet()
		}
		if s.report != nil && time.Since(told) > s.every {
			told = time.Now()
			s.report()
		}
		for i := range n {
			if err == nil {
				err = s.take(&wc[i])
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) over() bool {
	return s.ended == s.rounds && s.checked == s.rounds && len(s.expect) == 0
}

// String says how far the session is.
func (s *session) String() string {
	st, err := s.rc.Stats()
	return fmt.Sprintf("%d rounds of %d begun, %d granted, %d ended, %d of the peer's checked; queue pairs %#x %#x %#x, outstanding %x, shadowed %v, srq %v, of rc %v %v",
		s.begun, s.rounds, s.allowed, s.ended, s.checked, s.rc.QPN(), s.uc.QPN(), s.ud.QPN(), s.expect, s.mem.shadowed, s.srq != nil, st, err)
}

// quiet asks whether the peer is there, when nothing is under way that would tell.
func (s *session) quiet() error {
	if d := time.Since(s.moved); d > stuck {
		return fmt.Errorf("nothing happened in %v: %v", d.Round(time.Second), s)
	}
	if len(s.expect) > 0 || !s.flushed.IsZero() {
		return nil
	}
	return s.post(s.rc, verbs.SendWR{ID: id(cProbe, 0, 0), Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, RemoteAddr: s.far.Dst, RKey: s.far.DstKey})
}

// post posts requests, and remembers those of rc that will complete.
func (s *session) post(q *verbs.QP, wrs ...verbs.SendWR) error {
	if q == s.rc {
		for i := range wrs {
			if wrs[i].Flags&verbs.SendSignaled != 0 {
				s.expect = append(s.expect, wrs[i].ID)
			}
		}
	}
	if n, err := q.PostSend(wrs); err != nil {
		return fmt.Errorf("queue pair %#x: post %d of %d requests: %w: %v", q.QPN(), n, len(wrs), err, s)
	}
	return nil
}

// take takes a completion.
func (s *session) take(wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return s.failed(wc)
	}
	if class := int(wc.ID >> 56); class != cProbe {
		s.moved = time.Now()
	}
	switch class, n, i := int(wc.ID>>56), int(wc.ID>>16)&(1<<40-1), int(wc.ID)&0xffff; class {
	case cRecv:
		return s.received(wc, i)
	case cUC, cUD:
		return s.left(n)
	default:
		if len(s.expect) == 0 || s.expect[0] != wc.ID {
			return fmt.Errorf("request %#x completes, %x are outstanding", wc.ID, s.expect)
		}
		s.expect = s.expect[1:]
		if class == cRC {
			return s.completed(n, i)
		}
	}
	return nil
}

// failed says what a failed completion means.
func (s *session) failed(wc *verbs.WC) error {
	s.tally.Errors[wc.Status.String()]++
	if wc.Status == verbs.WCRetryExcErr && wc.VendorErr == verbs.VendorRetryExceeded && wc.QPN == s.rc.QPN() {
		return errLost
	}
	if wc.Status == verbs.WCWRFlushErr && wc.QPN == s.rc.QPN() {
		// What it was flushed for comes from another queue, perhaps later.
		if s.flushed.IsZero() {
			s.flushed = time.Now()
		}
		return nil
	}
	return fmt.Errorf("%w (reason %v)", wc.Err(), wc.Reason)
}

// close destroys what is the session's own.
func (s *session) close() error {
	var errs []error
	for _, q := range []*verbs.QP{s.rc, s.uc, s.ud} {
		if q != nil {
			errs = append(errs, q.Destroy())
		}
	}
	if s.srq != nil {
		errs = append(errs, s.srq.Destroy())
	}
	if s.ah != nil {
		errs = append(errs, s.ah.Destroy())
	}
	for _, w := range s.windows {
		if w != nil {
			errs = append(errs, w.Dealloc())
		}
	}
	// Whoever is in a queue of a queue pair that is gone is of no interest.
	for wc := make([]verbs.WC, 32); s.mem.cq.Poll(wc) > 0; {
	}
	return errors.Join(errs...)
}
