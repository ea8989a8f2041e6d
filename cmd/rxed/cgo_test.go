//go:build cgo

package main

// builtWithCgo is for tests of rights, which skip then: Go cannot make a system call on all threads
// of a program with cgo.
const builtWithCgo = true
