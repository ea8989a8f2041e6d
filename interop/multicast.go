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
	"strings"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
	"github.com/gorxe/gorxe/verbs"
)

const (
	groupQPN  = 0xffffff   // of every multicast datagram
	groupQKey = 0x01234567 // what the connection manager gives every group
)

// groupOf is the multicast group of the cases against one guest; of IPv6 they
// are of site and global scope in turn.
func groupOf(guest, family int) netip.Addr {
	if family == 6 {
		return netip.MustParseAddr(fmt.Sprintf("ff0%c::4791:%d", "e5"[guest%2], guest))
	}
	return netip.AddrFrom4([4]byte{239, 47, 91, byte(guest)})
}

// multicast sends datagrams to a group that two queue pairs of the responder
// are attached to: each gets one of each. Then to one that is detached, and with
// another Q_Key.
func (w *world) multicast() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	first := w.rsp.qp
	if err := first.attach(w.group); err != nil {
		return fmt.Errorf("responder: attach: %w", err)
	}
	for i, n := range []int{0, 1, 100, 1023, 1024, int(w.mtu)} {
		g := &gram{id: uint64(i), off: 999 * i, len: n, at: received + i*slot, group: w.group, imm: uint32(i % 2)}
		if err := w.deliver(m, []*gram{g}); err != nil {
			return err
		}
	}
	if err := w.refusedGram(&gram{id: 50, off: 10, len: 100, group: w.group, key: qkey + 1}); err != nil {
		return fmt.Errorf("another Q_Key: %w", err)
	}
	if err := w.twice(m, first); err != nil {
		return err
	}
	if err := first.detach(w.group); err != nil {
		return fmt.Errorf("responder: detach: %w", err)
	}
	return w.refusedGram(&gram{id: 51, off: 10, len: 100, group: w.group})
}

// refusedGram sends what nobody is to receive.
func (w *world) refusedGram(g *gram) error {
	if err := w.sendGram(g); err != nil {
		return err
	}
	if _, err := w.req.done(g.id); err != nil {
		return err
	}
	return w.quietly()
}

// twice attaches another queue pair of the responder, and takes it away again.
func (w *world) twice(m *models, first queue) error {
	second, err := w.rsp.side.createQP(verbs.UD, nil)
	if err != nil {
		return err
	}
	if err := second.Activate(verbs.DatagramOptions{QKey: qkey, PSN: 1}); err != nil {
		return err
	}
	if err := second.attach(w.group); err != nil {
		return fmt.Errorf("responder: attach a second queue pair: %w", err)
	}
	a := &gram{id: 100, off: 5, len: 600, at: received, group: w.group}
	b := *a
	b.id, b.at = 101, received+slot
	if err := w.postGram(a); err != nil {
		return err
	}
	r := work{id: b.id, mem: w.rsp.mem, off: b.at, len: verbs.GRHLen + b.len}
	if err := second.recv(&r); err != nil {
		return err
	}
	if err := w.sendGram(a); err != nil {
		return err
	}
	if _, err := w.req.done(a.id); err != nil {
		return err
	}
	wc, err := w.rsp.take(2)
	if err != nil {
		return fmt.Errorf("two queue pairs in the group: %w", err)
	}
	other, err := second.local(w.req.addr, 0)
	if err != nil {
		return err
	}
	for i := range wc {
		c, g := w, a
		if wc[i].ID == b.id {
			d, rsp := *w, *w.rsp
			d.rsp = &rsp
			rsp.self.QPN = other.QPN
			c, g = &d, &b
		}
		if err := wc[i].Err(); err != nil {
			return err
		}
		if err := c.arrived(m, g, &wc[i]); err != nil {
			return err
		}
	}
	if wc[0].ID == wc[1].ID {
		return errors.New("responder: one queue pair has both copies")
	}
	if err := w.rsp.check(m.rsp, received, 2*slot); err != nil {
		return err
	}
	return errors.Join(second.detach(w.group), second.Destroy())
}

// mckey is a case against librdmacm's program of that name in the guest, whose
// messages are of no defined content, and carry its QPN as immediate data.
func (w *world) mckey() error {
	const count, size = 10, 1000
	us, gst := w.rsp, w.req
	if _, ok := w.req.side.(kernel); !ok {
		us, gst = gst, us
	}
	addr := netip.AddrFrom16(w.group).Unmap().String()
	command := fmt.Sprintf("timeout 25 mckey -m %s -b %s -C %d -S %d", addr, gst.addr, count, size)
	if us == w.rsp {
		return w.fromMckey(us, command+" -s", count, size)
	}
	return w.toMckey(us, command, count, size)
}

