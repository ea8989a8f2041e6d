//go:build !linux

package sys

import "sync/atomic"

// FutexWake is for memory that processes share, which there is only on Linux.
func FutexWake(*atomic.Uint32) {}
