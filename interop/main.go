package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
)

// config is what the flags say.
type config struct {
	smoke, list, keep, reference, serial, contest, daemon bool
	run, suite, link, json, pcap                          string
	seed                                                  uint64
	inside                                                string // set for the second start, inside the bridge's namespace
}

// smokeShare is how many cases the smoke form draws one of; see draw.
const smokeShare = 10

// smokeShareDaemon is that of the cases through a daemon, which are drawn besides.
const smokeShareDaemon = 40

func main() {
	if len(os.Args) == 3 && os.Args[1] == agentFlag {
		os.Exit(agent(os.Args[2]))
	}
	var c config
	flag.BoolVar(&c.smoke, "smoke", false, "a tenth of the cases, drawn by the seed: some of each kind")
	flag.Uint64Var(&c.seed, "seed", 0, "what the smoke form draws by (default: the commit)")
	flag.StringVar(&c.suite, "suite", "", "only cases against the guest of this suite: bookworm or trixie")
	flag.StringVar(&c.link, "link", "", "every case over this link of ours, whatever the table says: packet, udp or xdp")
	flag.BoolVar(&c.daemon, "daemon", false, "every case with our side attached to an rxed, as a user without privilege")
	flag.BoolVar(&c.serial, "serial", false, "one guest after the other, not both at the same time")
	flag.StringVar(&c.run, "run", "", "only cases whose name matches this regular `expression`")
	flag.BoolVar(&c.list, "list", false, "print the names of the cases")
	flag.BoolVar(&c.keep, "keep", false, "leave the guest and namespaces as they are at the end")
	flag.BoolVar(&c.reference, "reference", false, "the kernel plays our part too")
	flag.BoolVar(&c.contest, "contest", false, "instead of cases, measure gorxe beside Soft-RoCE, each at both ends, in two guests of a suite")
	flag.StringVar(&c.json, "json", "", "write the results to this `file`")
	flag.StringVar(&c.pcap, "pcap", "", "write the packets of each case to a file in this `folder`")
	flag.StringVar(&c.inside, "inside", "", "for its own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := c.main(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	}
	if !ok || err != nil {
		os.Exit(1) //nolint:gocritic // nothing is left to undo
	}
}

// cases returns those that were asked for.
func (c *config) cases() ([]Case, error) {
	only, err := regexp.Compile(c.run)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	if c.link != "" && (c.reference || !slices.Contains(links, c.link)) {
		return nil, fmt.Errorf("-link %s: our side has the links %s, and none with -reference", c.link, strings.Join(links, ", "))
	}
	all := allCases(c.reference)
	switch {
	case c.daemon && c.reference:
		return nil, errors.New("-daemon is about our side, and -reference has none")
	case c.daemon && c.smoke:
		all = draw(all, smokeShare, c.seed)
	case c.smoke:
		all = append(draw(all, smokeShare, c.seed), throughDaemon(draw(all, smokeShareDaemon, c.seed+1))...)
	}
	if c.link != "" {
		all = over(c.link, all)
	}
	if c.daemon {
		all = throughDaemon(all)
	}
	var out []Case
	for _, k := range all {
		if (c.suite == "" || c.suite == k.Suite) && only.MatchString(k.Name()) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no case matches -run %q and -suite %q; -list shows them", c.run, c.suite)
	}
	return out, nil
}

// commitSeed is a number that is another one for each commit, so that in the
// course of time every case is drawn, and the same for who looks into a failure.
func commitSeed() uint64 {
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil || len(out) < 8 {
		return 1
	}
	n, err := strconv.ParseUint(string(out[:8]), 16, 64)
	if err != nil {
		return 1
	}
	return n
}

func (c *config) main(ctx context.Context) (ok bool, err error) {
	if c.contest {
		return c.runContest(ctx)
	}
	if c.smoke && c.seed == 0 {
		c.seed = commitSeed()
	}
	cases, err := c.cases()
	if err != nil {
		return false, err
	}
	if c.list {
		for i := range cases {
			fmt.Println(cases[i].Name())
		}
		return true, nil
	}
	if os.Getuid() != 0 {
		return false, errors.New("needs root, for network namespaces, taps and the guests' images; the cases themselves run link udp as nobody")
	}
	var rigs []*rig.Rig
	for _, suite := range suites {
		if slices.ContainsFunc(cases, func(k Case) bool { return k.Suite == suite }) {
			g, err := rig.New(suite, os.Stderr)
			if err != nil {
				return false, err
			}
			rigs = append(rigs, g)
		}
	}
	if c.inside != "" {
		return c.runAll(ctx, rigs, cases)
	}
	return c.prepare(ctx, rigs)
}

// prepare builds and boots, then starts this program again inside the bridge's
// namespace, where the guests can be reached, and cleans up after it.
func (c *config) prepare(ctx context.Context, rigs []*rig.Rig) (ok bool, err error) {
	bin, err := os.MkdirTemp("", "gorxe-interop-")
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
			for _, g := range rigs {
				err = errors.Join(err, g.Down(ctx))
			}
		}()
	}
	begin := time.Now()
	for _, g := range rigs {
		for _, n := range []int{hostNumbers[g.Suite], hostNumbers[g.Suite] + secondHost} {
			if err := g.Host(ctx, ourNamespace(g, n), n); err != nil {
				return false, err
			}
		}
	}
	if err := each(rigs, func(g *rig.Rig) error {
		if err := g.Build(ctx); err != nil {
			return err
		}
		return g.Up(ctx, guestNumbers[g.Suite])
	}); err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "guests built and booted in %.0f seconds\n", time.Since(begin).Seconds())
	if c.smoke {
		fmt.Fprintf(os.Stderr, "cases drawn with -seed %d\n", c.seed)
	}

	return c.enter(ctx, rigs[0], bin)
}

