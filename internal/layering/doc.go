// Package layering holds the house together: its test fails when a package
// imports what it must not, or when an engine package starts a goroutine,
// takes a lock, reads a clock, opens a socket or writes a log. It has no code
// of its own; the table is in table_test.go, and a new package must be added
// there first.
package layering
