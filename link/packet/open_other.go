//go:build !linux

package packet

import (
	"errors"

	"github.com/gorxe/gorxe/link"
)

// Open only works on Linux.
func Open(Config) ([]link.Link, error) {
	return nil, errors.New("packet: packet sockets exist only on Linux; use link/mem here")
}
