//go:build !cgo

package main

const builtWithCgo = false
