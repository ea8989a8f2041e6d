// Package xdp is a link over AF_XDP sockets: an XDP program takes the RoCEv2
// packets out of the interface's receive path and puts them into memory that
// the link shares with the kernel, and frames that the link builds there are
// sent without the stack.
//
//	         +--------------------- kernel ----------------------+
//	wire --->| driver -> XDP program --(ours)--> receive ring ---+---> Recv
//	         |               |                                   |
//	         |               +--(others')--> stack               |
//	wire <---+ driver <----------------------- send ring <-------+---- Send
//	         |                                                   |     |
//	wire <---+ stack <------------- unconnected UDP sockets <----+-----+
//	         +---------------------------------------------------+
//
// It sees the IP header, so its ICRC check is exact for both families. It is
// for physical NICs whose drivers share the memory (zero copy); over a driver
// without XDP, or a veth, everything costs as much per packet as it does
// anywhere, and link/udp, which moves runs of packets, is several times faster.
//
// # What the program takes
//
// UDP packets to port 4791 of an address that is served, in a frame for the
// interface's MAC address, untagged or with a tag for VLAN 0. It goes into the
// driver (native mode), or, where the driver cannot have it, behind it (generic
// mode). There, a run that a sender on this machine left uncut comes in one piece;
// the link finds its segments by their ICRC. All else passes on to the stack. A
// driver that takes tags out of the frame hides them from the program; addresses tell a VLAN's packets apart then.
// The program is attached by a bpf_link: it is gone with the process, however
// that ends. There can be one on an interface, so one device, and none beside
// another tool's.
//
// A UDP socket holds port 4791 of each address, drops everything, and so
// excludes every other owner. It does not ask for merged datagrams, which nobody
// would make: with a program behind the driver the kernel does no GRO on its
// interface (netif_elide_gro). What another interface has merged, such as a
// bridge's port on the way to a veth, comes in one piece, as a sender's runs do.
// Either way its packets had one traffic class, and so the same congestion mark.
//
// # Sending
//
// A goroutine keeps the next hop of each path in use, from the kernel's routes
// and neighbours. A burst whose next hop is known is built into frames, which
// bypass the host's firewall and queueing disciplines. Others leave by UDP
// sockets as those of link/udp do: the first ones to a peer, while the stack
// resolves its address; those to groups, so that members on this host get them;
// and what leaves by another interface. Source ports are a pool's for that
// reason. What a peer on the same host sends to this link's addresses never
// comes by the interface, and is not received.
//
// # Queues
//
// Each receive queue of the interface has its socket. Packets are spread by the
// device's hash, not by queue pair, so with several shards many are handed from
// one to another; a device can be told better with its flow steering.
//
// # Drivers
//
// The kernel tells what a driver can do (Linux 6.3), and sockets ask for that:
// zero copy where it is, for packets in several pieces only if the driver has it
// for those, else copies of them. Info().Missing says what there is not.
//
//	driver                    sockets                             longest packet
//	zero copy, MTU <= 3822    zero copy                           the MTU
//	zero copy in pieces       zero copy                           the MTU
//	XDP, pieces               copied                              the MTU
//	XDP, no pieces            zero copy or copied                 3822
//	none, or it refuses       generic mode: copied, in pieces     the MTU
//
// Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 5.9; packets of more
// than 3840 octets need Linux 6.6. Linux only; elsewhere Open says so.
package xdp
