// Package packet is a link that receives whole frames and sends by UDP socket.
//
//	             +----------------------- kernel -----------------------+
//	wire --------+--> tap: filter on port 4791 ---> rings of slots -----+---> Recv
//	             |         |                                            |
//	             |    tcx program: drops what the tap has seen          |
//	             |         | (whatever else)                            |
//	             |    the stack, where a socket that drops everything   |
//	             |    holds UDP port 4791                               |
//	             |                                                      |
//	wire <-------+--- UDP segmentation <--- unconnected UDP sockets <---+---- Send
//	             +------------------------------------------------------+
//
// It sees the IP header, so its ICRC check is exact for both families, and it
// is the link with the lowest latency. Runs that the sender's segmentation
// offload made, or that the receiver's GRO merged, arrive in one piece with
// their segment size in the virtio header (PACKET_VNET_HDR). Sending is the
// same as that of link/udp: what is sent passes the host's firewall and IPsec
// policies like anybody's.
//
// Frames arrive in rings of slots that this process sees (TPACKET_V2), so
// receiving takes no system call, and a look at an empty link is a few loads.
// What Recv gives lies in a ring; the next Recv gives the slots back. The kernel
// uses the slots in turn, so what a ring holds altogether should stay in the
// processor's cache, and a frame takes a slot however short it is. So there are two
// packet sockets: one for frames with a single packet, with hundreds of slots of 4
// KiB, and one for runs, with some of 68 KiB, enough for as many packets. Frames are
// taken in the order of their time stamps. What finds no slot is lost and counted.
// (TPACKET_V3 packs frames, and shows them only when a block of them is full or a
// millisecond is over.) Where the kernel refuses the rings, frames are received by
// recvmmsg.
//
// A run has one IP header, whose traffic class, and with it the congestion mark, is
// right for each of its packets: see package udp.
//
// The stack must not answer for a port that nobody seems to have, so a UDP
// socket holds port 4791 of each local address, and with it excludes every
// other owner. It drops what it gets before it is copied; UDP_GRO is set on it
// because the kernel would otherwise cut each super-packet up just to drop it.
//
// Where BPF is allowed (CAP_BPF and CAP_NET_ADMIN, Linux 6.6) a tcx program on
// the interface drops packets before the stack has any work with them, right
// after packet sockets on all protocols have seen them. It drops whole UDP
// packets for port 4791 of the link's addresses, to this station and in no VLAN,
// and nothing else: other addresses, and with them other NICs and programs, keep
// theirs. It is put behind the programs that the interface has
// already; those that come later, filters of tc, and sockets on a single protocol
// do not see what it drops. The kernel detaches it when the process ends.
//
// The packet sockets are bound to no interface; their filter lets in frames of
// the link's interface and of lo, because packets between two addresses of
// one host travel over lo whatever interface has the addresses. They also
// outlive the interface going down. Frames that another station or another
// VLAN is meant to get, and the echo of what this host sends, do not pass.
//
// # Multicast
//
// A group is joined by a UDP socket that is not bound to a port: the kernel
// reports the membership (IGMP, MLD) and programs the interface's address
// filter, and its UDP layer drops the packets without an answer, as it does
// all multicast that no socket wants. The packet socket's filter then takes
// frames for that group from the link's interface. What other links of this
// host send to it reaches a packet socket only on its way out, so while a group
// is joined the filter takes that too, the link's own packets among it. With
// several links the group's frames go to the one that joined, which the queue
// pair number, 0xffffff, does not tell. At most 256 groups.
//
// Needs CAP_NET_RAW. Linux only; elsewhere Open says so.
package packet
