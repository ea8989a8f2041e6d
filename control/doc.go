// Package control is how a program uses a device in another process: the protocol
// that rxed speaks on its verbs socket, and the client, a verbs.Provider.
//
// The socket is a unix(7) one of type SOCK_SEQPACKET. A message is a header and a
// struct of fixed layout, little-endian, naturally aligned; docs/control.md is the
// reference, and control/testdata has a program in C that follows it. Calls create,
// change and destroy; work itself goes through memory: rings (docs/rings.md) and
// memory regions are memfds that the daemon makes, seals, and passes on.
//
//	program                              daemon
//	-------                              ------
//	post: write WQEs, producer index
//	ring: set a bit in the bell block -> its loop takes the bit
//	if the shard is asleep: WAKE      -> wakes it
//	poll: read CQEs                   <- writes CQEs
//	wait: arm, futex wait             <- futex wake
//
// The daemon trusts nothing that it reads in shared memory, and a program that ends,
// however it ends, loses what it held.
package control
