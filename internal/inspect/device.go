package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Config is a device and what is known of it elsewhere. What is nil is not
// there.
type Config struct {
	Name      string // by which it is asked for
	NIC       *nic.NIC
	Clients   func() []admin.ClientInfo
	Limits    func() admin.Limits
	SetLimits func(admin.Limits) error
	// SetCC changes the device's congestion control, as admin.Device has it. (The
	// NIC's is set.)
	SetCC func(change map[string]string) error
}

// Device is an admin.Device.
type Device struct {
	cfg  Config
	live *tap.Live // nil: its links cannot be captured from
}

var _ admin.Device = (*Device)(nil)

// New returns a device. Captures need links that a tap.Live has wrapped.
func New(cfg Config) *Device {
	return &Device{cfg: cfg, live: tap.LiveOf(cfg.NIC.Link(0))}
}

// Name is by which it is asked for.
func (d *Device) Name() string { return d.cfg.Name }

// Info describes the device; of one that has ended, little more than why.
func (d *Device) Info() (admin.DeviceInfo, error) {
	i := admin.DeviceInfo{Name: d.cfg.Name, Shards: d.cfg.NIC.Shards(), Clients: len(d.clients()), GIDs: []admin.GID{}, Missing: []string{}}
	if d.live != nil {
		i.Captures = d.live.Captures()
	}
	dev, err := d.cfg.NIC.QueryDevice()
	if err != nil {
		i.State, i.Error = "PORT_DOWN (1)", err.Error()
		return i, nil
	}
	port, err := d.cfg.NIC.QueryPort()
	if err != nil {
		return i, err
	}
	gids, err := d.cfg.NIC.GIDs()
	if err != nil {
		return i, err
	}
	i.NodeGUID = fmt.Sprintf("%016x", dev.NodeGUID)
	i.NetDev, i.NetMTU, i.ActiveMTU, i.SpeedMbit = port.NetDev, port.NetMTU, int(port.ActiveMTU), port.SpeedMbit
	i.State, i.Active, i.Link, i.ICRC = port.State, port.Active, dev.Link, dev.ICRC
	i.QPs = d.cfg.NIC.CountQPs()
	i.Missing = append(i.Missing, dev.Missing...)
	for _, g := range gids {
		if g.GID != (verbs.GID{}) {
			i.GIDs = append(i.GIDs, admin.GID{Index: g.Index, GID: g.GID.String(), Address: g.GID.Addr(), Type: g.Type})
		}
	}
	return i, nil
}

// Counters returns all there are, also those that are 0.
func (d *Device) Counters() (map[string]uint64, error) {
	m, err := d.cfg.NIC.Counters()
	if err != nil {
		return nil, err
	}
	for _, c := range nic.CounterNames() {
		m[c.Name] += 0
	}
	return m, nil
}

// DescribeCounter says what one counts.
func (d *Device) DescribeCounter(name string) admin.CounterInfo {
	c := nic.DescribeCounter(name)
	return admin.CounterInfo{Unit: c.Unit, Kind: c.Kind, Text: c.Text}
}

// QPs lists the queue pairs.
func (d *Device) QPs() ([]admin.QP, error) {
	all, err := d.cfg.NIC.QPs()
	if err != nil {
		return nil, err
	}
	owners := map[uint32]admin.ClientInfo{}
	for _, c := range d.clients() {
		owners[c.ID] = c
	}
	out := make([]admin.QP, len(all))
	for i := range all {
		out[i] = queuePair(&all[i], owners)
	}
	return out, nil
}

func queuePair(q *nic.QPInfo, owners map[uint32]admin.ClientInfo) admin.QP {
	s, c := &q.Stats, owners[q.ClientID]
	return admin.QP{
		QPN: q.QPN, Type: q.Type.String(), State: q.State.String(), Shard: q.Shard,
		Local: q.Local, Peer: q.Peer, SrcPort: q.SrcPort, DestQPN: q.DestQPN, ClientID: q.ClientID, PID: c.PID, Command: c.Command,
		SendDepth: q.SendDepth, RecvDepth: q.RecvDepth, SRQ: q.SRQ, Requests: q.Requests, InFlight: q.InFlight, Rate: q.Rate,
		SentPackets: s.SentRequests + s.SentResponses, RcvdPackets: s.RcvdRequests + s.RcvdResponses,
		SentPayload: s.SentBytes, RcvdPayload: s.RcvdBytes, RepeatedPackets: s.Repeated, Drops: q.Drops,
	}
}

// QP describes one of them.
func (d *Device) QP(qpn uint32) (admin.QPDetail, error) {
	q, err := d.cfg.NIC.QP(qpn)
	if err != nil {
		return admin.QPDetail{}, d.gone(err)
	}
	owners := map[uint32]admin.ClientInfo{}
	for _, c := range d.clients() {
		owners[c.ID] = c
	}
	a, x := &q.Attr, &q.Inspection
	out := admin.QPDetail{
		QP:      queuePair(&q.QPInfo, owners),
		PathMTU: int(a.PathMTU), GIDIndex: a.AV.SGIDIndex, Access: access(a.Access),
		MaxSendSGE: q.Cap.MaxSendSGE, MaxRecvSGE: q.Cap.MaxRecvSGE, MaxInline: q.Cap.MaxInline,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRd: a.MaxDestRdAtomic,
		NextPSN: x.NextPSN, UnackedPSN: x.UnackedPSN, HighestPSN: x.HighestPSN, ExpectedPSN: x.ExpectedPSN, MSN: x.MSN,
		Window: x.Window, Reads: x.Reads, Posted: x.Posted, Receives: x.Receives,
		Credits: x.Credits, CreditsBind: x.CreditsBind, Stall: x.Stall.String(),
		Algorithm: q.Algorithm, RateLimit: q.Limit, CCRate: q.CC.Rate, TargetRate: q.CC.Target, Alpha: q.CC.Alpha, Limited: q.CC.Limited,
		Timeout: int(a.Timeout), RetryCount: int(a.RetryCnt), RetriesLeft: x.RetriesLeft,
		RNRRetry: int(a.RNRRetry), RNRRetriesLeft: x.RNRRetriesLeft, RNRWait: x.RNRWait,
		TimerNanos: -1, RTTNanos: x.RTT, Counters: q.Counters,
	}
	if q.Type == verbs.UD {
		out.QKey = a.QKey
	}
	if a.Timeout != 0 {
		out.TimeoutNanos = 4096 << a.Timeout
	}
	if x.Deadline < 1<<62 {
		out.TimerNanos = max(0, x.Deadline-q.Now)
	}
	if x.Ended != trace.None {
		out.Ended = &admin.Reason{Name: x.Ended.String(), Text: x.Ended.Explain()}
	}
	if q.Last.Reason != trace.None {
		e := d.event(time.Now(), q.Now, q.Last)
		out.Last = &e
	}
	return out, nil
}

