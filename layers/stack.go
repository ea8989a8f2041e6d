package layers

import "github.com/google/gopacket"

// Stack is one of each layer above UDP, for a gopacket.DecodingLayerParser,
// which decodes into the same layers again and again and allocates nothing. The
// extension headers of a Stack know its BTH, and so what follows them.
//
// A parser stops at an empty payload and gives nothing behind one, so it does
// not list the ICRC: it is BTH.Trailer.
//
// The zero value is ready for AddTo; do not copy a Stack after that.
type Stack struct {
	LRH          LRH
	GRH          GRH
	BTH          BTH
	RDETH        RDETH
	XRCETH       XRCETH
	DETH         DETH
	FETH         FETH
	RETH         RETH
	AtomicETH    AtomicETH
	AETH         AETH
	AtomicAckETH AtomicAckETH
	ImmDt        ImmDt
	IETH         IETH
	CNP          CNP
	MAD          MAD
	CMReq        CMReq
	CMMRA        CMMRA
	CMRej        CMRej
	CMRep        CMRep
	CMRTU        CMRTU
	CMDReq       CMDReq
	CMDRep       CMDRep
	CMSIDRReq    CMSIDRReq
	CMSIDRRep    CMSIDRRep
	CMLAP        CMLAP
	CMAPR        CMAPR
	Payload      gopacket.Payload
}

// AddTo ties the layers together and adds them to a parser.
func (s *Stack) AddTo(p *gopacket.DecodingLayerParser) {
	b := &s.BTH
	s.RDETH.head, s.XRCETH.head, s.DETH.head, s.FETH.head, s.RETH.head = b, b, b, b, b
	s.AtomicETH.head, s.AETH.head, s.AtomicAckETH.head, s.ImmDt.head, s.IETH.head = b, b, b, b, b
	for _, l := range []gopacket.DecodingLayer{
		&s.LRH, &s.GRH, b, &s.RDETH, &s.XRCETH, &s.DETH, &s.FETH, &s.RETH, &s.AtomicETH, &s.AETH, &s.AtomicAckETH, &s.ImmDt,
		&s.IETH, &s.CNP, &s.MAD, &s.CMReq, &s.CMMRA, &s.CMRej, &s.CMRep, &s.CMRTU, &s.CMDReq, &s.CMDRep, &s.CMSIDRReq,
		&s.CMSIDRRep, &s.CMLAP, &s.CMAPR, &s.Payload,
	} {
		p.AddDecodingLayer(l)
	}
}
