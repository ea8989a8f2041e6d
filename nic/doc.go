// Package nic is the device: it ties links, transport engines, memory and
// completion queues together and gives them threads and time. A NIC is a
// verbs.Provider; verbs.NewContext makes of it what a program holds.
//
//	program: post, poll, wait            peers
//	     |                                 |
//	  doorbell                            link            one per shard
//	     v                                 v
//	+-------------------- shard.step ----------------------------+
//	| doorbells -> receive: ICRC -> parse -> queue pair -> engine  |
//	| -> timers -> fill bursts, round robin -> seal -> link        |
//	| -> notify completion queues                                  |
//	+--------------------------------------------------------------+
//
// A shard is a link, the queue pairs whose numbers end in its index, a timer
// wheel and a lock. Whoever posts or polls try-locks the shard and steps it in
// its own thread; who finds it locked leaves, since the holder looks again
// after it unlocked. A goroutine per shard takes over when no caller has
// stepped for a while (Config.Lease), and sleeps in the link when there is
// nothing to do. With Config.Manual there is no goroutine, and nothing moves
// but by Step: that is how the simulator runs it.
//
// Lock order: NIC.mu, then shard locks in index order, then a completion
// queue's or an inbox's lock.
//
// It imports link, rc, uc, ud and what is below them. Source: IBA Specification
// Volume 1, clauses 9.6 (header validation), 10.2 (resources), 11.6
// (asynchronous events) and Annex A17.
package nic
