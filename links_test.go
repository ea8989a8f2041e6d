package gorxe

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/wire"
)

// TestAutoFallsBack: auto takes packet where udp cannot be had, and says why; a
// taken port is no reason, since packet needs it too; when neither can be had the
// error is udp's.
func TestAutoFallsBack(t *testing.T) {
	burnt := errors.New("the sockets burn")
	info := link.Info{Name: "packet", Exact4: true, Exact6: true, IDs: wire.IDCount, MTU: 1500, Missing: []string{"the ring is short"}}
	for _, c := range []struct {
		name        string
		udp, packet error
		want        error
		missing     []string
	}{
		{"packet", burnt, nil, nil, []string{"the ring is short", "link udp cannot be used, so packet is, which needs CAP_NET_RAW: the sockets burn"}},
		{"neither", burnt, packet.ErrPrivilege, burnt, nil},
		{"port taken", syscall.EADDRINUSE, nil, syscall.EADDRINUSE, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev, err := open(&Config{Addr: testbed.Loopback(0).String()}, opener{
				udp:    func(udp.Config) ([]link.Link, error) { return nil, c.udp },
				packet: func(packet.Config) ([]link.Link, error) { return show(info, 1, c.packet) },
				show:   true,
			})
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			defer dev.Close()
			a, err := dev.QueryDevice()
			require.NoError(t, err)
			require.Equal(t, "packet", a.Link)
			require.ElementsMatch(t, c.missing, a.Missing)
		})
	}
}
