package udptx

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/gorxe/gorxe/internal/hostnet"
)

// BindError turns the error of binding a:port into one that says what to do.
func BindError(a netip.Addr, port uint16, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &TakenError{Addr: a, Port: port, Owner: hostnet.FindPortOwner(a, port)}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%v is not an address of this host, or IPv6 is still checking it for duplicates (see `ip address`): %w", a, err)
	case errors.Is(err, syscall.EINVAL) && a.IsLinkLocalUnicast():
		return fmt.Errorf("%v needs the zone of an interface that has it, such as %v%%eth0: %w", a, a.WithZone(""), err)
	}
	return fmt.Errorf("bind UDP %v: %w", netip.AddrPortFrom(a, port), err)
}

// TakenError says that somebody has the RoCEv2 port of an address. It is
// syscall.EADDRINUSE to errors.Is.
type TakenError struct {
	Addr  netip.Addr
	Port  uint16
	Owner hostnet.PortOwner
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("UDP port %d of %v is taken by %s", e.Port, e.Addr, e.Owner)
}

func (e *TakenError) Unwrap() error { return syscall.EADDRINUSE }
