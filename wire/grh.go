package wire

// PutGRH writes what a UD receive finds before its payload, from what is known
// of the IP header of a packet with n octets of UDP payload: the IPv6 header, or
// 20 octets of 0 and the IPv4 header. Annex A17.4.5.3; the same as rxe. From a
// socket the IPv4 identification and the IPv6 flow label are not known and 0;
// the IPv4 checksum is right for what is written, since receivers tell the
// families apart by it (ibv_get_grh_header_version of rdma-core).
func (d *Datagram) PutGRH(b *[40]byte, n int) {
	clear(b[:])
	if !d.Src.Is4() {
		h := IPv6(b[:])
		h.SetClassFlow(d.TOS, d.FlowLabel)
		h.SetPayloadLen(UDPLen + n)
		h.SetNextHeader(ProtoUDP)
		h.SetHopLimit(d.TTL)
		h.SetSrc(d.Src.As16())
		h.SetDst(d.Dst.As16())
		return
	}
	h := IPv4(b[IPv6Len-IPv4Len:])
	h[0] = 0x45
	h.SetTOS(d.TOS)
	h.SetTotalLen(IPv4Len + UDPLen + n)
	h.SetID(d.ID)
	h.SetFlagsOffset(d.Flags)
	h.SetTTL(d.TTL)
	h.SetProtocol(ProtoUDP)
	h.SetSrc(d.Src.As4())
	h.SetDst(d.Dst.As4())
	h.SetChecksum()
}
