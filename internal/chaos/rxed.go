package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/control/admin"
)

// nobody is the user that clients are.
const nobody = 65534

// daemonWait is how long a daemon may take to start, to stop, and to forget clients.
const daemonWait = 30 * time.Second

// place is two network namespaces that are joined, and a folder.
type place struct {
	dir string
	ns  [2]string
}

// addr is an address of a side, 4 or 6.
func addr(side, family int) string {
	if family == 6 {
		return fmt.Sprintf("fd47:91::%d", side+1)
	}
	return fmt.Sprintf("10.47.91.%d", side+1)
}

// newPlace makes it, with rxed and this program where any user can read them.
func newPlace(ctx context.Context) (p *place, err error) {
	p = &place{}
	if p.dir, err = os.MkdirTemp("", "gorxe-chaos-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := os.Chmod(p.dir, 0o755); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", p.dir+"/", "github.com/gorxe/gorxe/cmd/rxed", "github.com/gorxe/gorxe/internal/chaos")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build rxed (run this inside the repository): %w\n%s", err, out)
	}
	for i := range p.ns {
		p.ns[i] = fmt.Sprintf("gxchaos-%d-%d", os.Getpid(), i)
	}
	commands := []string{
		"ip netns add " + p.ns[0], "ip netns add " + p.ns[1],
		fmt.Sprintf("ip link add eth0 netns %s mtu 9000 type veth peer name eth0 mtu 9000 netns %s", p.ns[0], p.ns[1]),
	}
	for i, ns := range p.ns {
		commands = append(commands,
			fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", ns, addr(i, 4)), fmt.Sprintf("ip -n %s -6 addr add %s/64 dev eth0 nodad", ns, addr(i, 6)),
			fmt.Sprintf("ip -n %s link set lo up", ns), fmt.Sprintf("ip -n %s link set eth0 up", ns))
	}
	for _, c := range commands {
		f := strings.Fields(c)
		if out, err := exec.CommandContext(ctx, f[0], f[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return p, nil
}

func (p *place) close() {
	for _, ns := range p.ns {
		if ns != "" {
			_ = exec.Command("ip", "netns", "del", ns).Run()
		}
	}
	_ = os.RemoveAll(p.dir)
}

func (p *place) socket(side int) string {
	return filepath.Join(p.dir, fmt.Sprintf("verbs%d.sock", side))
}

// daemon is an rxed.
type daemon struct {
	side  int
	cmd   *exec.Cmd
	admin *admin.Client
	began resources
	ended chan struct{}
	err   error // how, once it has

	mu    sync.Mutex
	lines []string // the last ones
	bad   []string // that tell of an error
	ready chan struct{}
}

// start starts the daemon of a side.
func (p *place) start(ctx context.Context, side int, c *config) (*daemon, error) {
	file := filepath.Join(p.dir, fmt.Sprintf("rxed%d.toml", side))
	adm := filepath.Join(p.dir, fmt.Sprintf("admin%d.sock", side))
	text := fmt.Sprintf("[control]\nsocket = %q\ngroup = \"%d\"\nallow_uids = [%d]\n[admin]\nsocket = %q\n[[device]]\ninterface = \"eth0\"\nlink = %q\nshards = %d\n",
		p.socket(side), nobody, nobody, adm, c.link, c.shards)
	if c.faults != "" {
		text += fmt.Sprintf("faults = %q\nseed = %d\n", c.faults, c.seed>>1+1+uint64(side))
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	d := &daemon{side: side, admin: admin.NewClient(adm), ended: make(chan struct{}), ready: make(chan struct{})}
	d.cmd = exec.Command("ip", "netns", "exec", p.ns[side], filepath.Join(p.dir, "rxed"), "-c", file)
	out, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go d.listen(bufio.NewScanner(out))
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	select {
	case <-d.ready:
	case <-d.ended:
		return nil, fmt.Errorf("rxed ended (%v): %s", d.err, d.said())
	case <-ctx.Done():
		d.kill()
		return nil, fmt.Errorf("rxed is not ready: %w: %s", ctx.Err(), d.said())
	}
	if d.began, err = d.resources(); err != nil {
		d.kill()
	}
	return d, err
}

// listen takes what a daemon says, to its end.
func (d *daemon) listen(s *bufio.Scanner) {
	const kept, keptOfEnd = 20, 80
	ready, dying := false, false
	for s.Scan() {
		line := s.Text()
		d.mu.Lock()
		for _, sign := range []string{"panic:", "fatal error:", "unexpected fault address", "SIG"} {
			dying = dying || strings.HasPrefix(line, sign) // what matters of that comes first
		}
		if d.lines = append(d.lines, line); len(d.lines) > kept && !dying {
			d.lines = d.lines[1:]
		} else if len(d.lines) > kept+keptOfEnd {
			d.lines = d.lines[:kept+keptOfEnd]
		}
		if strings.Contains(line, "level=ERROR") {
			d.bad = append(d.bad, line)
		}
		d.mu.Unlock()
		if !ready && strings.Contains(line, "msg=ready") {
			ready = true
			close(d.ready)
		}
	}
	d.err = d.cmd.Wait()
	close(d.ended)
}

// said is what it said last.
func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

// trouble returns an error if the daemon has ended, or complained.
func (d *daemon) trouble() error {
	select {
	case <-d.ended:
		return fmt.Errorf("rxed %d ended (%v): %s", d.side, d.err, d.said())
	default:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bad) > 0 {
		return fmt.Errorf("rxed %d says: %s", d.side, d.bad[0])
	}
	return nil
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

// stop has the daemon end, as it has to.
func (d *daemon) stop() error {
	d.admin.Close()
	err := d.trouble()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(daemonWait):
		d.kill()
		return errors.Join(err, fmt.Errorf("rxed %d did not stop in %v: %s", d.side, daemonWait, d.said()))
	}
	if d.err != nil && err == nil {
		err = fmt.Errorf("rxed %d: %w: %s", d.side, d.err, d.said())
	}
	return err
}

// resources are what a process has of the system. Sockets of UDP count apart: a link
// makes those that it sends by as it needs them, as many as there are source ports.
type resources struct {
	fds, udp, shared, threads int // shared: mappings of memfds
	rssKB, heapKB, shmKB      int // resident: all, its own, shared
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors and %d UDP sockets, %d shared mappings, %d threads, %d KiB resident (%d its own, %d shared)", r.fds, r.udp, r.shared, r.threads, r.rssKB, r.heapKB, r.shmKB)
}

func (d *daemon) resources() (r resources, err error) {
	d.admin.Close()
	dir := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		return r, err
	}
	inet := ""
	for _, f := range []string{"net/udp", "net/udp6"} {
		b, err := os.ReadFile(dir + f)
		if err != nil {
			return r, err
		}
		inet += string(b)
	}
	for _, f := range fds {
		to, _ := os.Readlink(dir + "fd/" + f.Name())
		if inode, is := strings.CutPrefix(to, "socket:["); is && strings.Contains(inet, " "+strings.TrimSuffix(inode, "]")+" ") {
			r.udp++
		} else {
			r.fds++
		}
	}
	maps, err := os.ReadFile(dir + "maps")
	if err != nil {
		return r, err
	}
	r.shared = bytes.Count(maps, []byte("/memfd:"))
	status, err := os.ReadFile(dir + "status")
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "VmRSS:":
			r.rssKB = n
		case "RssAnon:":
			r.heapKB = n
		case "RssShmem:":
			r.shmKB = n
		case "Threads:":
			r.threads = n
		}
	}
	return r, err
}

