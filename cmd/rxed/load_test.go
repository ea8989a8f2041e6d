package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control/admin"
)

// TestFilterUnderLoad runs all that a daemon does, at once and many times over, with
// a filter that ends the process at the first system call that is not in it: programs
// that come, use every link, and go, or are cut off; captures; metrics; every
// question of the admin socket; reloads good and bad; the garbage collector and
// threads of the Go runtime.
func TestFilterUnderLoad(t *testing.T) {
	needsThreads(t)
	for _, link := range []string{"udp", "packet"} {
		t.Run(link, func(t *testing.T) { loadFilter(t, link) })
	}
}

func loadFilter(t *testing.T, link string) {
	p := newPlace(t)
	port := freePort(t)
	text := strings.ReplaceAll("[process]\nseccomp = \"kill\"\n[metrics]\nlisten = \"127.0.0.1:"+port+"\"\n"+twoDevices(), `"udp"`, `"`+link+`"`)
	d := p.launch([]string{"GOGC=10", "GOMEMLIMIT=64MiB"}, "-c", p.file(text))
	if needs := d.wait("msg=ready|^rxed: "); strings.Contains(needs, "CAP_NET_RAW") {
		t.Skip(needs)
	}
	ctx, cancel := context.WithTimeout(ctxFor(t), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	again := func(what string, f func() error) {
		wg.Go(func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				if err := f(); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
			t.Logf("%s: %d times", what, n)
		})
	}
	a, b := couple(t, p, "rxe0", "rxe1")
	again("write", func() error { return write(ctx, a, b, 1<<16) })
	again("come and go", func() error {
		x, y := couple(t, p, "rxe0", "rxe1")
		err := write(ctx, x, y, 5000)
		_ = x.dev.Close()
		_ = y.dev.Close()
		return err
	})
	again("ask", func() error {
		if _, err := d.admin.Counters(ctx, "rxe0", true); err != nil {
			return err
		}
		if _, err := d.admin.QPs(ctx, "rxe1"); err != nil {
			return err
		}
		if _, err := d.admin.Trace(ctx, "rxe1", 0, 100); err != nil {
			return err
		}
		_, err := d.admin.Devices(ctx)
		return err
	})
	again("capture", func() error {
		_, err := d.admin.Capture(ctx, "rxe0", io.Discard, admin.CaptureOptions{Count: 100})
		return err
	})
	again("metrics", func() error { get(t, "http://127.0.0.1:"+port+"/metrics"); return nil })
	levels := []string{"debug", "info", "loud"}
	n := 0
	again("reload", func() error {
		n++
		level := levels[n%len(levels)]
		other := []string{"0660", "0600"}[n%2]
		tmp := p.path("next.toml")
		if err := os.WriteFile(tmp, []byte(fmt.Sprintf("[log]\nlevel = %q\n[control]\nmode = %q\n%s[device.total]\nqps = %d\n", level, other, text, n%2*50000)), 0o600); err != nil {
			return err
		}
		if err := os.Rename(tmp, p.path("rxed.toml")); err != nil {
			return err
		}
		_, err := d.admin.Reload(ctx)
		if (err != nil) != (level == "loud") {
			return fmt.Errorf("level %s: %w", level, err)
		}
		return nil
	})
	wg.Wait()
	require.NoError(t, write(ctxFor(t), a, b, 1000))
	d.signal(syscall.SIGTERM)
	require.Equal(t, exitStopped, d.exit())
}
