package sim

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// station is a node with one datagram queue pair, or some, and receive buffers
// of a fixed size in one region: request i has the octets from i*slot on.
type station struct {
	t    testing.TB
	node *Node
	pd   *verbs.PD
	cq   *verbs.CQ
	qps  []*verbs.QP
	srq  *verbs.SRQ
	mr   *verbs.MR
}

const slot = 256

func newStation(t testing.TB, s *Sim, queuePairs, depth int, shared bool) *station {
	n, err := s.Add(NodeConfig{})
	require.NoError(t, err)
	x := &station{t: t, node: n}
	x.pd, err = n.Ctx.AllocPD()
	require.NoError(t, err)
	x.cq, err = n.Ctx.CreateCQ(verbs.CQConfig{Depth: 4 * depth * queuePairs})
	require.NoError(t, err)
	x.mr, err = x.pd.AllocMR(depth*slot, verbs.AccessLocalWrite)
	require.NoError(t, err)
	if shared {
		x.srq, err = x.pd.CreateSRQ(verbs.SRQConfig{MaxWR: depth, MaxSGE: 1})
		require.NoError(t, err)
	}
	for range queuePairs {
		q, err := x.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: x.cq, RecvCQ: x.cq, SRQ: x.srq, Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}})
		require.NoError(t, err)
		require.NoError(t, q.Activate(verbs.DatagramOptions{QKey: theQKey}))
		x.qps = append(x.qps, q)
	}
	return x
}

// receive posts request i.
func (x *station) receive(q *verbs.QP, i uint64) {
	post := x.srq.PostRecv
	if x.srq == nil {
		post = q.PostRecv
	}
	_, err := post([]verbs.RecvWR{{ID: i, SGL: []verbs.SGE{x.mr.SGE(int(i)*slot, slot)}}})
	require.NoError(x.t, err)
}

func (x *station) send(q *verbs.QP, ah *verbs.AH, qpn uint32, data []byte) {
	_, err := q.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: data, AH: ah.Handle(), RemoteQPN: qpn, RemoteQKey: theQKey,
	}})
	require.NoError(x.t, err)
}

// got returns what a completion received, and its GRH area.
func (x *station) got(c *verbs.WC) (grh, data []byte) {
	require.NoError(x.t, c.Err())
	b := x.mr.Bytes()[c.ID*slot:][:c.ByteLen]
	return b[:verbs.GRHLen], b[verbs.GRHLen:]
}

func (x *station) count(name string) int {
	m, err := x.node.Ctx.Counters()
	require.NoError(x.t, err)
	return int(m[name])
}

func message(id int, n int) []byte {
	b := make([]byte, n)
	pattern(b, uint32(id))
	return b
}

// TestManyPeers: one queue pair asks 500 others, each by an address handle of its
// own, and each answers to where the GRH of its receive says the question came
// from. The answers all come at once, into a shared receive queue. Nothing is
// lost, and another round needs no more memory.
func TestManyPeers(t *testing.T) {
	t.Run("plain", func(t *testing.T) { manyPeers(t, Config{}) })
	t.Run("hidden", func(t *testing.T) { manyPeers(t, Config{HideIDs: true, Single: true}) })
}

