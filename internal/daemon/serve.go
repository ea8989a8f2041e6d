package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/gorxe/gorxe/control/server"
)

// served is the backend: a server for each device, behind one socket.
type served struct {
	hub     *server.Hub
	servers map[string]*server.Server
}

// newBackend makes servers for open devices, with the limits and access rules of
// the configuration.
func newBackend(devs []*device, cfg *Config, log *slog.Logger) (backend, error) {
	users, groups, err := cfg.Control.allowed()
	if err != nil {
		return nil, err
	}
	b := &served{servers: map[string]*server.Server{}}
	var all []*server.Server
	for _, d := range devs {
		s, err := server.New(server.Config{
			NIC: d.NIC, Name: d.cfg.Name, NetnsCookie: d.netns,
			PerClient: d.cfg.PerClient, Device: d.cfg.Total,
			Access: server.Access{UIDs: users, GIDs: groups}, Logger: log,
		})
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", d.cfg.Name, err)
		}
		d.server = s
		b.servers[d.cfg.Name] = s
		all = append(all, s)
	}
	b.hub = server.NewHub(log, all...)
	return b, nil
}

func (b *served) Serve(l *net.UnixListener) error { return b.hub.Serve(l) }

func (b *served) Close(ctx context.Context) error { return b.hub.Close(ctx) }

func (b *served) SetLimits(device string, perClient, total Limits) error {
	s := b.servers[device]
	if s == nil {
		return fmt.Errorf("no device %s is served", device)
	}
	s.SetLimits(perClient, total)
	return nil
}

func (b *served) Allow(users, groups []uint32) {
	for _, s := range b.servers {
		s.SetAccess(server.Access{UIDs: users, GIDs: groups})
	}
}
