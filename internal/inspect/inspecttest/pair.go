// Package inspecttest gives tests a device to look into: two NICs connected in
// memory that can be captured from, and traffic of known size between them.
package inspecttest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// Room is how many octets of memory a side has.
const Room = 1 << 20

// Side is one NIC with a protection domain, a completion queue and memory.
type Side struct {
	NIC    *nic.NIC
	Device *inspect.Device
	Ctx    *verbs.Context
	PD     *verbs.PD
	CQ     *verbs.CQ
	MR     *verbs.MR
	Addr   netip.Addr
}

// Pair opens rxe0 and rxe1. Change, if not nil, may adjust what each is made of
// before it is given to the device.
func Pair(t testing.TB, faults string, change func(*inspect.Config)) (a, b *Side) {
	t.Helper()
	rules, err := fault.Parse(faults)
	check(t, err)
	la, lb, err := mem.Pair(mem.Config{}, mem.Config{})
	check(t, err)
	open := func(name, addr string, links []link.Link, faults bool) *Side {
		if faults && len(rules) > 0 {
			links = fault.WrapAll(links, fault.Config{Rules: rules, Seed: 1})
		}
		s := &Side{Addr: netip.MustParseAddr(addr)}
		s.NIC, err = nic.Open(nic.Config{
			Name: name, Links: new(tap.Live).WrapAll(links, name), NetDev: "mem", Seed: uint64(s.Addr.As4()[3]),
			GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(s.Addr), Type: "RoCE v2", Interface: "mem"}},
		})
		check(t, err)
		t.Cleanup(func() { _ = s.NIC.Close() })
		cfg := inspect.Config{Name: name, NIC: s.NIC}
		if change != nil {
			change(&cfg)
		}
		s.Device = inspect.New(cfg)
		s.Ctx = verbs.NewContext(s.NIC)
		s.PD, err = s.Ctx.AllocPD()
		check(t, err)
		s.CQ, err = s.Ctx.CreateCQ(verbs.CQConfig{Depth: 1024})
		check(t, err)
		s.MR, err = s.PD.AllocMR(Room, verbs.AccessAll)
		check(t, err)
		return s
	}
	return open("rxe0", "192.0.2.1", la, true), open("rxe1", "192.0.2.2", lb, false)
}

// Connect returns a connected queue pair of each.
func Connect(t testing.TB, a, b *Side, o verbs.ConnectOptions) (qa, qb *verbs.QP) {
	t.Helper()
	create := func(s *Side) *verbs.QP {
		q, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, RecvCQ: s.CQ})
		check(t, err)
		return q
	}
	qa, qb = create(a), create(b)
	ea, err := qa.Endpoint(b.Addr)
	check(t, err)
	eb, err := qb.Endpoint(a.Addr)
	check(t, err)
	check(t, qa.Connect(ea, eb, o))
	check(t, qb.Connect(eb, ea, o))
	return qa, qb
}

// Write has a queue pair of a write n octets to b and waits for the completion,
// which it returns.
func Write(t testing.TB, a, b *Side, q *verbs.QP, n int) verbs.WC {
	t.Helper()
	k, err := q.PostSend([]verbs.SendWR{{
		ID: 1, Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.MR.SGE(0, n)},
		RemoteAddr: b.MR.Addr(), RKey: b.MR.RKey(),
	}})
	check(t, err)
	if k != 1 {
		t.Fatal("a full send queue")
	}
	return Wait(t, a.CQ)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Wait returns the next completion.
func Wait(t testing.TB, cq *verbs.CQ) verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	for {
		n, err := cq.Wait(ctx, wc[:])
		check(t, err)
		if n == 1 {
			return wc[0]
		}
	}
}
