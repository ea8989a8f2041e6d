// Package udptx is the sending half of a link over ordinary UDP sockets, and
// what links share beside it: which addresses of an interface to serve, a quiet
// owner for their port, and the error for a port that cannot be bound.
//
// # Sockets
//
// A sending socket is bound to a local address and a source port, and never
// connected: only then is the IPv4 identification known before the packet is
// sent (0, or 0, 1, 2... in the segments of one message; wire.IDCount), and
// the ICRC covers it. A flow cannot have any source port it likes, since each
// is a socket; there are 16 per local address, and the port that is asked for
// picks one of them by its low four bits. The first port asked for is bound,
// or, when somebody has it, another of 0xc000 to 0xffff with the same low
// bits. Sender.ResolvePort tells which, before the packets are sealed.
//
// # Bursts
//
// A burst is one message, cut into datagrams by the kernel (UDP_SEGMENT);
// several bursts from one port go in one sendmmsg. Where segmentation is
// refused altogether each segment is a message, and bursts must be sealed for
// wire.IDZero. Where only one route refuses it (EIO: IPsec, a device without
// checksums) the bursts that take it are sealed again and sent as single
// datagrams.
//
// # Multicast
//
// Packets to a group leave from the interface that has the source address,
// whatever the routes say: the kernel picks it by an IPv4 source, and an IPv6
// socket is told (IPV6_MULTICAST_IF). Segmentation, identifications, the hop
// limit and the traffic class of the flow are as for any other destination. A
// flow with TTL 0 gets the kernel's default for multicast, 1.
//
// # Service level
//
// A flow's priority is that of the socket (SO_PRIORITY), which is told when it
// changes, at one or two system calls; flows that share a port and differ in
// it cost that at each change. Over IPv4 the traffic class has to be the
// socket's then, too, since one that travels with a message overrides the
// priority; a message can carry a priority only since Linux 6.14. Without a
// priority the kernel derives one from the traffic class (IPv4), or it is 0.
//
// # Errors
//
// No room (EAGAIN, ENOBUFS, ENOMEM) makes a short send. Everything else
// concerns one flow, never the others: the message is tried once more (a
// pending error of the socket is reported once and has nothing to do with the
// packet), then the burst counts as sent, as if the wire had lost it, and Send goes on. The
// refusals are counted by errno, and Send returns the first one of the call as
// a *link.SendError. A reliable connection retries and then reports.
//
// # Identifications of segments
//
// Linux counts the identification up from segment to segment when it segments;
// hardware is expected to do the same but cannot be asked. See CountsIDs. When
// Linux merges received datagrams, they counted up or, with DF, were all the
// same (before 6.10 it does not look): two bursts of one packet each, both with
// identification 0, may arrive as a run that shows only the first one's.
package udptx
