// Package hostnet is what the kernel says about a host's network, as an RDMA
// NIC that shares the host's interfaces needs it: interfaces and their
// addresses, the GID table made of them, routes, neighbours, the privileges
// of this process, and who owns the RoCEv2 port.
//
//	kernel --netlink--> Iface --> []GID --ChooseGID(peer)--> source address
//	                      |
//	                      +--> PathMTU
//
// Every answer is of the moment and of the calling thread's network
// namespace; nothing is cached. A Namespace is a thread that lives in another
// one; a Monitor says that it is time to ask again. Interfaces, GIDs and PathMTU work everywhere,
// Route, Neighbor, Capabilities and PortOwners only on Linux; elsewhere they
// return ErrNotLinux.
//
// The package imports nothing of gorxe.
package hostnet
