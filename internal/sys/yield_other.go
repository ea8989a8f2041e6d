//go:build !linux

package sys

import "time"

// Yield lets other threads of the machine run.
func Yield() { time.Sleep(time.Microsecond) }
