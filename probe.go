package gorxe

import (
	"time"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/link/xdp"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Probe returns a device like the one that Open would make of cfg, for show:
// Device, Port and GIDs answer as those of the real one would, but nothing is
// sent or received, and port 4791 may be somebody else's. Where Open would attach to
// a daemon's device, it is that. Faults and Tap are
// ignored. Errors are those of Open, but for a taken port.
func Probe(cfg Config) (*verbs.Context, error) {
	cfg.Faults, cfg.Tap = "", ""
	return opened(&cfg, func() (*verbs.Context, error) {
		return asContext(open(&cfg, opener{
			udp:    func(c udp.Config) ([]link.Link, error) { i, err := udp.Probe(c); return show(i, c.Shards, err) },
			packet: func(c packet.Config) ([]link.Link, error) { i, err := packet.Probe(c); return show(i, c.Shards, err) },
			xdp:    func(c xdp.Config) ([]link.Link, error) { i, err := xdp.Probe(c); return show(i, c.Shards, err) },
			show:   true,
		}))
	})
}

// show returns links that have nothing but a description.
func show(info link.Info, shards int, err error) (links []link.Link, _ error) {
	if err != nil {
		return nil, err
	}
	for range max(1, shards) {
		links = append(links, dummy{info})
	}
	return links, nil
}

// dummy is a link to nowhere.
type dummy struct{ info link.Info }

func (d dummy) Info() link.Info                 { return d.info }
func (dummy) Recv([]wire.Datagram) (int, error) { return 0, nil }
func (dummy) Send(b []*wire.Burst) (int, error) { return 0, nil }
func (dummy) Wait(time.Duration) error          { return nil }
func (dummy) Wake()                             {}
func (dummy) Close() error                      { return nil }
