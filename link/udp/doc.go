// Package udp is a link over ordinary UDP sockets: no privilege, no knowledge
// of Ethernet or neighbours, and the fastest link where the kernel has
// segmentation and receive offload.
//
//	        Send                                   Recv
//	  bursts | sendmmsg, UDP_SEGMENT                 ^ recvmsg, recvmmsg, UDP_GRO
//	         v                                       |
//	up to 16 sockets per address              one socket per address
//	(address, 0xc000...), not connected       and shard (address, 4791)
//
// # Receiving
//
// A shard has one receiving socket per address. An empty Recv must be cheap
// however many there are: it looks at the socket that had something last, and
// every fourth time at one other, in turn. Sockets that Wait saw readable come
// first. A socket
// with steady traffic gives way to the next one after maxHot calls, so none
// starves, and a Recv of 0 followed by Wait loses nothing.
//
// With several shards the sockets of an address form an SO_REUSEPORT group,
// and a program picks the one by the low 4 bits of the destination queue pair
// number, modulo the number of shards. For a merged run the first packet
// decides. The first socket of a group binds exclusively, so that in any case
// a second owner of the port is refused (EADDRINUSE, and an error that says
// who has it).
//
// A merged run has one traffic class, and with it one congestion mark, for all its
// packets, and it is right for each: the kernel merges packets of equal class only
// (inet_gro_receive, ipv6_gro_receive). What a queue marks that passes a
// super-packet whole is marked whole, with or without a merge: INET_ECN_set_ce sets
// the one header that all segments get. TestMarks and TestQueued show it.
//
// A group is joined by a socket of its own, bound to (group, 4791) and to the
// interface of the link's addresses, so that what other interfaces receive for
// the group stays away; SO_REUSEADDR lets any number of processes do the same.
// The kernel gives each a copy, and the sender one too if it is a member.
//
// A UDP socket does not show the IPv4 identification, which the ICRC covers:
// over IPv4 the check is bounded (wire.Verifier), over IPv6 exact.
//
// # Sending
//
// See package udptx for the sockets, the identifications and what becomes of
// packets that the system refuses. UDP checksums are filled in by the kernel:
// segmentation offload calls for them.
//
// Source: IBA Specification Volume 1, Annex A17. Linux only; elsewhere Open
// fails. The package imports link, wire, link/internal/udptx, internal/hostnet
// and internal/sys.
package udp
