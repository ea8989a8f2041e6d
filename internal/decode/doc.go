// Package decode explains captured frames: what a RoCEv2, RoCE v1 or native
// InfiniBand packet says, header by header, whether its invariant CRC holds,
// and, in words, what is wrong with a frame that is none of these.
//
//	pcap.Frame -> link (Ethernet, cooked, ERF...) -> IP, UDP or GRH or LRH
//	           -> ICRC -> BTH and extension headers -> MAD, CM
//
// It is for people and scripts, not for the data path: unlike wire.ParseFrame
// it goes on after an error as far as it makes sense, accepts frames that a
// capture cut short, and allocates. Headers, opcodes and reasons are those of
// packages wire, bth and trace, and a test holds it to the verdict of
// wire.ParseFrame. The ICRC is computed here once more, plainly, over whole
// masked headers, because the other forms of the protocol need it, and so
// that it checks package wire instead of repeating it.
//
// Source: IBA Specification Volume 1, clauses 7.7, 8.3, 9.2 to 9.3, 12.6, 13.4;
// Annex A16 (RoCE), Annex A17 (RoCEv2).
package decode
