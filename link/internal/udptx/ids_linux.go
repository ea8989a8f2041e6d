package udptx

import (
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
)

// CountsIDs reports whether the IPv4 identifications of the segments of one
// message, in the order in which they arrived at the far end, are those that
// bursts are sealed for: 0, 1, 2...
//
// Linux's own segmentation is known to count. A device with UDP segmentation
// of its own is expected to, as it must for TCP, but the sender cannot see
// what leaves it: the check needs a capture at the receiver (`rxe decode`
// there shows each packet's identification, and a wrong ICRC from the second
// segment on is the symptom). A link on a device that fails is opened with
// NoGSO, or the device's segmentation is switched off:
// `ethtool -K IFACE tx-udp-segmentation off`.
func CountsIDs(ids []uint16) bool {
	for i, id := range ids {
		if int(id) != i {
			return false
		}
	}
	return true
}

// hardwareNotes names the interfaces of the addresses where the hardware
// numbers the segments.
func hardwareNotes(addrs []netip.Addr) (notes []string) {
	seen := make(map[string]bool)
	for _, a := range addrs {
		ifc, err := hostnet.InterfaceWith(a)
		if !a.Is4() || err != nil || seen[ifc.Name] {
			continue
		}
		seen[ifc.Name] = true
		if hw, err := sys.HardwareSegmentation(ifc.Name); err == nil && hw {
			notes = append(notes, fmt.Sprintf("%s segments UDP in hardware, which must count IPv4 identifications up and could not be checked from here; if the peer sees bad ICRCs: ethtool -K %s tx-udp-segmentation off", ifc.Name, ifc.Name))
		}
	}
	return notes
}
