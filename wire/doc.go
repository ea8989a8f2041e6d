// Package wire is everything of a RoCEv2 packet outside the transport
// headers: Ethernet, 802.1Q, IPv4, IPv6 and UDP views, the parser that turns a
// frame into a Datagram, the invariant CRC, and the Burst that carries packets
// from an engine to a link.
//
// Bytes are validated once, by ParseFrame or ParseIP; afterwards no accessor
// can panic. The IP length ends the packet, whatever follows it in the frame
// (Ethernet pads short frames).
//
// The invariant CRC covers the IP header, so whoever builds the IP header
// knows the ICRC. A Burst is sealed for the IPv4 identifications its link will
// put on the wire (IDPolicy); a received Datagram either carries its IP header
// or, from a UDP socket over IPv4, hides the identification, which a Verifier
// then solves for within a bounded window.
//
// Source: IBA Specification Volume 1, Annex A17 (RoCEv2); clause 7.8 (CRCs).
// The package is sans-IO and imports only bth and trace.
package wire
