// Package uc is the engine of unreliable connections: SEND and RDMA WRITE of
// any length between two queue pairs, without acknowledgements. IBA 9.8.
//
// What arrives is whole and in order; what is lost stays lost and is counted:
//
//	in order          the message goes on
//	ahead             the message in progress is given up, its receive request
//	                  used for the next; a FIRST or ONLY begins a new one
//	just behind       repeated or overtaken: dropped
//	far behind        after so long a silence that the PSN went around: ahead
//
// A message that meets an error at the receiver (no receive request, too small
// a one, a key or length that is wrong) is dropped to its last packet; nobody
// is told, and the queue pair lives on. As in rxe, a WRITE that was given up has
// written what came before. Only a receive request that is wrong itself completes
// with an error, and ends the queue pair.
//
// The parts that it shares with other services are in package transport, among
// them the send queue: transport.Unreliable.
//
// Sans-IO, like all engines.
package uc
