package nic

import (
	"fmt"
	"unsafe"

	"github.com/gorxe/gorxe/internal/sys"
)

// bigMemory is from how many octets on the system is asked first.
const bigMemory = 1 << 28

// pages returns n octets that begin at a page. Where the system has not that
// much it returns an error: the runtime would end the process.
func pages(n int) ([]byte, error) {
	if n >= bigMemory {
		if err := sys.TryMemory(n); err != nil {
			return nil, fmt.Errorf("nic: a memory region of %d octets: %w", n, err)
		}
	}
	b := make([]byte, n+pageSize-1)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1))
	return b[off : off+n : off+n], nil
}
