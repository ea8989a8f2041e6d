package bth

import "encoding/binary"

// Header lengths in octets. IBA 9.2 to 9.3; FETH: Annex A19.
const (
	BTHLen          = 12
	RDETHLen        = 4
	DETHLen         = 8
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	XRCETHLen       = 4
	FETHLen         = 4
	ICRCLen         = 4
	// MaxHeaderLen is the longest run of headers of any opcode in the table
	// (RD CMP_SWAP: BTH, RDETH, DETH, AtomicETH).
	MaxHeaderLen = BTHLen + RDETHLen + DETHLen + AtomicETHLen
)

var be = binary.BigEndian

// put24 stores 24 bits and leaves the octet before them alone.
func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }
func get24(b []byte) uint32    { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func setBit(b *byte, mask byte, on bool) {
	*b &^= mask
	if on {
		*b |= mask
	}
}

// BTH is a view of a base transport header: 12 octets or more. IBA 9.2.
type BTH []byte

func (h BTH) Opcode() Opcode { return Opcode(h[0]) }
func (h BTH) SE() bool       { return h[1]&0x80 != 0 }     // SolicitedEvent
func (h BTH) MigReq() bool   { return h[1]&0x40 != 0 }     // MigReq
func (h BTH) PadCount() int  { return int(h[1] >> 4 & 3) } // pad octets after the payload
func (h BTH) TVer() uint8    { return h[1] & 0x0f }        // transport version, 0
func (h BTH) PKey() uint16   { return be.Uint16(h[2:]) }
func (h BTH) FECN() bool     { return h[4]&0x80 != 0 }
func (h BTH) BECN() bool     { return h[4]&0x40 != 0 }
func (h BTH) Resv6() uint8   { return h[4] & 0x3f }
func (h BTH) DestQP() QPN    { return QPN(get24(h[5:])) }
func (h BTH) AckReq() bool   { return h[8]&0x80 != 0 }
func (h BTH) Resv7() uint8   { return h[8] & 0x7f }
func (h BTH) PSN() PSN       { return PSN{get24(h[9:])} }

func (h BTH) SetOpcode(o Opcode) { h[0] = byte(o) }
func (h BTH) SetSE(on bool)      { setBit(&h[1], 0x80, on) }
func (h BTH) SetMigReq(on bool)  { setBit(&h[1], 0x40, on) }
func (h BTH) SetPadCount(n int)  { h[1] = h[1]&^0x30 | byte(n&3)<<4 }
func (h BTH) SetTVer(v uint8)    { h[1] = h[1]&^0x0f | v&0x0f }
func (h BTH) SetPKey(k uint16)   { be.PutUint16(h[2:], k) }
func (h BTH) SetFECN(on bool)    { setBit(&h[4], 0x80, on) }
func (h BTH) SetBECN(on bool)    { setBit(&h[4], 0x40, on) }
func (h BTH) SetResv6(v uint8)   { h[4] = h[4]&^0x3f | v&0x3f }
func (h BTH) SetDestQP(q QPN)    { put24(h[5:], uint32(q)) }
func (h BTH) SetAckReq(on bool)  { setBit(&h[8], 0x80, on) }
func (h BTH) SetResv7(v uint8)   { h[8] = h[8]&^0x7f | v&0x7f }
func (h BTH) SetPSN(p PSN)       { put24(h[9:], p.v) }

// RETH is a view of an RDMA extended header: 16 octets. IBA 9.3.3.
type RETH []byte

func (h RETH) VA() uint64         { return be.Uint64(h) }
func (h RETH) RKey() uint32       { return be.Uint32(h[8:]) }
func (h RETH) DMALen() uint32     { return be.Uint32(h[12:]) }
func (h RETH) SetVA(v uint64)     { be.PutUint64(h, v) }
func (h RETH) SetRKey(k uint32)   { be.PutUint32(h[8:], k) }
func (h RETH) SetDMALen(n uint32) { be.PutUint32(h[12:], n) }

// AETH is a view of an ACK extended header: 4 octets. IBA 9.3.5.
type AETH []byte

func (h AETH) Syndrome() Syndrome     { return Syndrome(h[0]) }
func (h AETH) MSN() uint32            { return get24(h[1:]) }
func (h AETH) SetSyndrome(s Syndrome) { h[0] = byte(s) }
func (h AETH) SetMSN(n uint32)        { put24(h[1:], n) }

// AtomicETH is a view of an atomic extended header: 28 octets. IBA 9.3.4.
type AtomicETH []byte

func (h AtomicETH) VA() uint64          { return be.Uint64(h) }
func (h AtomicETH) RKey() uint32        { return be.Uint32(h[8:]) }
func (h AtomicETH) SwapAdd() uint64     { return be.Uint64(h[12:]) }
func (h AtomicETH) Compare() uint64     { return be.Uint64(h[20:]) }
func (h AtomicETH) SetVA(v uint64)      { be.PutUint64(h, v) }
func (h AtomicETH) SetRKey(k uint32)    { be.PutUint32(h[8:], k) }
func (h AtomicETH) SetSwapAdd(v uint64) { be.PutUint64(h[12:], v) }
func (h AtomicETH) SetCompare(v uint64) { be.PutUint64(h[20:], v) }

// AtomicAckETH is a view of an atomic acknowledge header: 8 octets. IBA 9.3.5.3.
type AtomicAckETH []byte

func (h AtomicAckETH) Orig() uint64     { return be.Uint64(h) }
func (h AtomicAckETH) SetOrig(v uint64) { be.PutUint64(h, v) }

// DETH is a view of a datagram extended header: 8 octets. IBA 9.3.2.
type DETH []byte

func (h DETH) QKey() uint32     { return be.Uint32(h) }
func (h DETH) SrcQP() QPN       { return QPN(get24(h[5:])) }
func (h DETH) SetQKey(k uint32) { be.PutUint32(h, k) }
func (h DETH) SetSrcQP(q QPN)   { put24(h[5:], uint32(q)) }

// ImmDt is a view of immediate data: 4 octets. IBA 9.3.6.
type ImmDt []byte

func (h ImmDt) Imm() uint32     { return be.Uint32(h) }
func (h ImmDt) SetImm(v uint32) { be.PutUint32(h, v) }

// IETH is a view of an invalidate extended header: 4 octets. IBA 9.3.7.
type IETH []byte

func (h IETH) RKey() uint32     { return be.Uint32(h) }
func (h IETH) SetRKey(k uint32) { be.PutUint32(h, k) }

// XRCETH is a view of an XRC extended header: 4 octets. IBA Annex A14.
type XRCETH []byte

func (h XRCETH) SRQ() uint32     { return get24(h[1:]) }
func (h XRCETH) SetSRQ(n uint32) { put24(h[1:], n) }

// RDETH is a view of a reliable datagram header: 4 octets. IBA 9.3.1.
type RDETH []byte

func (h RDETH) EEContext() uint32     { return get24(h[1:]) }
func (h RDETH) SetEEContext(n uint32) { put24(h[1:], n) }

// FETH is a view of a flush extended header: 4 octets. IBA Annex A19.
type FETH []byte

func (h FETH) Placement() uint8     { return h[3] & 0x0f }
func (h FETH) Selectivity() uint8   { return h[3] >> 4 & 3 }
func (h FETH) SetPlacement(v uint8) { h[3] = h[3]&^0x0f | v&0x0f }
func (h FETH) SetSelectivity(v uint8) {
	h[3] = h[3]&^0x30 | v&3<<4
}
