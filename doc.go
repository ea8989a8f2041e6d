// Package gorxe is RDMA over Converged Ethernet (RoCEv2) in pure Go, in user
// space: a software RDMA NIC that talks to hardware NICs and to Linux's
// Soft-RoCE, without a kernel module and without privileges.
//
// Open puts a NIC on a network interface of this host, or attaches to that of
// a daemon (rxed) which serves it, and returns a verbs.Context, what a program
// holds; package verbs has the objects made of it. NewPair makes two NICs that
// are connected in memory, for tests.
//
//	gorxe.Open(Config) -> nic.NIC -> link/fault -> link/tap -> link/udp, link/packet or link/xdp
//	                   -> control.Client -> rxed, which has such a NIC
//	gorxe.NewPair(...) -> 2 nic.NICs -> link/fault -> link/mem
//
// The examples are the whole of it: open, register memory, connect, send,
// write, read, atomics, poll, wait, datagrams, shared receive queues, multicast.
package gorxe
