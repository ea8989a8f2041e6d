//go:build !linux

package udp

import (
	"fmt"
	"runtime"

	"github.com/gorxe/gorxe/link"
)

// Open fails: the link needs UDP_SEGMENT, UDP_GRO and the IPv4
// identifications of Linux.
func Open(cfg Config) ([]link.Link, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("udp: this link works only on Linux, not on %s; link/mem works everywhere", runtime.GOOS)
}

// Probe fails as Open does.
func Probe(cfg Config) (link.Info, error) {
	_, err := Open(cfg)
	return link.Info{}, err
}
