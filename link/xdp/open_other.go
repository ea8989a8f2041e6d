//go:build !linux

package xdp

import (
	"errors"

	"github.com/gorxe/gorxe/link"
)

// Open only works on Linux.
func Open(Config) ([]link.Link, error) {
	return nil, errors.New("xdp: AF_XDP exists only on Linux; use link/mem here")
}

// Privileged fails as Open does.
func Privileged() error { _, err := Open(Config{}); return err }

// Probe fails as Open does.
func Probe(cfg Config) (link.Info, error) {
	_, err := Open(cfg)
	return link.Info{}, err
}
