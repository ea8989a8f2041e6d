package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// MaxSRQWR is how many receive requests a shared receive queue holds at most.
const MaxSRQWR = 1 << 15

// SRQConfig describes a shared receive queue. Zero fields mean the defaults in
// parentheses.
type SRQConfig struct {
	MaxWR  int // receive requests (1024)
	MaxSGE int // scatter/gather entries of each (4)
}

// SRQ is a shared receive queue: queue pairs that were created with it take
// their receive requests from it. It is safe for concurrent use.
type SRQ struct {
	pd     *PD
	info   SRQInfo
	cfg    SRQConfig
	mu     sync.Mutex
	rq     *RecvQueue
	recvs  recvTrack
	closed atomic.Bool
}

// CreateSRQ creates a shared receive queue.
func (p *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	if cfg.MaxWR == 0 {
		cfg.MaxWR = 1024
	}
	if cfg.MaxSGE == 0 {
		cfg.MaxSGE = 4
	}
	if cfg.MaxWR < 1 || cfg.MaxWR > MaxSRQWR {
		return nil, fmt.Errorf("verbs: SRQConfig.MaxWR is %d, the range is 1..%d", cfg.MaxWR, MaxSRQWR)
	}
	if cfg.MaxSGE < 1 || cfg.MaxSGE > MaxSGE {
		return nil, fmt.Errorf("verbs: SRQConfig.MaxSGE is %d, the range is 1..%d", cfg.MaxSGE, MaxSGE)
	}
	info, err := p.ctx.p.CreateSRQ(SRQReq{PD: p.h, MaxWR: cfg.MaxWR, MaxSGE: cfg.MaxSGE})
	if err != nil {
		return nil, err
	}
	rq, err := NewRecvQueue(info.Ring, cfg.MaxWR, cfg.MaxSGE)
	if err != nil {
		return nil, errors.Join(err, p.ctx.p.Destroy(KindSRQ, info.Handle))
	}
	return &SRQ{pd: p, info: info, cfg: cfg, rq: rq, recvs: recvTrack{maxSGE: cfg.MaxSGE}}, nil
}

// Config returns what the queue was created with, defaults filled in.
func (s *SRQ) Config() SRQConfig { return s.cfg }

// Handle names the queue in an AsyncEvent.
func (s *SRQ) Handle() Handle { return s.info.Handle }

// PostRecv posts receive requests in order and returns how many were taken;
// when that is fewer than all, err tells why of the next one.
func (s *SRQ) PostRecv(wr []RecvWR) (n int, err error) {
	bounce := s.pd.ctx.bounce.on.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pd.ctx.closed.Load() || s.closed.Load() {
		return 0, fmt.Errorf("%w: the shared receive queue", ErrClosed)
	}
	for i := 0; i < len(wr) && err == nil; i++ {
		if bounce {
			err = s.recvs.put(&s.pd.ctx.bounce, s.rq, &wr[i])
		} else {
			err = s.rq.Put(&wr[i])
		}
		if err == nil {
			n++
		}
	}
	if n > 0 {
		s.rq.Publish()
	}
	return n, s.pd.ctx.full(err)
}

// SetLimit arms the limit: EventSRQLimit is reported once, when fewer than n
// requests are left (at once if that is so already). 0 disarms it. IBA
// 10.2.9.3.
func (s *SRQ) SetLimit(n int) error {
	if n < 0 || n > s.cfg.MaxWR {
		return fmt.Errorf("verbs: an SRQ limit of %d, the range is 0..%d", n, s.cfg.MaxWR)
	}
	return s.pd.ctx.p.ModifySRQ(s.info.Handle, n)
}

// Limit returns the limit that is armed, 0 when none is.
func (s *SRQ) Limit() (int, error) { return s.pd.ctx.p.QuerySRQ(s.info.Handle) }

// Destroy frees the queue; no queue pair may use it any more. Requests in it
// complete nowhere.
func (s *SRQ) Destroy() error {
	s.mu.Lock() // posts under way end first: the ring may go
	defer s.mu.Unlock()
	if err := s.pd.ctx.p.Destroy(KindSRQ, s.info.Handle); err != nil {
		return err
	}
	s.closed.Store(true)
	s.recvs.clear()
	return nil
}
