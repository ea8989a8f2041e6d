package sim

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/stretchr/testify/require"
)

// tester is what checks need of a *testing.T.
type tester interface {
	require.TestingT
	Helper()
	Log(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// violation is what one run of a simulation found wrong.
type violation struct {
	at   string // file and line of the check: what tells one kind from another
	text string
}

func (v *violation) String() string { return v.at + ": " + v.text }

// trial is the tester of one run: the first thing wrong ends the run, not the
// test, so that it can be run again with less.
type trial struct {
	tell bool // print what is logged
}

func (t *trial) Helper() {}

func (t *trial) Log(args ...any) {
	if t.tell {
		fmt.Println(args...)
	}
}

func (t *trial) Logf(format string, args ...any) {
	if t.tell {
		fmt.Printf(format+"\n", args...)
	}
}

func (t *trial) Fatal(args ...any) { t.end(fmt.Sprint(args...)) }

func (t *trial) Fatalf(format string, args ...any) { t.end(fmt.Sprintf(format, args...)) }

// Errorf is what require calls; its text begins with a trace that at tells of.
func (t *trial) Errorf(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if i := strings.Index(s, "Error:"); i >= 0 {
		s = s[i:]
	}
	t.end(strings.Join(strings.Fields(s), " "))
}

func (t *trial) FailNow() { t.end("failed") }

func (t *trial) end(text string) {
	at := "?"
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for f, more := frames.Next(); more; f, more = frames.Next() {
		file := path.Base(f.File)
		if strings.Contains(f.File, "/sim/") && strings.HasSuffix(file, "_test.go") && file != "trial_test.go" && !strings.HasSuffix(f.Function, ".same") {
			at = fmt.Sprintf("%s:%d", file, f.Line)
			break
		}
	}
	panic(&violation{at, text})
}

// try runs f and returns what it finds wrong, a panic of the NIC too.
func try(f func()) (v *violation) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *violation:
			v = r
		default:
			v = &violation{"panic", fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	f()
	return nil
}
