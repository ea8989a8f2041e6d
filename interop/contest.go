package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
)

// The contest is between two ends of ours and two of Soft-RoCE's, in the same
// two guests of one suite, one after the other in every round: the kernel's with
// perftest, ours with a static rxe and the same options. It is reported and
// gates nothing.

const (
	contestRounds = 5
	contestMTU    = 4096             // the bridge has 4500
	contestLimit  = 60 * time.Second // of one measurement
	rivalGuest    = 20               // added to a suite's guest number for that of the second
)

// Where a guest has Soft-RoCE, and how it is without: deleting the device alone
// leaves port 4791 with the kernel, which has it until the module is gone.
const (
	kernelOn  = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
	kernelOff = "rdma link delete rxe0 && modprobe -r rdma_rxe"
)

// softRoCE is the entrant that is not a link of ours.
const softRoCE = "Soft-RoCE"

// entrants take turns, in this order and the other way round.
var entrants = []string{softRoCE, "udp", "packet"}

// discipline is a tool of perftest's, and the figures taken from its row.
type discipline struct {
	tool        string
	size, iters int
	figures     []figure
}

type figure struct {
	what, unit string
	column     int
}

var disciplines = []discipline{
	{"write_bw", 65536, 1500, []figure{{"RC WRITE 64 KiB", "MiB/s", 3}}},
	{"send_bw", 65536, 1500, []figure{{"RC SEND 64 KiB", "MiB/s", 3}}},
	{"send_lat", 2, 1000, []figure{{"RC SEND 2 B, half round trip", "us", 4}, {"  its mean", "us", 5}, {"  its 99th percentile", "us", 7}}},
}

// contest is one, between two guests that are up.
type contest struct {
	server, client int // guests
	kernel         bool
	port           int // of the last measurement
	log            io.Writer
	again          []string // measurements that failed and were repeated
}

// Standing is one figure of ours beside Soft-RoCE's, a value for each round.
type Standing struct {
	What     string     `json:"what"`
	Link     string     `json:"link"` // of ours
	Unit     string     `json:"unit"`
	Gorxe    []float64  `json:"gorxe"`
	SoftRoCE []float64  `json:"soft_roce"`
	Ratio    [3]float64 `json:"ratio"` // of each round: least, median, greatest
}

// ContestReport is what -contest -json writes.
type ContestReport struct {
	Started   time.Time  `json:"started"`
	Seconds   float64    `json:"seconds"`
	Guests    string     `json:"guests"`
	MTU       int        `json:"mtu"`
	Load      string     `json:"load"` // of this machine at the end
	Again     []string   `json:"again,omitempty"`
	Standings []Standing `json:"standings"`
}

// runContest boots the guests, and goes on inside the bridge's namespace.
func (c *config) runContest(ctx context.Context) (ok bool, err error) {
	if c.smoke || c.list || c.reference || c.serial || c.run != "" || c.link != "" || c.pcap != "" {
		return false, errors.New("-contest goes with -suite, -keep and -json alone")
	}
	if os.Getuid() != 0 {
		return false, errors.New("-contest needs root, for network namespaces, taps and the guests' images")
	}
	suite := c.suite
	if suite == "" {
		suite = rig.Bookworm
	}
	n, known := guestNumbers[suite]
	if !known {
		return false, fmt.Errorf("-suite %s: there are %s", suite, strings.Join(suites, ", "))
	}
	g, err := rig.New(suite, os.Stderr)
	if err != nil {
		return false, err
	}
	k := &contest{server: n, client: n + rivalGuest, kernel: true, port: 18515, log: os.Stderr}
	if c.inside != "" {
		return true, k.run(ctx, c.json)
	}
	bin, err := os.MkdirTemp("", "gorxe-contest-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(bin)
	if err := c.binaries(ctx, bin); err != nil {
		return false, err
	}
	if !c.keep {
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err = errors.Join(err, g.Down(ctx))
		}()
	}
	if err := g.Build(ctx); err != nil {
		return false, err
	}
	shared := filepath.Join(g.Home, "share", "rxe")
	defer os.Remove(shared)
	if err := errors.Join(os.RemoveAll(shared), copyFile(shared, filepath.Join(bin, "rxe"))); err != nil {
		return false, err
	}
	if err := g.Up(ctx, k.server, k.client); err != nil {
		return false, err
	}
	return c.enter(ctx, g, bin)
}

