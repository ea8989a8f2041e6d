//go:build !linux

package relay

import (
	"context"

	"github.com/gorxe/gorxe/internal/hostnet"
)

// Relay is only available on Linux.
type Relay struct{}

// Open is only available on Linux.
func Open(Config) (*Relay, error) { return nil, hostnet.ErrNotLinux }

// Run does nothing.
func (*Relay) Run(context.Context) error { return nil }

// Close does nothing.
func (*Relay) Close() {}
