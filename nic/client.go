package nic

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/gorxe/gorxe/verbs"
)

// bellBudget is how many doorbells of one client a step takes: one that rings all
// it has, all the time, keeps others waiting no longer than that.
const bellBudget = 64

// Client is one of several users of a device, usually another process. It has
// doorbells of its own in memory that it shares with the device, and its share of
// what the device sends: egress is by turns among clients first, then among the
// queue pairs of each (see sched.go).
//
// Whose objects are whose is for the caller to look after: a Client only makes
// those that live in shared memory. Everything else, and what destroys them, are
// methods of NIC.
type Client struct {
	n      *NIC
	id     uint32
	blocks []*verbs.BellBlock // by shard
	lanes  []*lane            // by shard
	qps    atomic.Int32
}

// Attach adds a client. Bells is its doorbells, memory for NIC.Shards of
// verbs.BellBlock, all zero, which stays the device's until Detach has returned.
// The id is for those who read QPInfo; 0 is the process itself.
func (n *NIC) Attach(id uint32, bells []byte) (*Client, error) {
	blocks, ok := verbs.BellBlocks(bells, len(n.shards))
	if !ok {
		return nil, fmt.Errorf("nic: %d octets for the doorbells of %d shards, %d are needed, aligned to 8", len(bells), len(n.shards), len(n.shards)*verbs.BellBlockLen)
	}
	c := &Client{n: n, id: id, blocks: blocks}
	for range n.shards {
		c.lanes = append(c.lanes, new(lane))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return nil, err
	}
	n.setClients(append(slices.Clone(n.others()), c))
	return c, nil
}

// Detach removes a client, which must have no queue pairs left. When it returns
// nobody looks at its doorbells.
func (c *Client) Detach() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if k := c.qps.Load(); k > 0 {
		return fmt.Errorf("%w: client %d has %d queue pairs; destroy them first", ErrInUse, c.id, k)
	}
	c.n.setClients(slices.DeleteFunc(slices.Clone(c.n.others()), func(x *Client) bool { return x == c }))
	c.n.barrier()
	for _, s := range c.n.shards {
		for s.looks.Load() > 0 { // at its doorbells, perhaps, without mu
			runtime.Gosched()
		}
	}
	return nil
}

// others returns the clients beside the process itself.
func (n *NIC) others() []*Client {
	if p := n.clients.Load(); p != nil {
		return *p
	}
	return nil
}

// setClients is called with NIC.mu held. A shard that is about to sleep may not
// have seen a new client, whose doorbells it would not tell that it sleeps: it
// looks again.
func (n *NIC) setClients(cs []*Client) {
	n.clients.Store(&cs)
	for _, s := range n.shards {
		s.wake()
	}
}

// Wake ends a shard's sleep: what a client asks for that has rung a doorbell and
// found the shard asleep.
func (c *Client) Wake(shard int) {
	if shard >= 0 && shard < len(c.n.shards) {
		c.n.shards[shard].wake()
	}
}

// ID returns the number given to Attach.
func (c *Client) ID() uint32 { return c.id }

// CreateCQ is NIC.CreateCQ for a ring in mem, of verbs.RingBytes(cfg.Depth) octets
// and all zero, whose consumer is woken by futex(2) on its notification word.
func (c *Client) CreateCQ(cfg verbs.CQConfig, mem []byte) (verbs.CQInfo, error) {
	return c.n.createCQ(cfg, mem)
}

// CreateSRQ is NIC.CreateSRQ for a ring in mem, of RecvRingBytes octets and all zero.
func (c *Client) CreateSRQ(r verbs.SRQReq, mem []byte) (verbs.SRQInfo, error) {
	return c.n.createSRQ(r, mem)
}

// Bell says where a queue pair's doorbell is.
type Bell struct {
	Shard int
	Index uint32
}

// CreateQP is NIC.CreateQP for rings in sq and rq, of QPRingBytes octets and all
// zero, with the place of the queue pair's doorbell.
func (c *Client) CreateQP(r verbs.QPReq, sq, rq []byte) (verbs.QPInfo, Bell, error) {
	info, q, err := c.n.createQP(c, r, sq, rq)
	if err != nil {
		return info, Bell{}, err
	}
	return info, Bell{q.s.index, q.index}, nil
}

// QPRingBytes returns the octets of a queue pair's send ring and receive ring; the
// latter is 0 with a shared receive queue.
func QPRingBytes(r *verbs.QPReq) (sq, rq int, err error) {
	c, err := r.Cap.WithDefaults()
	if err != nil {
		return 0, 0, err
	}
	sq = verbs.RingBytes(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	if r.SRQ == 0 {
		rq = RecvRingBytes(c.MaxRecvWR, c.MaxRecvSGE)
	}
	return sq, rq, nil
}

// RecvRingBytes returns the octets of a receive ring.
func RecvRingBytes(wr, sge int) int { return verbs.RingBytes(wr * verbs.RecvUnits(sge)) }

// clientBells takes what clients have rung.
func (s *shard) clientBells(now int64) {
	for _, c := range s.n.others() {
		b := &c.blocks[s.index].Bells
		if !b.Rung() {
			continue
		}
		s.rung = b.Take(s.rung[:0], bellBudget)
		for _, i := range s.rung {
			if int(i) < len(s.qps) && s.qps[i] != nil && s.qps[i].client == c {
				s.doorbell(now, s.qps[i])
			}
		}
	}
}

// clientsRang reports whether a client has. It needs no lock.
func (s *shard) clientsRang() (rang bool) {
	if len(s.n.others()) == 0 {
		return false
	}
	s.looks.Add(1)
	for _, c := range s.n.others() {
		if rang = c.blocks[s.index].Bells.Rung(); rang {
			break
		}
	}
	s.looks.Add(-1)
	return rang
}

// tellAsleep tells clients whether they must wake the shard when they have rung. It
// needs no lock.
func (s *shard) tellAsleep(v uint32) {
	if len(s.n.others()) == 0 {
		return
	}
	s.looks.Add(1)
	for _, c := range s.n.others() {
		c.blocks[s.index].Asleep.Store(v)
	}
	s.looks.Add(-1)
}

// shared reports whether the device has several clients: then a step does less at
// a time, so that what one posts does not wait for all that others have to send,
// or are sent.
func (s *shard) shared() bool { return len(s.n.others()) > 1 }