func access(a verbs.Access) []string {
	out := []string{}
	for _, x := range [...]struct {
		bit  verbs.Access
		name string
	}{
		{verbs.AccessLocalWrite, "local_write"},
		{verbs.AccessRemoteWrite, "remote_write"},
		{verbs.AccessRemoteRead, "remote_read"},
		{verbs.AccessRemoteAtomic, "remote_atomic"},
	} {
		if a&x.bit != 0 {
			out = append(out, x.name)
		}
	}
	return out
}

// Trace returns the last events of the device, or of one queue pair.
func (d *Device) Trace(qpn uint32, limit int) ([]admin.Event, error) {
	if err := d.cfg.NIC.Err(); err != nil {
		return nil, err
	}
	var all []trace.Event
	if qpn != 0 {
		var err error
		if all, err = d.cfg.NIC.TraceQP(qpn, limit); err != nil {
			return nil, d.gone(err)
		}
	} else {
		for i := range d.cfg.NIC.Shards() {
			all = merge(all, d.cfg.NIC.Trace(i))
		}
		if limit > 0 && len(all) > limit {
			all = all[len(all)-limit:]
		}
	}
	wall, now := time.Now(), d.cfg.NIC.Now()
	out := make([]admin.Event, len(all))
	for i, e := range all {
		out[i] = d.event(wall, now, e)
	}
	return out, nil
}

// merge merges two lists by their times.
func merge(a, b []trace.Event) []trace.Event {
	if len(a) == 0 {
		return b
	}
	out := make([]trace.Event, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].Time <= b[0].Time {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// event puts an event in words; wall and now are one moment on two clocks.
func (d *Device) event(wall time.Time, now int64, e trace.Event) admin.Event {
	out := admin.Event{
		Time: wall.Add(time.Duration(e.Time - now)).Round(0), QPN: e.QPN, Dir: "local", PSN: e.PSN,
		Reason: e.Reason.String(), Text: e.Reason.Explain(), Arg: e.Arg,
	}
	switch e.Dir {
	case trace.Tx:
		out.Dir = "tx"
	case trace.Rx:
		out.Dir = "rx"
	}
	if e.Dir != trace.Local && e.Reason != trace.RetryLink {
		out.Opcode = bth.Opcode(e.Opcode).String()
	}
	if e.Reason == trace.NoteState {
		out.State = verbs.QPState(e.Arg).String()
	}
	return out
}

func (d *Device) clients() []admin.ClientInfo {
	if d.cfg.Clients == nil {
		return nil
	}
	return d.cfg.Clients()
}

// Clients lists the processes that use the device.
func (d *Device) Clients() ([]admin.ClientInfo, error) { return d.clients(), nil }

// Limits returns what they may have.
func (d *Device) Limits() (admin.Limits, error) {
	if d.cfg.Limits == nil {
		return admin.Limits{}, fmt.Errorf("limits of %s: %w: nobody else uses the device", d.cfg.Name, admin.ErrNotSupported)
	}
	return d.cfg.Limits(), nil
}

// SetLimits changes that.
func (d *Device) SetLimits(l admin.Limits) error {
	if d.cfg.SetLimits == nil {
		return fmt.Errorf("limits of %s: %w: nobody else uses the device", d.cfg.Name, admin.ErrNotSupported)
	}
	return d.cfg.SetLimits(l)
}

// Capture captures what passes the device's links.
func (d *Device) Capture(ctx context.Context, w io.Writer, o admin.CaptureOptions, started func()) (admin.CaptureSummary, error) {
	if d.live == nil {
		return admin.CaptureSummary{}, fmt.Errorf("capture from %s: %w: its links were not opened for that", d.cfg.Name, admin.ErrNotSupported)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // it ends with the device
		select {
		case <-d.cfg.NIC.Done():
			stop(d.cfg.NIC.Err())
		case <-ctx.Done():
		}
	}()
	s, err := d.live.Stream(ctx, w, tap.StreamOptions{SnapLen: o.SnapLen, Count: o.Count}, started)
	if err == nil {
		if end := d.cfg.NIC.Err(); end != nil {
			err = end
		}
	}
	return admin.CaptureSummary{Captured: s.Captured, Dropped: s.Dropped}, err
}

// gone makes "no such queue pair" a thing not found.
func (d *Device) gone(err error) error {
	if d.cfg.NIC.Err() == nil && errors.Is(err, verbs.ErrClosed) {
		return fmt.Errorf("%s: %w: %w", d.cfg.Name, admin.ErrNotFound, err)
	}
	return err
}
