package sys

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreqData is struct ifreq of the ioctl SIOCETHTOOL.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is larger than a pointer
}

const (
	ethSSFeatures  = 4
	ethStringLen   = 32
	ethMaxFeatures = 256
)

// HardwareSegmentation reports whether an interface is a physical device with
// UDP segmentation (tx-udp-segmentation) switched on, so that the device and
// not the kernel numbers the segments. Needs no privilege.
func HardwareSegmentation(ifname string) (bool, error) {
	if _, err := os.Stat("/sys/class/net/" + ifname + "/device"); err != nil {
		return false, nil // virtual: whatever segments in the end is the kernel
	}
	return Feature(ifname, "tx-udp-segmentation")
}

// Feature reports whether an offload of an interface is active, by the name
// that ethtool -k prints.
func Feature(ifname, feature string) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer Close(fd)

	var info struct {
		cmd, _ uint32
		mask   uint64
		n      uint32
		_      uint32
	}
	info.cmd, info.mask = unix.ETHTOOL_GSSET_INFO, 1<<ethSSFeatures
	if err := ethtool(fd, ifname, unsafe.Pointer(&info)); err != nil {
		return false, err
	}
	if info.mask == 0 || info.n > ethMaxFeatures {
		return false, errors.New("ethtool: no list of features")
	}
	var names struct {
		cmd, set, n uint32
		data        [ethMaxFeatures][ethStringLen]byte
	}
	names.cmd, names.set, names.n = unix.ETHTOOL_GSTRINGS, ethSSFeatures, info.n
	if err := ethtool(fd, ifname, unsafe.Pointer(&names)); err != nil {
		return false, err
	}
	var feats struct {
		cmd, size uint32
		block     [ethMaxFeatures / 32]struct{ available, requested, active, never uint32 }
	}
	feats.cmd, feats.size = unix.ETHTOOL_GFEATURES, (info.n+31)/32
	if err := ethtool(fd, ifname, unsafe.Pointer(&feats)); err != nil {
		return false, err
	}
	for i := range names.data[:info.n] {
		if s, _, _ := bytes.Cut(names.data[i][:], []byte{0}); string(s) == feature {
			return feats.block[i/32].active>>(i%32)&1 != 0, nil
		}
	}
	return false, fmt.Errorf("ethtool: %s has no feature %s", ifname, feature)
}

func ethtool(fd int, ifname string, arg unsafe.Pointer) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(arg)
	req := ifreqData{data: arg}
	copy(req.name[:unix.IFNAMSIZ-1], ifname)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
		return fmt.Errorf("ethtool %s: %w", ifname, e)
	}
	return nil
}
