// Package server is the daemon's side of package control: it serves devices to
// programs in other processes.
//
// Each client has a goroutine that answers its calls, one at a time, and tables of
// its own of what it made: a handle that is not in them is nobody's. Rings and
// regions are memory that the server makes and seals, so that no client can make
// it fault. When a client ends, or says what is no message, all it had is destroyed,
// object by object, each in a step of its own that holds no lock for longer than
// another client's packets may wait.
package server
