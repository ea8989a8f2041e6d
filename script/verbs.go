package script

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// verbsOf are the verbs of steps. Each reads its words and returns what the
// step does.
var verbsOf map[string]func(c *parser, a *args) action

func init() {
	verbsOf = map[string]func(c *parser, a *args) action{
		"<":        (*parser).receive,
		">":        (*parser).expect,
		"quiet":    (*parser).quiet,
		"post":     (*parser).post,
		"recv":     (*parser).postRecv,
		"cq":       (*parser).completion,
		"mem":      func(c *parser, a *args) action { return c.memory(a, false) },
		"set":      func(c *parser, a *args) action { return c.memory(a, true) },
		"word":     func(c *parser, a *args) action { return c.word(a, false) },
		"setword":  func(c *parser, a *args) action { return c.word(a, true) },
		"state":    (*parser).state,
		"modify":   (*parser).modify,
		"event":    (*parser).event,
		"count":    (*parser).count,
		"link":     (*parser).link,
		"withdraw": (*parser).withdraw,
		"limit":    (*parser).limit,
		"setcc":    (*parser).setCC,
	}
}

func verbNames() []string { return slices.Sorted(maps.Keys(verbsOf)) }

func (c *parser) receive(a *args) action {
	p := c.parsePacket(a, true)
	return func(r *runner) error {
		d := r.datagram(p)
		r.record("<", d.Payload)
		r.sub.Receive(r.now, d)
		clear(d.Payload) // it was borrowed
		return r.settle()
	}
}

func (c *parser) expect(a *args) action {
	p := c.parsePacket(a, false)
	return func(r *runner) error {
		got, err := r.nextPacket()
		if err != nil {
			return err
		}
		var q bth.Packet
		if why := bth.Parse(got.Octets, &q); why != trace.None {
			return fmt.Errorf("what was sent is no packet: %v: % x", why, got.Octets)
		}
		d := r.diff(p, &q)
		if p.hasECN && got.TOS&3 != p.ecn {
			d = strings.TrimPrefix(fmt.Sprintf("%s, ecn is %d", d, got.TOS&3), ", ")
		}
		if p.hasDSCP && got.TOS>>2 != p.dscp {
			d = strings.TrimPrefix(fmt.Sprintf("%s, dscp is %d", d, got.TOS>>2), ", ")
		}
		if d != "" {
			return fmt.Errorf("got > %s\n\t%s", r.text(got.Octets), d)
		}
		return nil
	}
}

func (c *parser) quiet(*args) action {
	return func(r *runner) error { return r.nothingSent() }
}

// operations are the opcodes of send requests by the names of scripts.
var operations = map[string]verbs.WROpcode{
	"send": verbs.WRSend, "send_imm": verbs.WRSendImm, "send_inv": verbs.WRSendInv, "write": verbs.WRWrite, "write_imm": verbs.WRWriteImm,
	"read": verbs.WRRead, "bind": verbs.WRBindMW, "local_inv": verbs.WRLocalInv, "cmp_swap": verbs.WRCmpSwap, "fetch_add": verbs.WRFetchAdd,
}

func (c *parser) post(a *args) action {
	name := a.next("the operation")
	w := verbs.SendWR{Flags: verbs.SendSignaled, RemoteQPN: c.s.attr.DestQPN, RemoteQKey: c.s.attr.QKey}
	var ok bool
	if w.Opcode, ok = operations[name]; !ok {
		n, err := strconv.ParseUint(name, 0, 8)
		if err != nil {
			a.fail("there is no operation %s; there are %s", name, strings.Join(slices.Sorted(maps.Keys(operations)), " "))
		}
		w.Opcode = verbs.WROpcode(n)
	}
	w.ID, _ = a.num("id", 64)
	n32 := func(key string, v *uint32) {
		if n, ok := a.num(key, 32); ok {
			*v = uint32(n)
		}
	}
	n32("imm", &w.Imm)
	n32("dest", &w.RemoteQPN)
	n32("qkey", &w.RemoteQKey)
	w.CompareAdd, _ = a.num("add", 64)
	if v, ok := a.num("compare", 64); ok {
		w.CompareAdd = v
	}
	w.Swap, _ = a.num("swap", 64)
	va, rkey, inv := c.place(a, "va", c.needRegion), c.place(a, "rkey", c.needKey), c.place(a, "inv", c.needKey)
	bind := func(*runner) verbs.Bind { return verbs.Bind{} }
	if w.Opcode == verbs.WRBindMW {
		bind = c.bind(a)
	}
	list := c.sgl(a)
	if a.flag("unsignaled") {
		w.Flags &^= verbs.SendSignaled
	}
	if a.flag("fence") {
		w.Flags |= verbs.SendFence
	}
	if a.flag("solicited") {
		w.Flags |= verbs.SendSolicited
	}
	data, _ := a.bytes("data")
	if a.flag("inline") {
		w.Flags |= verbs.SendInline
	} else if data != nil {
		a.fail("data are for inline; others are in a region (set m+0 ...)")
	}
	refused := a.flag("refused")
	return func(r *runner) error {
		w := w
		w.SGL, w.RemoteAddr, w.RKey = r.sgl(list), r.addr(va), r.key(rkey)
		w.Inline, w.Bind = bytes.Clone(data), bind(r)
		if inv != (place{}) {
			w.Imm = r.key(inv)
		}
		err := r.sub.PostSend(r.now, &w)
		if err == nil && w.Opcode == verbs.WRBindMW {
			r.bound(w.Bind)
		}
		clear(w.SGL) // the program's, again
		clear(w.Inline)
		return r.posted(err, refused)
	}
}