// open lists what descriptors the daemon has, as many as there are of each kind.
func (d *daemon) open() string {
	dir := fmt.Sprintf("/proc/%d/fd/", d.cmd.Process.Pid)
	all, _ := os.ReadDir(dir)
	n := map[string]uint64{}
	for _, f := range all {
		to, _ := os.Readlink(dir + f.Name())
		if i := strings.IndexByte(to, '['); i > 0 {
			to = to[:i]
		}
		n[to]++
	}
	return listed(n)
}

// heapGrowth is how much more of its own memory a daemon may have than when it
// started: a heap keeps what it once needed.
const heapGrowth = 64 << 10 // KiB

// senders is how many sockets a shard's link sends by, for each of its addresses.
const senders = 16

// clean waits until the daemon has nothing left of its clients, and returns what it has
// then.
func (d *daemon) clean(ctx context.Context) (r resources, err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	for {
		if err = d.leftovers(ctx, &r); err == nil {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("rxed %d, %v after its last client: %w", d.side, daemonWait, err)
		case <-d.ended:
			return r, d.trouble()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leftovers says what the daemon still has of its clients.
func (d *daemon) leftovers(ctx context.Context, r *resources) error {
	devs, err := d.admin.Devices(ctx)
	if err != nil {
		return err
	}
	if len(devs) != 1 || devs[0].Error != "" || devs[0].Clients != 0 || devs[0].QPs != 0 {
		return fmt.Errorf("it has %+v", devs)
	}
	if l, err := d.admin.Clients(ctx, devs[0].Name); err != nil || len(l) > 0 {
		return fmt.Errorf("clients %+v: %w", l, err)
	}
	if *r, err = d.resources(); err != nil {
		return err
	}
	if r.fds > d.began.fds || r.udp > d.began.udp+senders*devs[0].Shards*len(devs[0].GIDs) || r.shared > d.began.shared || r.heapKB > d.began.heapKB+heapGrowth || r.shmKB > d.began.shmKB {
		return fmt.Errorf("it began with %v, and has %v: %s", d.began, *r, d.open())
	}
	return nil
}

// dropped returns how many packets the device's fault rules dropped, and how many it
// sent.
func (d *daemon) dropped(ctx context.Context) (dropped, sent uint64) {
	devs, err := d.admin.Devices(ctx)
	if err != nil || len(devs) != 1 {
		return 0, 0
	}
	c, err := d.admin.Counters(ctx, devs[0].Name, false)
	if err != nil {
		return 0, 0
	}
	sent = c.Values["sent_pkts"]
	return sent - min(sent, c.Values["link_tx_packets"]), sent
}
