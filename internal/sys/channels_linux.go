package sys

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Channels returns how many queues an interface receives and sends by; 1 where
// the driver does not say. Needs no privilege.
func Channels(ifname string) (rx, tx int, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	defer Close(fd)
	var c struct {
		cmd                             uint32
		maxRx, maxTx, maxOther, maxBoth uint32
		rx, tx, other, both             uint32
	}
	c.cmd = unix.ETHTOOL_GCHANNELS
	switch err := ethtool(fd, ifname, unsafe.Pointer(&c)); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return 1, 1, nil
	case err != nil:
		return 0, 0, err
	}
	return max(1, int(c.both+c.rx)), max(1, int(c.both+c.tx)), nil
}