// run plays all rounds and prints the table.
func (k *contest) run(ctx context.Context, file string) error {
	r := ContestReport{Started: time.Now().UTC(), MTU: contestMTU}
	var err error
	if r.Guests, err = k.prepare(ctx); err != nil {
		return err
	}
	defer func() { // also for -keep
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := k.turn(ctx, true); err != nil {
			fmt.Fprintln(k.log, "interop: Soft-RoCE could not be put back:", err)
		}
	}()
	seen := map[string][][]float64{} // by entrant: for each discipline of each round, a row
	order := slices.Clone(entrants)
	for round := range contestRounds {
		for _, e := range order {
			if err := k.turn(ctx, e == softRoCE); err != nil {
				return err
			}
			for i := range disciplines {
				row, err := k.measure(ctx, e, &disciplines[i])
				if err != nil {
					return err
				}
				seen[e] = append(seen[e], row)
				fmt.Fprintf(k.log, "round %d  %-9s  %-8s  %v\n", round+1, e, disciplines[i].tool, row)
			}
		}
		slices.Reverse(order)
	}
	r.Standings, r.Again = standings(seen), k.again
	r.Seconds, r.Load = time.Since(r.Started).Seconds(), load()
	r.print(os.Stdout)
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, append(b, '\n'), 0o644))
}

// prepare tells both guests the other's MAC address (see introduce), puts our
// program into their memory, and says what they are. Only a guest under KVM has
// that one's clock.
func (k *contest) prepare(ctx context.Context) (guests string, err error) {
	const is = "cp /share/rxe /tmp/rxe && uname -r && ib_write_bw --version | tr -dc 0-9. && echo && nproc && " +
		"if grep -q kvm /sys/devices/system/clocksource/clocksource0/available_clocksource; then echo under KVM; else echo emulated by qemu, without KVM; fi"
	for _, p := range [][2]int{{k.server, k.client}, {k.client, k.server}} {
		out, err := rig.Exec(ctx, p[0], fmt.Sprintf("ip neigh replace %s lladdr 02:00:00:00:00:%02x dev eth0 nud permanent && ", rig.Addr(p[1]), p[1])+is)
		if err != nil {
			return "", err
		}
		l := strings.Split(strings.TrimSpace(out), "\n")
		if len(l) != 4 {
			return "", fmt.Errorf("guest %d said %q of itself", p[0], out)
		}
		guests = fmt.Sprintf("two guests with Linux %s, perftest %s, virtual processors: %s each, %s", l[0], l[1], l[2], l[3])
	}
	return guests, nil
}

// turn gives both guests to Soft-RoCE, or takes it out of them.
func (k *contest) turn(ctx context.Context, kernel bool) error {
	if k.kernel == kernel {
		return nil
	}
	do := kernelOff
	if kernel {
		do = kernelOn
	}
	for _, n := range []int{k.server, k.client} {
		if _, err := rig.Exec(ctx, n, "timeout 20 sh -c '"+do+"'"); err != nil {
			return err
		}
	}
	k.kernel = kernel
	return nil
}

// measure returns the row of the client's table. An emulated guest stands still
// now and then, or does not find its clock's rate: one that failed is repeated
// once, and the report says so.
func (k *contest) measure(ctx context.Context, entrant string, d *discipline) ([]float64, error) {
	row, err := k.play(ctx, entrant, d)
	if err != nil && ctx.Err() == nil {
		why := fmt.Sprintf("%s %s: %v", entrant, d.tool, err)
		fmt.Fprintln(k.log, "once more:", why)
		k.again = append(k.again, why)
		row, err = k.play(ctx, entrant, d)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", entrant, d.tool, err)
	}
	return row, nil
}