func (w *world) inGroup(us *end) (err error) {
	if us.mem, err = us.side.regMR(regionSize, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if us.qp, err = us.side.createQP(verbs.UD, nil); err != nil {
		return err
	}
	if us.self, err = us.qp.local(netip.MustParseAddr(hostAddr(w.guest, 4)), 1); err != nil {
		return err
	}
	return us.qp.Activate(verbs.DatagramOptions{QKey: groupQKey, PSN: 1})
}

func (w *world) fromMckey(us *end, command string, count, size int) error {
	if err := w.inGroup(us); err != nil {
		return err
	}
	if err := us.qp.attach(w.group); err != nil {
		return err
	}
	for i := range 2 * count {
		if err := us.qp.recv(&work{id: uint64(i), mem: us.mem, off: i * slot, len: slot}); err != nil {
			return err
		}
	}
	out, err := rig.Exec(w.ctx, w.guest, command)
	if err != nil {
		return fmt.Errorf("mckey: %w: %s", err, tail(out))
	}
	wc, err := us.side.poll(count+1, w.silence)
	if err != nil {
		return err
	}
	// It ends at once, and rxe forgets what it has not sent by then.
	if len(wc) == 0 || len(wc) > count {
		return fmt.Errorf("%d of %d datagrams arrive: %s", len(wc), count, tail(out))
	}
	w.note = fmt.Sprintf("%d of %d datagrams", len(wc), count)
	for i := range wc {
		if err := wc[i].Err(); err != nil {
			return err
		}
		if int(wc[i].ByteLen) != verbs.GRHLen+size || wc[i].Flags&verbs.WCWithImm == 0 || wc[i].Imm != wc[i].SrcQP {
			return fmt.Errorf("mckey's datagram completes as %+v", wc[i])
		}
	}
	return us.qp.detach(w.group)
}

func (w *world) toMckey(us *end, command string, count, size int) error {
	if err := w.inGroup(us); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		out, err := rig.Exec(w.ctx, w.guest, command)
		if err == nil && !strings.Contains(out, "data transfers complete") {
			err = errors.New("it is not complete")
		}
		if err != nil {
			err = fmt.Errorf("mckey: %w: %s", err, tail(out))
		}
		ended <- err
	}()
	b := netip.AddrFrom16(w.group).Unmap().As4()
	look := fmt.Sprintf("for i in {1..200}; do grep -qi '%02X%02X%02X%02X' /proc/net/igmp && exit; sleep 0.05; done; exit 1", b[3], b[2], b[1], b[0])
	if _, err := rig.Exec(w.ctx, w.guest, look); err != nil {
		return errors.Join(errors.New("mckey does not join"), <-ended)
	}
	var l []*work
	for i := range count {
		l = append(l, &work{
			id: uint64(i), op: verbs.WRSendImm, mem: us.mem, len: size, imm: uint32(i),
			to: verbs.AV{DGID: w.group, SGIDIndex: us.self.GIDIndex}, qpn: groupQPN, qkey: groupQKey,
		})
	}
	if err := us.qp.send(l...); err != nil {
		return errors.Join(err, <-ended)
	}
	return errors.Join(us.all(count), <-ended)
}

// The datagrams of twoOfOurs: how many, how long, and what is in them.
const parcels, parcelLen = 20, 777

func parcel(i int) []byte {
	rng := rand.New(rand.NewPCG(uint64(i), 2))
	b := make([]byte, parcelLen)
	for k := range b {
		b[k] = byte(rng.Uint32())
	}
	return b
}

