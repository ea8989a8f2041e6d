// Package tap writes what passes a link to a pcapng file that Wireshark opens
// decoded: every packet by itself, also those that travelled merged, with its
// direction and, as a packet comment, what we made of it.
//
//	NIC  <-->  tap.Link  <-->  any link.Link
//	               |
//	               v
//	           Capture  -->  pcapng: one interface per wrapped link
//
// A link that is not shown the headers below UDP has them made up, so that the
// ICRC is right for them: the IPv4 identification is the one that went on the
// wire (wire.IDPolicy) or was solved for, which the comment then says. MAC
// addresses are made up from the IP addresses (02:...), TTL is 64 where it is
// not known, and UDP checksums are computed: the ICRC covers none of these.
//
// The comment of a received packet holds the ICRC verdict of a wire.Verifier
// of the tap's own, the NIC's verdict if it gave one (Link.Verdict), and the
// fault rules that had changed it, when link/fault is the link inside.
// Received packets are written at the next Recv, Send or Close, when their
// verdicts are known, with the time at which they arrived.
//
// A write error never disturbs traffic: it is counted, and reported by Close.
//
// gopacket writes the blocks that describe file and interfaces; the packet
// blocks are written here, because it has no options for them.
package tap