func manyPeers(t *testing.T, cfg Config) {
	const peers, rounds = 500, 4
	s, err := New(cfg)
	require.NoError(t, err)
	defer s.Close()
	start := time.Now()
	hub := newStation(t, s, 1, 2*peers, true)
	for i := range 2 * peers {
		hub.receive(nil, uint64(i))
	}
	q := hub.qps[0]
	var others []*station
	var ahs []*verbs.AH
	for i := range peers {
		p := newStation(t, s, 1, 4, false)
		p.receive(p.qps[0], 0)
		p.receive(p.qps[0], 1)
		var wc [4]verbs.WC
		p.node.OnStep = func() {
			for _, c := range wc[:p.cq.Poll(wc[:])] {
				grh, data := p.got(&c)
				require.Equal(t, message(i, 20), data)
				require.Equal(t, q.QPN(), c.SrcQP)
				av, err := p.node.Ctx.AVFrom(&c, grh)
				require.NoError(t, err)
				ah, err := p.pd.CreateAH(av)
				require.NoError(t, err)
				p.send(p.qps[0], ah, c.SrcQP, message(peers+i, 60))
				s.After(0, func() { require.NoError(t, ah.Destroy()) })
				p.receive(p.qps[0], c.ID)
			}
		}
		gids, err := p.node.Ctx.GIDs()
		require.NoError(t, err)
		ah, err := hub.pd.CreateAH(verbs.AV{DGID: gids[i%2].GID, SGIDIndex: i % 2})
		require.NoError(t, err)
		others, ahs = append(others, p), append(ahs, ah)
	}
	built := time.Since(start)
	answered := make([]int, peers)
	wc := make([]verbs.WC, 64)
	hub.node.OnStep = func() {
		for n := hub.cq.Poll(wc); n > 0; n = hub.cq.Poll(wc) {
			for _, c := range wc[:n] {
				_, data := hub.got(&c)
				i := int(binary.BigEndian.Uint64(data)) - peers
				require.Equal(t, message(peers+i, 60), data)
				require.Equal(t, others[i].qps[0].QPN(), c.SrcQP)
				answered[i]++
				hub.receive(nil, c.ID)
			}
		}
	}
	var used [rounds]uint64
	start = time.Now()
	for r := range rounds {
		for i, p := range others {
			hub.send(q, ahs[i], p.qps[0].QPN(), message(i, 20))
		}
		s.Run(s.Now() + time.Millisecond)
		for i, k := range answered {
			require.Equal(t, r+1, k, "answers of peer %d", i)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		used[r] = m.HeapAlloc
	}
	require.Less(t, used[rounds-1], used[0]+used[0]/20, "memory after each round: %d", used)
	c := s.Counts()
	require.Equal(t, Counts{Sent: 2 * peers * rounds, Arrived: 2 * peers * rounds}, c)
	require.Zero(t, hub.count(trace.DropNoRecv.String()))
	t.Logf("%d nodes built in %v; %d rounds of %d datagrams in %v; %d MB", peers+1, built.Round(time.Millisecond), rounds, 2*peers, time.Since(start).Round(time.Millisecond), used[rounds-1]>>20)
}

// TestMulticastMany: 50 members on 25 nodes, and each sends to the group: each
// gets what every other sent, once; where the network has faults, as often as
// it delivers it to that node.
func TestMulticastMany(t *testing.T) {
	const nodes, members, messages, size = 25, 2, 4, 60
	for _, c := range []struct{ name, group, faults string }{
		{"v4", "239.1.2.3", ""},
		{"v6", "ff0e::1:2", ""},
		{"lossy", "239.1.2.3", "tx drop 3%; tx dup 2%; tx reorder 2% within=200us; rx drop 5%; rx corrupt 3%; rx dup 2%; rx delay 1us..100us 3%"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(min(*runsFlag, 10)) {
				s, err := New(Config{Seed: seed + 1, Rate: 10e9, Faults: c.faults, HideIDs: seed%2 == 1})
				require.NoError(t, err)
				group := verbs.GIDOf(netip.MustParseAddr(c.group))
				type key struct {
					node *Node
					id   int
				}
				arrived, broken := map[key]int{}, map[*Node]int{}
				s.Watch(func(p Packet) {
					if p.Hit.Has(fault.Corrupt) {
						broken[p.Node]++
						return
					}
					require.Equal(t, group.Addr(), p.Dst)
					arrived[key{p.Node, int(binary.BigEndian.Uint64(p.Data[20:]))}]++ // behind BTH and DETH
				})
				type member struct {
					x   *station
					q   *verbs.QP
					ah  *verbs.AH
					got map[int]int
				}
				var all []*member
				byQP := map[[2]any]*member{}
				for range nodes {
					x := newStation(t, s, members, 2*nodes*members*messages, true)
					gid := btoi(group.Addr().Is6())
					ah, err := x.pd.CreateAH(verbs.AV{DGID: group, SGIDIndex: gid})
					require.NoError(t, err)
					for i := range 2 * nodes * members * messages {
						x.receive(nil, uint64(i))
					}
					for _, q := range x.qps {
						require.NoError(t, q.AttachMulticast(group))
						m := &member{x, q, ah, map[int]int{}}
						all = append(all, m)
						byQP[[2]any{x, q.QPN()}] = m
					}
					wc := make([]verbs.WC, 64)
					x.node.OnStep = func() {
						for n := x.cq.Poll(wc); n > 0; n = x.cq.Poll(wc) {
							for _, c := range wc[:n] {
								_, data := x.got(&c)
								id := int(binary.BigEndian.Uint64(data))
								if !bytes.Equal(message(id, size), data) || all[id/messages].q.QPN() != c.SrcQP {
									t.Fatalf("received %+v, % x", c, data)
								}
								byQP[[2]any{x, c.QPN}].got[id]++
								x.receive(nil, c.ID)
							}
						}
					}
				}
				for k := range messages {
					for i, m := range all {
						m.x.send(m.q, m.ah, 0xffffff, message(i*messages+k, size))
					}
					s.Run(s.Now() + time.Millisecond)
				}
				s.Run(s.Now() + time.Second)
				for i, m := range all {
					for id := range len(all) * messages {
						from := all[id/messages]
						want := 1 // by the device itself
						switch {
						case from == m:
							want = 0
						case from.x != m.x:
							want = arrived[key{m.x.node, id}]
							if c.faults == "" {
								require.Equal(t, 1, want)
							}
						}
						if m.got[id] != want {
							t.Fatalf("seed %d: member %d got message %d %d times, want %d", seed+1, i, id, m.got[id], want)
						}
					}
				}
				n := s.Counts()
				require.Zero(t, n.Unknown)
				require.EqualValues(t, nodes*members*messages, n.Sent)
				require.Equal(t, n.Sent+n.Copied, n.Lost+n.Arrived)
				for _, m := range all {
					require.Equal(t, broken[m.x.node], m.x.count("icrc_error")+m.x.count("icrc_id_window"))
					for _, r := range []trace.Reason{trace.DropNoRecv, trace.DropGroup, trace.DropLoopback, trace.DropOverflow} {
						require.Zero(t, m.x.count(r.String()), r)
					}
				}
				if c.faults == "" {
					require.EqualValues(t, n.Sent*(nodes-1), n.Arrived)
				}
				s.Close()
			}
		})
	}
}

