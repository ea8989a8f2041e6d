// Package overlay builds test binaries of the module with some files replaced,
// which leaves the tree as it is (go help build, -overlay), and runs them: for
// programs that break the code to see who notices.
package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Scratch is a folder for the binaries of one worker.
type Scratch struct {
	Root string // of the module
	Dir  string // empty before
}

// ErrBuild is the error of code that does not compile; its text has the
// compiler's words.
var ErrBuild = errors.New("it does not compile")

// memory is how much address space a test may take, in KiB: a broken loop that
// appends would otherwise take the machine's.
const memory = 4 << 20

// apart keeps an interrupt from the terminal from what runs, and lets it be
// ended with its children.
var apart = &syscall.SysProcAttr{Setpgid: true}

// Build compiles the tests of a package, a folder of the module, with files
// replaced: their names from the root, and what they hold. It returns the path
// of the binary. More arguments are those of go test -c.
func (s *Scratch) Build(pkg string, replaced map[string][]byte, args ...string) (string, error) {
	names := map[string]string{}
	for file, text := range replaced {
		broken := filepath.Join(s.Dir, fmt.Sprintf("replaced%d.go", len(names)))
		if err := os.WriteFile(broken, text, 0o600); err != nil {
			return "", err
		}
		names[filepath.Join(s.Root, file)] = broken
	}
	j, _ := json.Marshal(map[string]any{"Replace": names})
	list := filepath.Join(s.Dir, "overlay.json")
	if err := os.WriteFile(list, j, 0o600); err != nil {
		return "", err
	}
	bin := filepath.Join(s.Dir, "test")
	build := exec.Command("go", append(append([]string{"test", "-c", "-vet=off", "-overlay", list, "-o", bin}, args...), "./"+pkg)...)
	build.Dir, build.SysProcAttr = s.Root, apart
	if out, err := build.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return "", err
		}
		return "", fmt.Errorf("%w: %s", ErrBuild, out)
	}
	return bin, nil
}

// Run runs a binary in a folder until it ends, for so long, or until ctx ends, and
// returns what it printed. The error is nil if it says that all is well.
func Run(ctx context.Context, dir, bin string, limit time.Duration, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	test := exec.CommandContext(ctx, "sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory), bin}, args...)...)
	test.Dir, test.SysProcAttr = dir, apart
	test.WaitDelay = time.Second
	test.Cancel = func() error { return syscall.Kill(-test.Process.Pid, syscall.SIGKILL) }
	return test.CombinedOutput()
}