// twoOfOurs sends from our device to a group that a device of another process
// of ours in another namespace listens to (see listen), another queue pair of
// our own device, and the guest.
func (w *world) twoOfOurs() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	near, err := w.req.side.createQP(verbs.UD, nil)
	if err != nil {
		return err
	}
	if err := near.Activate(verbs.DatagramOptions{QKey: qkey, PSN: 1}); err != nil {
		return err
	}
	if err := errors.Join(near.attach(w.group), w.rsp.qp.attach(w.group)); err != nil {
		return err
	}
	var ids []uint64
	for i := range parcels {
		off := i * slot
		copy(m.req[off:], parcel(i))
		if err := w.req.mem.Write(off, m.req[off:off+parcelLen]); err != nil {
			return err
		}
		g := &gram{id: uint64(i), off: off, len: parcelLen, imm: uint32(i + 1), at: received + off, group: w.group}
		if err := near.recv(&work{id: 1000 + g.id, mem: w.req.mem, off: g.at, len: slot}); err != nil {
			return err
		}
		if err := w.postGram(g); err != nil {
			return err
		}
		if err := w.sendGram(g); err != nil {
			return err
		}
		ids = append(ids, g.id)
	}
	// At our device both the sends and what the other queue pair gets complete.
	if err := w.req.all(2 * parcels); err != nil {
		return fmt.Errorf("with another queue pair of its own in the group: %w", err)
	}
	wc, err := w.rsp.done(ids...)
	if err != nil {
		return fmt.Errorf("the guest in the group: %w", err)
	}
	for i := range wc {
		g := &gram{id: ids[i], off: i * slot, len: parcelLen, imm: uint32(i + 1), at: received + i*slot, group: w.group}
		if err := w.arrived(m, g, &wc[i]); err != nil {
			return err
		}
		own, err := w.req.mem.Read(received+i*slot+verbs.GRHLen, parcelLen)
		if err != nil {
			return err
		}
		if string(own) != string(parcel(i)) {
			return fmt.Errorf("datagram %d is not what the device's other queue pair got", i)
		}
	}
	return errors.Join(w.rsp.check(m.rsp, 0, regionSize), w.req.idle())
}

// listen is the other process of twoOfOurs: it attaches a queue pair to the
// group, shows that by a TCP socket that listens, and checks what it gets.
func listen(ctx context.Context, o *order) (note string, err error) {
	us, err := openOurs(&o.Case)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, us.dev.Close()) }()
	mem, err := us.regMR(regionSize, verbs.AccessLocalWrite)
	if err != nil {
		return "", err
	}
	q, err := us.createQP(verbs.UD, nil)
	if err != nil {
		return "", err
	}
	if err := q.Activate(verbs.DatagramOptions{QKey: qkey, PSN: 1}); err != nil {
		return "", err
	}
	for i := range 2 * parcels {
		if err := q.recv(&work{id: uint64(i), mem: mem, off: i * slot, len: slot}); err != nil {
			return "", err
		}
	}
	if err := q.attach(verbs.GIDOf(groupOf(o.Guest, o.Case.Family))); err != nil {
		return "", err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", listenPort))
	if err != nil {
		return "", err
	}
	defer l.Close()
	wc, err := us.poll(parcels, completionWait)
	if err != nil {
		return "", err
	}
	more, err := us.poll(1, time.Second/2)
	if err != nil {
		return "", err
	}
	if wc = append(wc, more...); len(wc) != parcels {
		return "", fmt.Errorf("%d datagrams arrive, not %d", len(wc), parcels)
	}
	for i := range wc {
		if err := wc[i].Err(); err != nil {
			return "", err
		}
		got, err := mem.Read(int(wc[i].ID)*slot+verbs.GRHLen, parcelLen)
		if err != nil {
			return "", err
		}
		if int(wc[i].Imm) != i+1 || int(wc[i].ByteLen) != verbs.GRHLen+parcelLen || string(got) != string(parcel(i)) {
			return "", fmt.Errorf("datagram %d completes as %+v, beginning with %x", i, wc[i], got[:16])
		}
	}
	return fmt.Sprintf("%d datagrams to the guest, another process and another queue pair", parcels), nil
}

// listenPort is a TCP port that shows that listen does.
const listenPort = 7902

// withListener runs a case while another process of ours listens in the other
// namespace.
func (r *runner) withListener(ctx context.Context, c *Case, res *Result) error {
	text, err := json.Marshal(order{Case: *c, Guest: r.guest, Listen: true})
	if err != nil {
		return err
	}
	p, err := r.startIn(ctx, r.ns2, c, r.self, agentFlag, string(text))
	if err != nil {
		return err
	}
	if err := p.listens(ctx, listenPort); err != nil {
		p.kill()
		return fmt.Errorf("the listener: %w: %s", err, tail(p.out.String()))
	}
	err = r.agent(ctx, c, res)
	a, lerr := p.answer()
	if lerr == nil && a.Error != "" {
		lerr = errors.New(a.Error)
	}
	if lerr != nil {
		lerr = fmt.Errorf("the listener: %w", lerr)
	}
	res.Note = a.Note
	return errors.Join(err, lerr)
}

// answer waits for an agent and returns what it says.
func (p *process) answer() (a answer, err error) {
	err = p.wait()
	out := p.out.String()
	i := strings.IndexByte(out, '{')
	if err == nil && i >= 0 {
		err = json.Unmarshal([]byte(out[i:]), &a)
	} else if err == nil {
		err = os.ErrInvalid
	}
	if err != nil {
		err = fmt.Errorf("our process: %w: %s", err, tail(out))
	}
	return a, err
}