func (k *contest) play(ctx context.Context, entrant string, d *discipline) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, contestLimit)
	defer cancel()
	k.port++
	server := make(chan error, 1)
	go func() {
		out, err := rig.Exec(ctx, k.server, k.command(entrant, d, k.server))
		server <- ended("the server", out, err)
	}()
	var row []float64
	// A connection would be taken for the client's, so its list of sockets is looked at.
	_, err := rig.Exec(ctx, k.server, fmt.Sprintf("for i in {1..400}; do grep -q ':%04X 0.* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.05; done; exit 1", k.port))
	if err != nil {
		err = errors.New("the server does not listen")
	} else {
		begin := time.Now()
		out, gerr := rig.Exec(ctx, k.client, k.command(entrant, d, k.client)+rig.Addr(k.server))
		err = perfSaid("the client", out, gerr, &Case{Kind: d.tool + "/RC", Size: d.size, Iters: d.iters, QPs: 1})
		if err == nil {
			row = table(out)[0]
			err = d.inTime(row, time.Since(begin))
		}
	}
	if err != nil {
		stopGuest(k.server, k.port)
	}
	return row, errors.Join(err, <-server)
}

// inTime compares the time that a row speaks of with what passed out here, the
// start and end of the program included: the clocks of two guests that are
// emulated, and two programs' ideas of them, are not to be taken on trust.
func (d *discipline) inTime(row []float64, passed time.Duration) error {
	seconds := float64(d.iters) * float64(d.size) / (1 << 20) / row[3]
	if strings.HasSuffix(d.tool, "_lat") {
		seconds = float64(d.iters) * 2 * row[5] / 1e6
	}
	if seconds > passed.Seconds() {
		return fmt.Errorf("it speaks of %.2f seconds, and took %.2f: its clock is wrong", seconds, passed.Seconds())
	}
	return nil
}

// command is an entrant's for a discipline in a guest, without the server's
// address. The options of both programs are the same but for the device.
func (k *contest) command(entrant string, d *discipline, guest int) string {
	program := fmt.Sprintf("/tmp/rxe perf %s -d eth0 --link %s", d.tool, entrant)
	if entrant == softRoCE {
		program = fmt.Sprintf("ib_%s -d rxe0 -x $(cd /sys/class/infiniband/rxe0/ports/1/gids && grep -l ffff:c000:02%02x *)", d.tool, guest)
	}
	return fmt.Sprintf("timeout %d %s -F -p %d -c RC -m %d -s %d -n %d -u 17 ", int(contestLimit.Seconds()), program, k.port, contestMTU, d.size, d.iters)
}

// standings puts each of our links beside Soft-RoCE. Rows are those of the
// disciplines in turn, round after round.
func standings(rows map[string][][]float64) []Standing {
	var out []Standing
	for i, d := range disciplines {
		for _, f := range d.figures {
			for _, link := range entrants[1:] {
				s := Standing{What: f.what, Link: link, Unit: f.unit}
				var ratios []float64
				for j := i; j < len(rows[link]); j += len(disciplines) {
					ours, theirs := rows[link][j][f.column], rows[softRoCE][j][f.column]
					s.Gorxe, s.SoftRoCE = append(s.Gorxe, ours), append(s.SoftRoCE, theirs)
					ratios = append(ratios, ours/theirs)
				}
				s.Ratio = [3]float64{slices.Min(ratios), median(ratios), slices.Max(ratios)}
				out = append(out, s)
			}
		}
	}
	return out
}

// load is this machine's of the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	minute, _, _ := strings.Cut(string(b), " ")
	return fmt.Sprintf("load %s on %d processors", minute, runtime.NumCPU())
}

// median of an odd number of values.
func median(v []float64) float64 {
	return slices.Sorted(slices.Values(v))[len(v)/2]
}

// print writes the table: medians, the median of the rounds' ratios, and their
// spread.
func (r *ContestReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s; path MTU %d; medians of %d rounds in %.0f seconds.\n", r.Guests, r.MTU, contestRounds, r.Seconds)
	fmt.Fprintf(w, "This machine at the end: %s.\n", r.Load)
	fmt.Fprintln(w, "The ratio is ours to Soft-RoCE's in the same round.")
	fmt.Fprintf(w, "\n%-40s %-6s %10s %10s %7s  %s\n", "what", "", "gorxe", "Soft-RoCE", "ratio", "spread")
	for i := range r.Standings {
		s := &r.Standings[i]
		fmt.Fprintf(w, "%-40s %-6s %10.4g %10.4g %7.2f  %.2f-%.2f\n", s.What+", "+s.Link, s.Unit, median(s.Gorxe), median(s.SoftRoCE), s.Ratio[1], s.Ratio[0], s.Ratio[2])
	}
	for _, a := range r.Again {
		fmt.Fprintln(w, "repeated:", a)
	}
}
