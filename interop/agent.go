package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/interop/rig"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/verbs"
)

// agentFlag starts this program as an agent: the process that is our side of
// a case, inside the namespace, perhaps without privileges. Its one argument
// is an order as JSON, its answer a line of JSON.
const agentFlag = "-agent"

// order tells an agent what to do.
type order struct {
	Case  Case
	Guest int // its number
	SGID  int // of the guest, for the case's family
	Host  int // our number

	Listen bool // be the other process of the case
}

// answer is what an agent says in the end.
type answer struct {
	Error    string            `json:"error,omitempty"`
	Note     string            `json:"note,omitempty"`
	Wire     []claim           `json:"wire,omitempty"`     // about the packets
	Counters map[string]uint64 `json:"counters,omitempty"` // of our device
}

// ourRules break our traffic both ways.
const ourRules = ourLosses + "; tx reorder 2%; rx reorder 2%"

// ourLosses do so in order. A late ACK between READ responses ends a queue pair
// of rxe as of Linux 6.12, so where several requests are outstanding nothing is
// reordered.
const ourLosses = "tx drop 2%; rx drop 2%; tx dup 1%; rx dup 1%"

// agent carries out an order. It returns the exit status of the process: the
// answer holds a case's failure, a status is for an agent that could not try.
func agent(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 2
	}
	var a answer
	if err := a.carryOut(context.Background(), &o); err != nil {
		a.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 2
	}
	return 0
}

func (a *answer) carryOut(ctx context.Context, o *order) error {
	if err := unprivileged(); o.Case.unprivileged() && err != nil {
		return err
	}
	if o.Listen {
		var err error
		a.Note, err = listen(ctx, o)
		return err
	}
	run, ok := procedures[o.Case.Kind]
	if !ok {
		return fmt.Errorf("no procedure %q", o.Case.Kind)
	}
	dial := func() (*peer.Endpoint, error) {
		return peer.Dial(ctx, net.JoinHostPort(rig.Addr(o.Guest), strconv.Itoa(peer.Port)), o.SGID)
	}
	far, err := dial()
	if err != nil {
		return err
	}
	defer func() { far.Close() }()
	guest := &end{side: kernel{far}, addr: far.GID().Addr()}
	w := &world{
		ctx: ctx, typ: verbs.RC, mtu: verbs.MTU(o.Case.MTU), timeout: 17, rng: rand.New(rand.NewPCG(1, uint64(o.Case.MTU))),
		silence: time.Second, guest: o.Guest, host: o.Host, another: dial, group: verbs.GIDOf(groupOf(o.Guest, o.Case.Family)),
	}
	if j := jamOf(o.Case.Kind); j != nil {
		w.jam = *j
	}
	if o.Case.long() {
		w.timeout = 14 // rxe waits for it hundreds of times
	}

	if o.Case.byHand() {
		return w.byHand(o, guest, run)
	}
	var us *end
	var dev *verbs.Context
	var began map[string]uint64 // the device's counters: a daemon's has been used before
	open := func() error { return nil }
	if o.Case.Link == linkReference {
		near, err := dial()
		if err != nil {
			return err
		}
		defer near.Close()
		us = &end{side: kernel{near}, addr: guest.addr}
	} else {
		us = &end{addr: netip.MustParseAddr(hostAddr(o.Host, o.Case.Family))}
		open = func() error {
			s, err := openOurs(&o.Case)
			if err != nil {
				return err
			}
			dev, us.side = s.dev, s
			began, err = dev.Counters()
			return err
		}
		if err := open(); err != nil {
			return err
		}
	}

	w.req, w.rsp = us, guest
	if o.Case.Role == Server {
		w.req, w.rsp = guest, us
	}
	w.req.name, w.rsp.name = "requester", "responder"
	w.lost = func() (uint64, uint64, error) { return lostPackets(ctx, o, dev) }
	w.restart = func(e *end) error {
		if e == us {
			return errors.Join(dev.Close(), open())
		}
		if err := far.Close(); err != nil {
			return err
		}
		again, err := dial()
		if err != nil {
			return err
		}
		far, e.side = again, kernel{again}
		return nil
	}
	err = run(w)
	a.Note, a.Wire = w.note, w.wire
	if dev != nil {
		var cerr error
		a.Counters, cerr = dev.Counters()
		for k := range a.Counters {
			a.Counters[k] -= began[k]
		}
		err = errors.Join(err, cerr, dev.Close())
	}
	return err
}

// byHand does a case without a device of ours: over its link alone.
func (w *world) byHand(o *order, guest *end, run func(*world) error) error {
	src := netip.MustParseAddr(hostAddr(o.Host, o.Case.Family))
	l, err := udp.Open(udp.Config{Addrs: []netip.Addr{src}})
	if err != nil {
		return err
	}
	defer l[0].Close()
	if w.raw, err = newRaw(l[0], src, guest.addr); err != nil {
		return err
	}
	w.rsp, guest.name = guest, "target"
	return run(w)
}

// unprivileged returns an error when this process has a capability: link udp is
// to be shown to need none.
func unprivileged() error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if !strings.Contains(string(b), set+":\t0000000000000000\n") {
			return fmt.Errorf("this process has capabilities (%s)", set)
		}
	}
	return nil
}

func hostAddr(n, family int) string {
	if family == 6 {
		return rig.Addr6(n)
	}
	return rig.Addr(n)
}

// lostPackets says how many packets were lost towards the guest and from it, by
// the counters of who loses them: the guest's queueing disciplines, or the
// difference on our side between what the NIC sent and what left the link under
// the rules, and between what reached that link and what the NIC admitted.
func lostPackets(ctx context.Context, o *order, dev *verbs.Context) (to, from uint64, err error) {
	switch o.Case.Where {
	case "guest":
		return netemLosses(ctx, o.Guest)
	case "ours":
		c, err := dev.Counters()
		if err != nil {
			return 0, 0, err
		}
		// Packets sent twice count against those lost.
		return sub(c["sent_pkts"], c["link_tx_packets"]), sub(c["link_rx_packets"], c["rcvd_pkts"]), nil
	}
	return 0, 0, errors.New("nobody loses packets in this case")
}

func sub(a, b uint64) uint64 { return a - min(a, b) }
