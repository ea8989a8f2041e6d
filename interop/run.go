package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/interop/rig"
)

// Numbers on the bridge, the last part of addresses: of each suite's guest, and
// of our side for it.
var (
	guestNumbers = map[string]int{rig.Bookworm: 2, rig.Trixie: 3}
	hostNumbers  = map[string]int{rig.Bookworm: 100, rig.Trixie: 101}
)

// secondHost is added to a number of our side for that of a second device.
const secondHost = 10

// caseLimit bounds a case of the groups on verbs.
const caseLimit = 150 * time.Second

// runner runs the cases against one guest, one after the other. It lives in the
// namespace of the bridge.
type runner struct {
	rig     *rig.Rig
	guest   int
	host    int
	ns, ns2 string         // our side's namespace, and that of a second device
	self    string         // this program, where any user can read it
	rxe     string         // the tool
	rxed    string         // the daemon; its folder is for the daemons' files
	pcap    string         // folder for captures, or ""
	sgid    map[int]int    // the guest's GID index, by family
	ourGID6 int            // our GID index of IPv6
	port    int            // of the last program
	watch   *peer.Endpoint // for counters
	daemons map[string]*daemon
	guestIs string // what it runs
	log     io.Writer
}

// newRunner finds out what it needs of the guest.
func newRunner(ctx context.Context, r *runner) (*runner, error) {
	r.guest, r.host, r.port, r.ourGID6 = guestNumbers[r.rig.Suite], hostNumbers[r.rig.Suite], 18515, 2
	r.daemons = map[string]*daemon{}
	if err := r.meet(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// meet learns about a guest that has booted. Its GIDs: 0 is of the link-local
// address, the others in the order that addresses were given.
func (r *runner) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	out, err := rig.Exec(ctx, r.guest, "uname -r; dpkg-query -W -f '${Version}\n' rdma-core; ib_write_bw --version | tr -dc 0-9.; echo; cd /sys/class/infiniband/rxe0/ports/1/gids; for i in 0 1 2 3 4 5; do cat $i; done")
	if err != nil {
		return err
	}
	l := strings.Fields(out)
	r.guestIs = fmt.Sprintf("%s: Linux %s, rdma-core %s, perftest %s", r.rig.Suite, l[0], l[1], l[2])
	l, r.sgid = l[2:], map[int]int{}
	for i, gid := range l[1:] {
		ip := net.ParseIP(gid)
		for _, fam := range []int{4, 6} {
			if ip.Equal(net.ParseIP(hostAddr(r.guest, fam))) {
				r.sgid[fam] = i
			}
		}
	}
	if len(r.sgid) != 2 {
		return fmt.Errorf("the guest's GIDs are %v", l[1:])
	}
	if err := r.introduce(ctx); err != nil {
		return err
	}
	for {
		r.watch, err = peer.Dial(ctx, net.JoinHostPort(rig.Addr(r.guest), strconv.Itoa(peer.Port)), r.sgid[4])
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // python is still starting
	}
}

// introduce gives the guest our MAC address for good. On a busy machine an
// answer to ARP may come too late, and Linux 6.12's Soft-RoCE does not survive
// that: the packets that waited for it are freed after their queue pair. Our
// side gets the guest's, since a kernel keeps only 208 KiB for a neighbour that
// it does not know yet, and what is more is lost without a word.
func (r *runner) introduce(ctx context.Context) error {
	neigh := func(of int) string {
		var s []string
		for _, fam := range []int{4, 6} {
			s = append(s, fmt.Sprintf("ip neigh replace %s lladdr 02:00:00:00:00:%02x dev eth0 nud permanent", hostAddr(of, fam), of))
		}
		return strings.Join(s, " && ")
	}
	if out, err := exec.CommandContext(ctx, "ip", "netns", "exec", r.ns, "sh", "-c", neigh(r.guest)).CombinedOutput(); err != nil {
		return fmt.Errorf("neighbours of our side: %w: %s", err, out)
	}
	_, err := rig.Exec(ctx, r.guest, neigh(r.host))
	return err
}

// Result is the outcome of a case.
type Result struct {
	Name    string            `json:"name"`
	Case    Case              `json:"case"`
	OK      bool              `json:"ok"`
	Error   string            `json:"error,omitempty"`
	Note    string            `json:"note,omitempty"`
	Printed string            `json:"printed,omitempty"` // by the programs of a case that failed
	Counted []string          `json:"counted,omitempty"` // what was found of the packets of each connection
	Seconds float64           `json:"seconds"`
	Guest   map[string]uint64 `json:"guest_counters,omitempty"` // what moved
	Ours    map[string]uint64 `json:"our_counters,omitempty"`

	wire    []claim // what the case says of its packets
	relayed string  // what rxe relay reported, as JSON
}

// run does a case, twice when the guest is to blame for the first try: emulated
// ones die now and then, of themselves, and its kernel has a fault that
// reordering triggers (see guestTrouble). Or the machine: with many other
// programs on it everything stands still for longer than retries last.
func (r *runner) run(ctx context.Context, c *Case) Result {
	res := r.try(ctx, c)
	if res.OK || ctx.Err() != nil {
		return res
	}
	why := r.guestTrouble(ctx, c)
	if why != "" {
		fmt.Fprintf(r.log, "guest %d has to be started again (%s), after: %s\n", r.guest, why, res.Error)
		if err := r.restart(ctx); err != nil {
			res.Error += "; " + err.Error()
			return res
		}
		why = "the guest's fault: " + why
	} else if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		why = overloaded(string(b), runtime.NumCPU())
	}
	if why == "" {
		return res
	}
	first := res.Error
	res = r.try(ctx, c)
	res.Note = strings.TrimSpace(fmt.Sprintf("%s; second try, the first was %s: %.100s", res.Note, why, first))
	return res
}