// TestGroups: who receives what is sent to a group, and who may join.
func TestGroups(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	defer s.Close()
	group, other := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff0e::1:2")
	a, b := newStation(t, s, 1, 8, true), newStation(t, s, 2, 8, true)
	two, err := s.Add(NodeConfig{Shards: 2})
	require.NoError(t, err)
	ah, err := a.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(group)})
	require.NoError(t, err)
	send := func(want Counts) {
		t.Helper()
		a.send(a.qps[0], ah, 0xffffff, message(1, 40))
		s.Run(s.Now() + time.Millisecond)
		require.Equal(t, want, s.Counts())
	}
	send(Counts{Sent: 1, Unknown: 1})
	require.NoError(t, a.qps[0].AttachMulticast(verbs.GIDOf(group)))
	send(Counts{Sent: 2, Unknown: 2}) // not to the sender
	for _, q := range b.qps {
		require.NoError(t, q.AttachMulticast(verbs.GIDOf(group)))
	}
	send(Counts{Sent: 3, Unknown: 2, Arrived: 1})
	require.NoError(t, two.lanes[1].JoinGroup(group))
	require.NoError(t, two.lanes[1].JoinGroup(group))
	require.NoError(t, two.lanes[1].JoinGroup(other))
	require.ErrorContains(t, two.lanes[0].JoinGroup(group), "another link of this node")
	send(Counts{Sent: 4, Unknown: 2, Copied: 1, Arrived: 3})
	require.Len(t, two.lanes[1].in, 0)
	require.NoError(t, two.lanes[1].LeaveGroup(group))
	require.NoError(t, two.lanes[1].LeaveGroup(group))
	require.ErrorContains(t, two.lanes[0].JoinGroup(a.node.Addr), "not a multicast address")
	require.ErrorContains(t, two.lanes[0].LeaveGroup(a.node.Addr), "not a multicast address")
	send(Counts{Sent: 5, Unknown: 2, Copied: 1, Arrived: 4})
	require.NoError(t, b.node.Ctx.Close())
	send(Counts{Sent: 6, Unknown: 3, Copied: 1, Arrived: 4})
	require.NoError(t, two.Ctx.Close())
	require.Empty(t, s.net.groups[other])
	require.Error(t, two.lanes[1].JoinGroup(group))
	require.Error(t, two.lanes[1].LeaveGroup(group))
}
