// Package bth is the transport part of a RoCEv2 packet: the base transport
// header, every extension header that can follow it, the opcode table that
// says which follow which opcode, and 24-bit packet sequence numbers.
//
// Layout of the UDP payload of a RoCEv2 packet:
//
//	+-----------+----------------------+---------+-----+------+
//	| BTH (12)  | extension headers    | payload | pad | ICRC |
//	+-----------+----------------------+---------+-----+------+
//	              RDETH XRCETH DETH RETH AtomicETH AETH
//	              AtomicAckETH ImmDt IETH FETH: by opcode, see Info
//
// A packet is parsed once, by Parse, into a Packet value; nothing after that
// indexes bytes, and no accessor can panic. The package is sans-IO: it has no
// clock, lock, goroutine or socket, and imports only the trace vocabulary.
//
// Source: IBA Specification Volume 1, clauses 9.2 to 9.4; Annex A16 (XRC),
// Annex A17 (RoCEv2), Annex A19 (memory placement extensions).
package bth