// overloaded says that a machine has too much to do, from /proc/loadavg, or "".
// Two guests and our programs are less than two that want to run for each of
// two processors.
func overloaded(loadavg string, processors int) string {
	var minute float64
	if _, err := fmt.Sscan(loadavg, &minute); err != nil || minute <= 3*float64(processors) {
		return ""
	}
	return fmt.Sprintf("on a busy machine (load %.0f on %d processors)", minute, processors)
}

// guestTrouble says why the guest is no good any more, or "". Soft-RoCE 6.12 as
// requester takes a late, overtaken ACK between READ responses for an error: it
// completes the READ as a success, with data missing, and ends the queue pair,
// warning in rxe_completer. It warns once in its life, so the guest has to be
// started again to tell of the next time.
func (r *runner) guestTrouble(ctx context.Context, c *Case) string {
	if why := r.rig.Panicked(r.guest); why != "" {
		return why
	}
	if c.Group == groupFaults {
		if why := r.rig.Warned(r.guest, "rxe_comp.c"); why != "" {
			return why
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if _, err := rig.Exec(ctx, r.guest, "true"); err != nil {
		return err.Error()
	}
	return ""
}

func (r *runner) restart(ctx context.Context) error {
	_ = r.watch.Close()
	if err := r.rig.Restart(ctx, r.guest); err != nil {
		return err
	}
	return r.meet(ctx)
}

// try does a case once.
func (r *runner) try(ctx context.Context, c *Case) Result {
	res := Result{Name: c.Name(), Case: *c}
	begin := time.Now()
	file, stop, err := r.capture(c)
	if err == nil {
		err = r.judge(ctx, c, &res)
		stop()
		switch {
		case err != nil:
		case c.counted():
			err = res.count(ctx, file)
		case c.Group == groupCongestion:
			err = r.judgeTraffic(ctx, c, &res, file)
		}
		if r.pcap == "" && file != "" {
			_ = os.Remove(file)
		}
	}
	res.Seconds = time.Since(begin).Seconds()
	res.OK = err == nil
	if err != nil {
		res.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return res
}

// count judges what a case says of its packets by the capture.
func (res *Result) count(ctx context.Context, file string) error {
	if len(res.wire) == 0 {
		return errors.New("the case says nothing of its packets")
	}
	ps, err := captured(ctx, file)
	if err != nil {
		return err
	}
	res.Counted, err = judgeAll(res.wire, ps)
	res.Note = strings.TrimSpace(fmt.Sprintf("%s %d packets, %d connections", res.Note, len(ps), len(res.wire)))
	return err
}

// judge does a case between two looks at the guest's counters.
func (r *runner) judge(ctx context.Context, c *Case, res *Result) error {
	before, err := r.watch.Counters()
	if err != nil {
		return err
	}
	way, err := r.mediumCounters(ctx)
	if err != nil {
		return err
	}
	if err := r.serve(ctx, c); err != nil {
		return err
	}
	switch c.Group {
	case groupPingpong:
		err = r.pingpong(ctx, c, res)
	case groupPerf:
		err = r.perf(ctx, c, res)
	default:
		run := r.agent
		if c.Kind == "two-of-ours" {
			run = r.withListener
		}
		err = run(ctx, c, res)
	}
	err = errors.Join(err, r.forgotten(ctx))
	if err != nil && c.Daemon {
		res.Printed += "---- rxed:\n" + r.daemonsSaid()
	}
	after, cerr := r.watch.Counters()
	if cerr != nil {
		return errors.Join(err, cerr)
	}
	res.Guest = map[string]uint64{}
	for k, v := range after {
		if d := v - before[k]; d != 0 {
			res.Guest[k] = d
		}
	}
	if c.Group != groupFaults && c.Group != groupTrouble && c.Kind != "slow-line" {
		err = errors.Join(err, clean(res.Guest))
	}
	if err != nil {
		if now, merr := r.mediumCounters(ctx); merr == nil {
			res.Note = strings.TrimSpace(res.Note + " lost on the way: " + cmp.Or(lostOnTheWay(way, now, res.Guest), "nothing that is counted"))
		}
	}
	return err
}

// quiet are the guest's counters that a whole network leaves alone.
var quiet = []string{"out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"}

// clean checks what moved among the guest's counters.
func clean(moved map[string]uint64) error {
	var bad []string
	for _, k := range quiet {
		if n := moved[k]; n != 0 {
			bad = append(bad, fmt.Sprintf("%s %d", k, n))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("the guest's counters moved: %s", strings.Join(bad, ", "))
	}
	return nil
}

// agent has this program do a case in our namespace.
func (r *runner) agent(ctx context.Context, c *Case, res *Result) error {
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	text, err := json.Marshal(order{Case: *c, Guest: r.guest, SGID: r.sgid[c.Family], Host: r.host})
	if err != nil {
		return err
	}
	if c.Where == "guest" {
		if _, err := rig.Exec(ctx, r.guest, netemUp); err != nil {
			_, _ = rig.Exec(ctx, r.guest, netemDown)
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, _ = rig.Exec(ctx, r.guest, netemDown)
		}()
	}
	relayed := func() (string, error) { return "", nil }
	if c.Group == groupCongestion && jamOf(c.Kind).relay != "" {
		if relayed, err = r.throughRelay(ctx, jamOf(c.Kind).relay); err != nil {
			return err
		}
	}
	p, err := r.start(ctx, c, r.self, agentFlag, string(text))
	if err != nil {
		_, rerr := relayed()
		return errors.Join(err, rerr)
	}
	a, err := p.answer()
	report, rerr := relayed()
	res.relayed, err = report, errors.Join(err, rerr)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done in %v: %w", caseLimit, err)
		}
		return err
	}
	res.Note, res.Ours, res.wire = a.Note, a.Counters, a.Wire
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// capture records the guest's RoCE packets of a case, if that was asked for or
// they are to be counted.
func (r *runner) capture(c *Case) (file string, stop func(), err error) {
	if r.pcap == "" && !c.looked() {
		return "", func() {}, nil
	}
	file = filepath.Join(cmp.Or(r.pcap, filepath.Dir(r.self)), strings.ReplaceAll(c.Name(), "/", "-")+".pcap")
	cmd := exec.Command("tcpdump", "-i", fmt.Sprintf("tap%d", r.guest), "--immediate-mode", "-B", "32768", "-s", "0", "-U", "-w", file, "udp port 4791")
	says, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	if _, err := says.Read(make([]byte, 256)); err != nil { // "listening on"
		return "", nil, fmt.Errorf("tcpdump: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, says) }()
	return file, func() {
		time.Sleep(100 * time.Millisecond) // the last packets are on their way to the file
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}, nil
}
