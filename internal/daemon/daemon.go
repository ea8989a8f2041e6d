package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Options are what a Daemon gets from its program.
type Options struct {
	// Load reads the configuration, at the start and at each reload.
	Load    func() (*Config, error)
	Version string
	Stderr  io.Writer // the log
}

// Daemon is a running rxed.
//
//	Start --> serving --Stop--> ended
type Daemon struct {
	opts    Options
	log     *slog.Logger
	logs    *logs
	notify  *notify
	started time.Time

	devices        []*device
	back           backend
	control, admin *socket
	adminServer    *adminServer
	metrics        metricsServer

	wg   sync.WaitGroup
	quit chan struct{}
	end  chan error // what ended service before Stop

	mu  sync.Mutex // reloads, one at a time
	cfg *Config
}

// backend serves open devices to other processes; see serve.go.
type backend interface {
	// Serve accepts until Close.
	Serve(l *net.UnixListener) error
	// Close tells clients that their devices are gone, and cuts off, when ctx is
	// over, those that have not left.
	Close(ctx context.Context) error
	SetLimits(device string, perClient, total Limits) error
	Allow(users, groups []uint32)
}

// How long things may take.
const (
	// stopTime is what clients have to leave when the daemon stops.
	stopTime = 2 * time.Second
	// checkEvery is how often devices are looked at when no service manager asks,
	// pulseTime what each shard has for a step, and againIn when those are looked
	// at again that had not enough.
	checkEvery = 5 * time.Second
	pulseTime  = 2 * time.Second
	againIn    = 100 * time.Millisecond
)

// Start opens devices and sockets, gives up rights, and serves. When it fails
// nothing is left but the rights.
func Start(cfg *Config, opts Options) (_ *Daemon, err error) {
	d := &Daemon{opts: opts, cfg: cfg, started: time.Now(), quit: make(chan struct{}), end: make(chan error, 3)}
	d.log, d.logs = newLogger(opts.Stderr, cfg.Log)
	d.notify = newNotify(func(err error) { d.log.Warn("the service manager cannot be told", "err", err) })
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	d.log.Info("start", "version", opts.Version, "pid", os.Getpid())
	if err := d.openSockets(); err != nil { // first: a second daemon goes no further
		return nil, err
	}
	if d.devices, err = openDevices(cfg.Devices, d.log); err != nil {
		return nil, err
	}
	if err := d.metrics.listen(cfg.Metrics, d); err != nil {
		return nil, err
	}
	if d.back, err = newBackend(d.devices, cfg, d.log); err != nil {
		return nil, err
	}
	if err := cfg.Process.giveUp(d.links(), d.log); err != nil {
		return nil, err
	}
	d.serve()
	d.notify.ready(d.status())
	d.log.Info("ready", "control", d.control.path, "admin", d.admin.path, "devices", d.names())
	return d, nil
}

// openSockets takes those that the service manager passed on, and makes the others.
func (d *Daemon) openSockets() (err error) {
	passed, err := activated()
	if err != nil {
		return err
	}
	for _, s := range []struct {
		name, network, path string
		to                  **socket
		mode                os.FileMode
		group               string
	}{
		{name: "verbs", network: "unixpacket", path: d.cfg.Control.Socket, to: &d.control, mode: d.cfg.Control.Mode, group: d.cfg.Control.Group},
		{name: "admin", network: "unix", path: d.cfg.Admin.Socket, to: &d.admin, mode: d.cfg.Admin.Mode, group: d.cfg.Admin.Group},
	} {
		if p := passed[s.name]; p != nil {
			*s.to = p
			continue
		}
		gid, err := fileGroup(s.group)
		if err != nil {
			return err
		}
		if *s.to, err = listen(s.network, s.path, s.mode, gid); err != nil {
			return err
		}
		if (*s.to).stale {
			d.log.Warn("a socket was left from a process that is no more; it was replaced", "socket", s.path)
		}
	}
	return nil
}

// fileGroup is the group of a socket's file, -1 the process's own.
func fileGroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	g, err := groupID(name)
	return int(g), err
}

func (d *Daemon) serve() {
	d.wg.Go(func() {
		if err := d.back.Serve(d.control.UnixListener); err != nil && !errors.Is(err, net.ErrClosed) {
			d.fail(fmt.Errorf("control socket: %w", err))
		}
	})
	d.adminServer = newAdminServer(newSource(d))
	d.wg.Go(func() {
		if err := d.adminServer.serve(d.admin.UnixListener); err != nil && !errors.Is(err, net.ErrClosed) {
			d.fail(fmt.Errorf("admin socket: %w", err))
		}
	})
	d.wg.Go(d.watch)
}

func (d *Daemon) fail(err error) {
	select {
	case d.end <- err:
	default:
	}
}

// Failed gives the error that ends service by itself.
func (d *Daemon) Failed() <-chan error { return d.end }

// watch looks at the devices as often as the service manager wants to hear of them,
// and writes what the log left out.
func (d *Daemon) watch() {
	every := watchdogEvery()
	tell := every > 0
	if !tell {
		every = checkEvery
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-d.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	still := false // a device was, the last time
	for {
		next := every
		switch err := moves(ctx, d.devices, min(every, pulseTime)); {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.log.Error("a device does not move", "err", err)
			d.notify.status("A device does not move: " + err.Error())
			still, next = true, againIn
		case still:
			d.log.Info("all devices move again")
			d.notify.status(d.status())
			still = false
			fallthrough
		default:
			if tell {
				d.notify.watchdog()
			}
		}
		d.logs.flush()
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-d.quit:
			return
		}
	}
}

// Stop ends service: clients are told that their devices are gone and have a moment
// to leave, sockets are removed, devices closed.
func (d *Daemon) Stop() {
	d.notify.stopping()
	d.log.Info("stop")
	d.close()
	d.log.Info("stopped")
	d.logs.flush()
}

func (d *Daemon) close() {
	close(d.quit)
	for _, s := range []*socket{d.control, d.admin} {
		if s != nil {
			s.unlink() // nobody else comes
			defer s.Close()
		}
	}
	if d.back != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		if err := d.back.Close(ctx); err != nil {
			d.log.Warn("clients were cut off", "err", err)
		}
		cancel()
	}
	if d.adminServer != nil {
		_ = d.adminServer.Close()
	}
	d.metrics.close()
	d.wg.Wait()
	closeDevices(d.devices)
}

func (d *Daemon) links() (out []string) {
	for _, dev := range d.devices {
		if a, err := dev.QueryDevice(); err == nil {
			out = append(out, a.Link)
		}
	}
	return out
}

func (d *Daemon) names() string {
	var out []string
	for _, dev := range d.devices {
		out = append(out, dev.cfg.Name)
	}
	return strings.Join(out, " ")
}

func (d *Daemon) status() string {
	return fmt.Sprintf("Serving %s at %s", d.names(), d.control.path)
}
