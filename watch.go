package gorxe

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/nic"
)

// tryAgain is how long after an address could not be served it is tried again,
// such as one whose port somebody has.
const tryAgain = 2 * time.Second

// enter opens the network namespace of a device. It is nil where the device is in
// the one that every thread of this process is in. Where the calling thread is in
// another one that cannot be entered, blind says why: the device then works as far
// as it needs nothing but what it has at first.
func enter(cfg *Config, show bool) (ns *hostnet.Namespace, blind, err error) {
	if cfg.Namespace != "" {
		ns, err = hostnet.OpenNamespace(cfg.Namespace)
		return ns, nil, err
	}
	if show { // it needs nothing later
		return nil, nil, nil
	}
	ns, blind = hostnet.CallerNamespace()
	return ns, blind, nil
}

// watcher has a device follow its interface.
//
//	interface --Monitor--> watcher --SetAddrs--> links
//	                          +-----SetPort----> nic
type watcher struct {
	cfg   Config
	ns    *hostnet.Namespace
	blind error // why the interface cannot be watched

	monitor *hostnet.Monitor // nil: it is not watched
	without []string         // what that means, in a sentence
	nic     *nic.NIC
	links   link.Readdresser
	wg      sync.WaitGroup
	stop    chan struct{}

	now place // what is in force
}

// subscribe begins to watch the interface, if it is a whole one.
func (w *watcher) subscribe() {
	if w.cfg.Interface == "" {
		return
	}
	err := w.blind
	if err == nil {
		w.monitor, err = hostnet.Watch(w.cfg.Interface)
	}
	if err != nil {
		w.without = []string{fmt.Sprintf("changes of %s are not followed, such as a new address: %v; open the device again after one", w.cfg.Interface, err)}
	}
}

func (w *watcher) unsubscribe() {
	if w.monitor != nil {
		w.monitor.Close()
	}
}

// start looks after a device from now on. l is one of its links.
func (w *watcher) start(n *nic.NIC, p *place, l link.Link) error {
	w.nic, w.links, w.now, w.stop = n, link.AsReaddresser(l), *p, make(chan struct{})
	if !p.whole {
		return nil
	}
	if err := n.SetPort(p.port()); err != nil { // it may be without a carrier
		return err
	}
	if w.monitor != nil {
		w.wg.Go(w.run)
	}
	return nil
}

// close ends what the device had for itself.
func (w *watcher) close() {
	if w.stop != nil {
		close(w.stop)
	}
	w.unsubscribe()
	w.wg.Wait()
	w.ns.Close()
}

func (w *watcher) run() {
	again := time.NewTimer(tryAgain)
	defer again.Stop()
	for {
		if len(w.now.missing) == 0 {
			again.Stop()
		} else {
			again.Reset(tryAgain)
		}
		select {
		case <-w.stop:
			return
		case _, ok := <-w.monitor.Changed():
			if !ok {
				return
			}
		case <-again.C:
		}
		w.update()
	}
}

// update brings the device to what the interface is now.
func (w *watcher) update() {
	log := w.cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("device", cmp.Or(w.cfg.Name, "rxe0"), "interface", w.cfg.Interface)
	next, err := w.look()
	if err != nil {
		log.Error("looking at the interface", "err", err)
		next = w.now
		next.missing = []string{fmt.Sprintf("changes of %s could not be followed: %v", w.cfg.Interface, err)}
	} else if w.same(next) {
		return
	} else {
		serving, err := w.serve(next.addrs)
		next.addrs = serving
		next.missing = append(next.missing, sentences(err)...)
	}
	if err := w.nic.SetPort(next.port()); err != nil {
		if w.nic.Err() == nil {
			log.Error("changing the port", "err", err)
		}
		return
	}
	w.tell(log, &next)
	w.now = next
}

// look reads what the interface is. One that has gone has nothing but its name.
func (w *watcher) look() (next place, err error) {
	next = place{ns: w.ns, whole: true}
	err = w.ns.Do(func() (err error) {
		next.ifc, err = hostnet.Interface(w.cfg.Interface)
		return err
	})
	old := &w.now
	switch {
	case errors.Is(err, hostnet.ErrNoInterface):
		next.ifc = hostnet.Iface{Name: old.ifc.Name, MTU: old.ifc.MTU}
		next.gids = hostnet.UpdateGIDs(old.gids, nil)
		next.missing = []string{fmt.Sprintf("interface %s is gone; the device goes on when there is one of that name", old.ifc.Name)}
		return next, nil
	case err != nil:
		return next, err
	}
	next.gids = hostnet.UpdateGIDs(old.gids, next.ifc.GIDs())
	for _, p := range next.ifc.Addrs {
		if a := p.Addr(); w.cfg.Addrs == nil || slices.ContainsFunc(w.cfg.Addrs, func(b netip.Addr) bool { return b.Unmap().WithZone("") == a }) {
			next.own(a)
		}
	}
	for _, a := range w.cfg.Addrs { // such as one of 127.0.0.0/8, which lo has without being told
		if a = a.Unmap(); next.ifc.Has(a) && !slices.Contains(next.bare(), a.WithZone("")) {
			next.own(a)
		}
	}
	if least := 256 + headroom; next.ifc.MTU < least {
		next.missing = []string{fmt.Sprintf("%s has an MTU of %d, and RoCEv2 needs %d at least; 'ip link set %[1]s mtu %[3]d'", next.ifc.Name, next.ifc.MTU, least)}
	}
	return next, nil
}

// headroom is what the headers of a packet take, as hostnet.PathMTU has it.
const headroom = 80

// same reports whether there is nothing to do: the interface is as it was, and the
// links have all of its addresses.
func (w *watcher) same(next place) bool {
	a, b := w.now.ifc, next.ifc
	return len(w.now.missing) == 0 && a.Index == b.Index && a.MTU == b.MTU && a.MAC == b.MAC && a.Live == b.Live &&
		a.Speed == b.Speed && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(w.now.addrs, next.addrs)
}

// serve has the links serve addresses, and returns those that they do.
func (w *watcher) serve(addrs []netip.Addr) ([]netip.Addr, error) {
	if w.links == nil {
		return w.now.addrs, nil
	}
	return w.links.SetAddrs(addrs)
}

// tell logs what a change means.
func (w *watcher) tell(log *slog.Logger, next *place) {
	old := &w.now
	if old.ifc.Live != next.ifc.Live || old.ifc.MTU != next.ifc.MTU || !slices.Equal(old.addrs, next.addrs) {
		log.Info("the interface has changed", "up", next.ifc.Live, "mtu", next.ifc.MTU, "addresses", fmt.Sprint(next.bare()))
	}
	for _, s := range next.missing {
		if !slices.Contains(old.missing, s) {
			log.Warn("not all of the interface can be used", "err", s)
		}
	}
}

// port is a place in the NIC's words.
func (p *place) port() nic.Port {
	return nic.Port{
		Active: p.ifc.Live, GIDs: p.table(), Addrs: p.bare(), Scope: uint32(p.ifc.Index), ChooseGID: p.chooser(),
		MTU: p.ifc.MTU, SpeedMbit: p.ifc.Speed, Missing: p.missing,
	}
}

// sentences are the errors that were joined into one.
func sentences(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
