package daemon

import (
	"fmt"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/gorxe/gorxe/internal/sys"
)

// notify tells the service manager, if there is one, how things are. sd_notify(3).
type notify struct {
	send func(state string)
}

func newNotify(complain func(error)) *notify {
	return &notify{func(state string) {
		if _, err := sd.SdNotify(false, state); err != nil {
			complain(err)
		}
	}}
}

func (n *notify) ready(status string) { n.send(sd.SdNotifyReady + "\nSTATUS=" + oneLine(status)) }

func (n *notify) reloading() {
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, sys.Monotonic()/1000))
}

func (n *notify) stopping() { n.send(sd.SdNotifyStopping + "\nSTATUS=Stopping") }

func (n *notify) status(s string) { n.send("STATUS=" + oneLine(s)) }

func (n *notify) watchdog() { n.send(sd.SdNotifyWatchdog) }

// watchdogEvery returns how often the manager wants to hear of a process that is
// well: twice in the time it waits. 0 is never.
func watchdogEvery() time.Duration {
	d, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return d / 2
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
