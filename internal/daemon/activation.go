package daemon

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// activated returns the sockets that the service manager listens on for the daemon,
// by the names that FileDescriptorName= gives them: verbs and admin.
// systemd.socket(5).
func activated() (map[string]*socket, error) {
	all, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("sockets of the service manager: %w", err)
	}
	out := map[string]*socket{}
	for name, ls := range all {
		network := map[string]string{"verbs": "unixpacket", "admin": "unix"}[name]
		if network == "" || len(ls) != 1 {
			return nil, fmt.Errorf("the service manager passes %d sockets named %q; there is one named verbs (ListenSequentialPacket=) and one named admin (ListenStream=)", len(ls), name)
		}
		l, ok := ls[0].(*net.UnixListener)
		if !ok || l.Addr().Network() != network {
			return nil, fmt.Errorf("the service manager's socket %q is %s, not %s", name, ls[0].Addr().Network(), network)
		}
		l.SetUnlinkOnClose(false)
		out[name] = &socket{UnixListener: l, path: l.Addr().String()}
	}
	return out, nil
}
