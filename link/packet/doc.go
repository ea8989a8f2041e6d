// Package packet is a link that receives whole frames and sends by UDP socket.
//
//	             +--------------------- kernel ---------------------+
//	wire ---+--->| tap: filter on port 4791 ---> packet socket -----+---> Recv
//	        |    |                                                  |
//	        +--->| UDP port 4791: quiet holder, drops everything    |
//	             |                                                  |
//	wire <-------+ UDP segmentation <--- unconnected UDP sockets <--+---- Send
//	             +--------------------------------------------------+
//
// It sees the IP header, so its ICRC check is exact for both families, and it
// is the link with the lowest latency. Runs that the sender's segmentation
// offload made, or that the receiver's GRO merged, arrive in one piece with
// their segment size in the virtio header (PACKET_VNET_HDR). Sending is the
// same as that of link/udp: nothing is gained by building frames.
//
// The stack must not answer for a port that nobody seems to have, so a UDP
// socket holds port 4791 of each local address, and with it excludes every
// other owner. It drops what it gets before it is copied; UDP_GRO is set on it
// because the kernel would otherwise cut each super-packet up just to drop it.
//
// The packet socket is bound to no interface; its filter lets in frames of
// the link's interface and of lo, because packets between two addresses of
// one host travel over lo whatever interface has the addresses. It also
// outlives the interface going down. Frames that another station or another
// VLAN is meant to get, and the echo of what this host sends, do not pass.
//
// Needs CAP_NET_RAW. Linux only; elsewhere Open says so.
package packet
