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
	"syscall"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
)

// config is what the flags say.
type config struct {
	smoke, list, keep, reference bool
	run, json, pcap              string
	inside                       string // set for the second start, inside the bridge's namespace
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == agentFlag {
		os.Exit(agent(os.Args[2]))
	}
	var c config
	flag.BoolVar(&c.smoke, "smoke", false, "a few cases of each kind")
	flag.StringVar(&c.run, "run", "", "only cases whose name matches this regular `expression`")
	flag.BoolVar(&c.list, "list", false, "print the names of the cases")
	flag.BoolVar(&c.keep, "keep", false, "leave the guest and namespaces as they are at the end")
	flag.BoolVar(&c.reference, "reference", false, "the kernel plays our part too")
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
	var out []Case
	for _, k := range allCases(c.reference) {
		if (k.Smoke || !c.smoke || c.reference) && only.MatchString(k.Name()) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no case matches %q; -list shows them", c.run)
	}
	return out, nil
}

func (c *config) main(ctx context.Context) (ok bool, err error) {
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
		return false, errors.New("needs root, for network namespaces, taps and the guest's image; the cases themselves run link udp as nobody")
	}
	g, err := rig.New(os.Stderr)
	if err != nil {
		return false, err
	}
	if c.inside != "" {
		return c.runAll(ctx, g, cases)
	}
	return c.prepare(ctx, g)
}

// prepare builds and boots, then starts this program again inside the bridge's
// namespace, where the guest can be reached, and cleans up after it.
func (c *config) prepare(ctx context.Context, g *rig.Rig) (ok bool, err error) {
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
			err = errors.Join(err, g.Down(ctx))
		}()
	}
	begin := time.Now()
	if err := g.Build(ctx); err != nil {
		return false, err
	}
	if err := g.Up(ctx, guestNumber); err != nil {
		return false, err
	}
	if err := g.Host(ctx, ourNamespace(g), hostNumber); err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "guest built and booted in %.0f seconds\n", time.Since(begin).Seconds())

	args := append([]string{"netns", "exec", g.Namespace, filepath.Join(bin, "interop"), "-inside", bin}, os.Args[1:]...)
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), "RIG_HOME="+g.Home, "RIG_NS="+g.Namespace)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil // it has said why
	}
	return err == nil, err
}

func ourNamespace(g *rig.Rig) string { return g.Namespace + "-us" }

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
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "rxe"), "github.com/gorxe/gorxe/cmd/rxe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build rxe (run this inside the repository): %w\n%s", err, out)
	}
	return os.Chmod(filepath.Join(dir, "rxe"), 0o755)
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

// runAll runs the cases, inside the bridge's namespace.
func (c *config) runAll(ctx context.Context, g *rig.Rig, cases []Case) (ok bool, err error) {
	if c.pcap != "" {
		if err := os.MkdirAll(c.pcap, 0o755); err != nil {
			return false, err
		}
	}
	r, err := newRunner(ctx, &runner{
		rig: g, ns: ourNamespace(g), self: filepath.Join(c.inside, "interop"), rxe: filepath.Join(c.inside, "rxe"),
		pcap: c.pcap, log: os.Stderr,
	})
	if err != nil {
		return false, err
	}
	report := Report{Started: time.Now().UTC(), Kernel: r.kernel}
	header(os.Stdout)
	for i := range cases {
		if ctx.Err() != nil {
			break
		}
		res := r.run(ctx, &cases[i])
		row(os.Stdout, &res)
		report.add(res)
	}
	report.Seconds = time.Since(report.Started).Seconds()
	report.summary(os.Stdout)
	if c.json != "" {
		if err := report.write(c.json); err != nil {
			return false, err
		}
	}
	return report.Failed == 0 && ctx.Err() == nil, ctx.Err()
}
