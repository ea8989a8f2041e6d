//go:build !linux

package sys

// TryMemory believes that there is enough.
func TryMemory(int) error { return nil }
