// Package layers has RoCEv2 layers for github.com/google/gopacket: the base
// transport header, every extension header, the pad and invariant CRC, CNPs,
// management datagrams and the messages of the connection manager. It is made
// to stand beside gopacket's own layers; import it under another name:
//
//	import (
//		"github.com/google/gopacket/layers"
//
//		roce "github.com/gorxe/gorxe/layers"
//	)
//
// # Importing it changes gopacket
//
// gopacket's registries are global. The init function of this package
// registers its layer types (numbers FirstLayerType and up, a panic if they
// are taken) and the endpoint type of a LID, and makes gopacket's own layers lead here from UDP port 4791
// (RoCEv2), EtherType 0x8915 (RoCE v1) and link type 247 (native InfiniBand).
// After a blank import, gopacket.NewPacket shows the layers:
//
//	Ethernet IPv4 UDP   BTH RETH Payload ICRC           RC_WRITE_ONLY
//	Ethernet IPv4 UDP   BTH DETH MAD CMReq ICRC         UD_SEND_ONLY to QP 1
//	Ethernet GRH        BTH AETH ICRC                   RoCE v1
//	LRH GRH             BTH Payload ICRC                native InfiniBand
//
// gopacket asks for the destination port first and then for the source port,
// so a datagram from port 4791 to a port that gopacket has no decoder for is
// taken for RoCEv2 too.
//
// # The trailer
//
// Pad and ICRC end the packet, but what they are is known to the BTH alone. So
// the BTH layer cuts them off: its payload, and that of every layer after it,
// ends before the pad, and the payload layer is what the program sent. The
// trailer is the last layer of a Packet; with a DecodingLayerParser, which
// cannot have a layer behind an empty payload, it is BTH.Trailer. A frame that
// the capture cut short (gopacket's Truncated) has no trailer.
//
// # Order of headers
//
// Which headers follow is written in the opcode, not in the header before, so
// an extension header needs to know its BTH. In a Packet it does; for a
// DecodingLayerParser a Stack holds one of each, tied together.
//
// # Writing
//
// Every layer serialises from its fields, reserved bits included:
// gopacket.SerializePacket gives the packet's octets back. FixLengths makes the
// pad and its count fit the payload. ComputeChecksums recomputes the ICRC,
// which covers the headers below the BTH: name them with
// BTH.SetLayersForChecksum. gopacket's UDP layer then computes its checksum too;
// the 0 that most RoCEv2 senders put there is as good, and the ICRC the same.
//
// # Limits
//
// Malformed and short headers are errors, which in a Packet are a
// DecodeFailure layer; nothing panics. Behind an opcode that is not in the
// specification everything up to the trailer is payload. One frame is one
// packet: where a capture was taken before segmentation offload, only the first
// of the merged packets is seen, and the ICRC is wrong.
//
// Source: IBA Specification Volume 1, clauses 7.7, 7.8, 8.3, 9.2 to 9.4, 12.6,
// 13.4; Annexes A11 (IP CM service), A14 (XRC), A16 (RoCE), A17 (RoCEv2), A19
// (memory placement extensions). The package imports bth for the opcode table
// and wire for the port, no engine and no link.
package layers
