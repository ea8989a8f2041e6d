// Package transport is what the engines of the transport services share: the
// seam to completion and receive queues, access to registered memory, the
// receive request at hand, the attributes of a queue pair, the send request and
// its packets. Packages rc, uc and ud are built from these parts; none of them
// is an engine by itself.
//
// Like the engines it is sans-IO: no goroutine, lock, clock or log.
package transport
