package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

// Run is Start and the life after it: it reloads on SIGHUP, stops on SIGTERM and
// SIGINT, and returns the exit code. A second signal ends the process at once.
func Run(cfg *Config, opts Options) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	d, err := Start(cfg, opts)
	if err != nil {
		return 1, err
	}
	for {
		select {
		case err := <-d.Failed():
			d.log.Error("service ends", "err", err)
			d.Stop()
			return 1, err
		case s := <-signals:
			if s == syscall.SIGHUP {
				_, _ = d.Reload() // it is in the log
				continue
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				d.Stop()
			}()
			return waitStop(done, signals, os.Exit), nil
		}
	}
}

// waitStop waits for the daemon to stop, or for a second signal.
func waitStop(done <-chan struct{}, signals <-chan os.Signal, exit func(int)) int {
	for {
		select {
		case <-done:
			return 0
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && n != syscall.SIGHUP {
				exit(128 + int(n))
			}
		}
	}
}