func (c *parser) postRecv(a *args) action {
	id, _ := a.num("id", 64)
	list := c.sgl(a)
	refused := a.flag("refused")
	return func(r *runner) error {
		w := verbs.RecvWR{ID: id, SGL: r.sgl(list)}
		err := r.sub.PostRecv(r.now, &w)
		clear(w.SGL)
		return r.posted(err, refused)
	}
}

// posted ends the posting of a work request.
func (r *runner) posted(err error, refused bool) error {
	switch {
	case err == nil && refused:
		return fmt.Errorf("it was not refused")
	case err != nil && !refused:
		return fmt.Errorf("refused: %w", err)
	}
	return r.settle()
}

// where takes the place that mem, set, word and setword begin with.
func (c *parser) where(a *args) place {
	p, err := parsePlace(a.next("a place such as m+16"))
	if err != nil {
		a.fail("%v", err)
	}
	if p.region == "" {
		a.fail("a place in a region, such as m+16, please")
	}
	c.needRegion(a, p)
	return p
}

// memory compares or sets octets.
func (c *parser) memory(a *args, set bool) action {
	p := c.where(a)
	b, err := parseBytes(a.next("octets such as 0102 or 5a*16"))
	if err != nil {
		a.fail("%v", err)
	}
	return func(r *runner) error {
		m, err := r.memory(p, len(b))
		switch {
		case err != nil:
			return err
		case set:
			copy(m, b)
		case !bytes.Equal(m, b):
			return fmt.Errorf("memory differs: %s", firstDiff(m, b))
		}
		return nil
	}
}

// word compares or sets 8 octets in the host's order.
func (c *parser) word(a *args, set bool) action {
	p := c.where(a)
	s := a.next("a number")
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		a.fail("%s is not a number of 64 bits", s)
	}
	return func(r *runner) error {
		m, err := r.memory(p, 8)
		if err != nil {
			return err
		}
		if set {
			binary.NativeEndian.PutUint64(m, v)
		} else if got := binary.NativeEndian.Uint64(m); got != v {
			return fmt.Errorf("the word is %#x", got)
		}
		return nil
	}
}

func (c *parser) state(a *args) action {
	name := a.next("a state")
	want, ok := stateNamed(name)
	if !ok {
		a.fail("%s is no state; there are RESET INIT RTR RTS SQD SQE ERR", name)
	}
	return func(r *runner) error {
		if got := r.seen.State; got != want {
			return fmt.Errorf("state is %v", got)
		}
		return nil
	}
}

// need are the attributes that a transition takes from the qp line.
var need = map[verbs.QPType]map[[2]verbs.QPState]verbs.AttrMask{
	verbs.RC: {
		{verbs.StateReset, verbs.StateInit}: verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess,
		{verbs.StateInit, verbs.StateRTR}:   verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrFlowControl,
		{verbs.StateRTR, verbs.StateRTS}:    verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrSQPSN | verbs.AttrMaxRdAtomic,
	},
	verbs.UC: {
		{verbs.StateReset, verbs.StateInit}: verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess,
		{verbs.StateInit, verbs.StateRTR}:   verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN,
		{verbs.StateRTR, verbs.StateRTS}:    verbs.AttrSQPSN,
	},
	verbs.UD: {
		{verbs.StateReset, verbs.StateInit}: verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey,
		{verbs.StateRTR, verbs.StateRTS}:    verbs.AttrSQPSN,
	},
}