// enter starts this program again, from bin, inside the bridge's namespace.
func (c *config) enter(ctx context.Context, g *rig.Rig, bin string) (ok bool, err error) {
	args := append([]string{"netns", "exec", g.Namespace, filepath.Join(bin, "interop"), "-inside", bin, "-seed", strconv.FormatUint(c.seed, 10)}, os.Args[1:]...)
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil // it has said why
	}
	return err == nil, err
}

// each does something for all rigs at the same time.
func each(rigs []*rig.Rig, do func(*rig.Rig) error) error {
	errs := make([]error, len(rigs))
	var all sync.WaitGroup
	for i, g := range rigs {
		all.Go(func() { errs[i] = do(g) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// ourNamespace is the namespace of our side with a number.
func ourNamespace(g *rig.Rig, n int) string { return fmt.Sprintf("%s-us%d", g.Namespace, n) }

// binaries puts this program and rxe where any user can read them, which a
// checkout in a home directory is not.
func (c *config) binaries(ctx context.Context, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := copyFile(filepath.Join(dir, "interop"), self); err != nil {
		return err
	}
	if c.reference {
		return nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "github.com/gorxe/gorxe/cmd/rxe", "github.com/gorxe/gorxe/cmd/rxed")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build rxe and rxed (run this inside the repository): %w\n%s", err, out)
	}
	return errors.Join(os.Chmod(filepath.Join(dir, "rxe"), 0o755), os.Chmod(filepath.Join(dir, "rxed"), 0o755))
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// runAll runs the cases, inside the bridge's namespace: those of one guest one
// after the other, the guests at the same time.
func (c *config) runAll(ctx context.Context, rigs []*rig.Rig, cases []Case) (ok bool, err error) {
	if c.pcap != "" {
		if err := os.MkdirAll(c.pcap, 0o755); err != nil {
			return false, err
		}
	}
	report := Report{Started: time.Now().UTC()}
	if c.smoke {
		report.Seed = c.seed
	}
	runners := map[string]*runner{}
	for _, g := range rigs {
		r, err := newRunner(ctx, &runner{
			rig: g, ns: ourNamespace(g, hostNumbers[g.Suite]), ns2: ourNamespace(g, hostNumbers[g.Suite]+secondHost), self: filepath.Join(c.inside, "interop"), rxe: filepath.Join(c.inside, "rxe"), rxed: filepath.Join(c.inside, "rxed"),
			pcap: c.pcap, log: os.Stderr,
		})
		if err != nil {
			return false, err
		}
		runners[g.Suite] = r
		report.Guests = append(report.Guests, r.guestIs)
	}
	header(os.Stdout)
	var printing sync.Mutex
	results := make([]Result, len(cases))
	lane := func(g *rig.Rig) error {
		for i := range cases {
			if cases[i].Suite == g.Suite && ctx.Err() == nil {
				results[i] = runners[g.Suite].run(ctx, &cases[i])
				printing.Lock()
				row(os.Stdout, &results[i])
				printing.Unlock()
			}
		}
		return nil
	}
	if c.serial {
		for _, g := range rigs {
			_ = lane(g)
		}
	} else {
		_ = each(rigs, lane)
	}
	for i := range results {
		if results[i].Name != "" {
			report.add(results[i])
		}
	}
	for _, r := range runners {
		if derr := r.stopDaemons(); derr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.ns, derr))
		}
	}
	report.Seconds = time.Since(report.Started).Seconds()
	report.summary(os.Stdout)
	if c.json != "" {
		if err := report.write(c.json); err != nil {
			return false, err
		}
	}
	return report.Failed == 0 && ctx.Err() == nil, errors.Join(err, ctx.Err())
}