func (c *parser) modify(a *args) action {
	q := c.s.attr
	var m verbs.AttrMask
	for i := range attrs {
		if attrs[i].parse(a, &q) {
			m |= attrs[i].mask
		}
	}
	if name, ok := a.str("state"); ok {
		if q.State, ok = stateNamed(name); !ok {
			a.fail("%s is no state", name)
		}
		m |= verbs.AttrState
	}
	only, refused := a.flag("only"), a.flag("refused")
	return func(r *runner) error {
		m := m
		if !only {
			m |= need[r.setup.Type][[2]verbs.QPState{r.seen.State, q.State}]
		}
		err := r.modify(q, m)
		switch {
		case err == nil && refused:
			return fmt.Errorf("it was not refused")
		case err != nil && !refused:
			return fmt.Errorf("refused: %w", err)
		}
		return r.settle()
	}
}

var eventNames = map[string]verbs.EventType{
	"COMM_EST": verbs.EventCommEst, "SQ_DRAINED": verbs.EventSQDrained, "FATAL": verbs.EventQPFatal, "REQ_ERR": verbs.EventQPReqErr,
	"CQ_ERR": verbs.EventCQErr, "SRQ_LIMIT": verbs.EventSRQLimit, "ACCESS_ERR": verbs.EventQPAccessErr, "LAST_WQE": verbs.EventLastWQE,
}

func (c *parser) event(a *args) action {
	var want []string
	for _, name := range a.rest() {
		if _, ok := eventNames[name]; !ok && name != "none" {
			a.fail("there is no event %s; there are %s, and none", name, strings.Join(slices.Sorted(maps.Keys(eventNames)), " "))
		}
		if name != "none" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	return func(r *runner) error {
		var got []string
		for _, e := range r.events {
			got = append(got, nameOf(eventNames, e))
		}
		r.events = nil
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("events are %v", got)
		}
		return nil
	}
}

func (c *parser) count(a *args) action {
	want := map[trace.Reason]uint64{}
	for i := range a.words {
		w := &a.words[i]
		why, known := reasonNamed(w.key)
		n, err := strconv.ParseUint(w.val, 0, 64)
		if w.used = true; !known || err != nil {
			a.fail("%s=%s: a counter of package trace and a number, please", w.key, w.val)
		}
		want[why] = n
	}
	if len(want) == 0 {
		a.fail("count what?")
	}
	return func(r *runner) error {
		for _, why := range slices.Sorted(maps.Keys(want)) {
			if got, known := r.seen.Count(why); known && got != want[why] {
				return fmt.Errorf("%v is %d", why, got)
			}
		}
		return nil
	}
}

func (c *parser) link(a *args) action {
	s, limit := a.next("a number of packets, or open"), -1
	if s != "open" {
		n, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			a.fail("%s is not a number of packets, nor open", s)
		}
		limit = int(n)
	}
	return func(r *runner) error {
		r.budget = limit
		return r.settle()
	}
}

func (c *parser) limit(a *args) action {
	s := a.next("a number of receive requests")
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		a.fail("%s is not a number of receive requests", s)
	}
	if !c.s.setup.SharedRQ || !c.s.setup.Device {
		a.fail("a limit is of the shared receive queue of a device: qp ... srq device")
	}
	return func(r *runner) error {
		if err := r.setup.SetLimit(int(n)); err != nil {
			return err
		}
		return r.settle()
	}
}

func (c *parser) setCC(a *args) action {
	if len(a.words) == 0 {
		a.fail("set what? Such as setcc np_enable=0")
	}
	change := c.changes(a)
	try := cc.Default()
	if err := change(&try); err != nil {
		a.fail("%v", err)
	}
	return func(r *runner) error {
		if err := change(&r.setup.CC); err != nil {
			return err
		}
		if err := r.setup.SetCC(r.setup.CC); err != nil {
			return err
		}
		return r.settle()
	}
}

func (c *parser) withdraw(a *args) action {
	p := place{region: a.next("a region or window")}
	c.needKey(a, p)
	refused := a.flag("refused")
	return func(r *runner) error {
		if w := r.windows[p.region]; w != nil {
			return r.posted(w.Withdraw(), refused)
		}
		return r.posted(r.regions[p.region].Withdraw(), refused)
	}
}
