package bth

import "fmt"

// Opcode is the first octet of a BTH: three bits of transport class and five
// of operation. IBA 9.2.1, table 38.
type Opcode uint8

// Class is the transport service an opcode belongs to.
type Class uint8

const (
	ClassNone Class = iota // not in the table
	RC
	UC
	RD
	UD
	XRC
	ClassCNP // congestion notification, Annex A17.9.3
)

func (c Class) String() string {
	return [...]string{"none", "RC", "UC", "RD", "UD", "XRC", "CNP"}[c]
}

// Op is what an opcode does, whatever its class and position.
type Op uint8

const (
	OpNone Op = iota
	OpSend
	OpWrite
	OpReadReq
	OpReadResp
	OpAck
	OpAtomicAck
	OpCmpSwap
	OpFetchAdd
	OpResync
	OpFlush
	OpAtomicWrite
	OpCNP
)

// Flags are the properties of an opcode that engines branch on.
type Flags uint16

const (
	First      Flags = 1 << iota // starts a message of several packets
	Middle                       // neither starts nor ends one
	Last                         // ends a message of several packets
	Only                         // starts and ends
	Request                      // requester to responder
	Response                     // responder to requester
	HasPayload                   // may carry payload
	HasImm
	HasInv
	TakesRecv // its last packet consumes a receive work request
)

// Starts are the flags of a packet that begins a message, Ends of one that
// finishes it.
const (
	Starts = First | Only
	Ends   = Last | Only
)

// Ext is a set of extension headers, in wire order from bit 0.
type Ext uint16

const (
	ExtRDETH Ext = 1 << iota
	ExtXRCETH
	ExtDETH
	ExtFETH
	ExtRETH
	ExtAtomicETH
	ExtAETH
	ExtAtomicAckETH
	ExtImmDt
	ExtIETH
	extEnd
)

var extLen = map[Ext]int{
	ExtRDETH: RDETHLen, ExtXRCETH: XRCETHLen, ExtDETH: DETHLen, ExtFETH: FETHLen, ExtRETH: RETHLen,
	ExtAtomicETH: AtomicETHLen, ExtAETH: AETHLen, ExtAtomicAckETH: AtomicAckETHLen, ExtImmDt: ImmDtLen, ExtIETH: IETHLen,
}

// Info is one row of the opcode table.
type Info struct {
	Name  string // as rxe, tshark and captures name it, with its class: "RC_SEND_FIRST"
	Class Class
	Op    Op
	Flags Flags
	Ext   Ext
	// HdrLen is the length of BTH and extension headers; 0 for an opcode
	// that is not in the table.
	HdrLen int
}

// Has reports whether any of the flags is set.
func (i *Info) Has(f Flags) bool { return i.Flags&f != 0 }

// Valid reports whether the opcode is in the table.
func (i *Info) Valid() bool { return i.HdrLen != 0 }

// RC and UC opcodes that engines build; the rest of the table is made by rule.
const (
	RCSendFirst      Opcode = 0x00
	RCSendMiddle     Opcode = 0x01
	RCSendLast       Opcode = 0x02
	RCSendLastImm    Opcode = 0x03
	RCSendOnly       Opcode = 0x04
	RCSendOnlyImm    Opcode = 0x05
	RCWriteFirst     Opcode = 0x06
	RCWriteMiddle    Opcode = 0x07
	RCWriteLast      Opcode = 0x08
	RCWriteLastImm   Opcode = 0x09
	RCWriteOnly      Opcode = 0x0a
	RCWriteOnlyImm   Opcode = 0x0b
	RCReadReq        Opcode = 0x0c
	RCReadRespFirst  Opcode = 0x0d
	RCReadRespMiddle Opcode = 0x0e
	RCReadRespLast   Opcode = 0x0f
	RCReadRespOnly   Opcode = 0x10
	RCAck            Opcode = 0x11
	RCAtomicAck      Opcode = 0x12
	RCCmpSwap        Opcode = 0x13
	RCFetchAdd       Opcode = 0x14
	RCResync         Opcode = 0x15
	RCSendLastInv    Opcode = 0x16
	RCSendOnlyInv    Opcode = 0x17
	RCFlush          Opcode = 0x1c
	RCAtomicWrite    Opcode = 0x1d
	UDSendOnly       Opcode = 0x64
	UDSendOnlyImm    Opcode = 0x65
	CNP              Opcode = 0x81
)

// CNPReserved is how many reserved octets follow the BTH of a CNP. Annex
// A17.9.3; a ConnectX-4 Lx sends the same.
const CNPReserved = 16

// table has one row per opcode; rows not in the specification stay zero.
var table = buildTable()

func buildTable() (t [256]Info) {
	// The rows of RC; the other classes hold subsets of it, with headers of
	// their own in front.
	type row struct {
		op    Op
		flags Flags
		ext   Ext
		name  string
	}
	req, resp := Request, Response
	rows := map[uint8]row{
		0x00: {OpSend, req | First | HasPayload, 0, "SEND_FIRST"},
		0x01: {OpSend, req | Middle | HasPayload, 0, "SEND_MIDDLE"},
		0x02: {OpSend, req | Last | HasPayload | TakesRecv, 0, "SEND_LAST"},
		0x03: {OpSend, req | Last | HasPayload | HasImm | TakesRecv, ExtImmDt, "SEND_LAST_IMM"},
		0x04: {OpSend, req | Only | HasPayload | TakesRecv, 0, "SEND_ONLY"},
		0x05: {OpSend, req | Only | HasPayload | HasImm | TakesRecv, ExtImmDt, "SEND_ONLY_IMM"},
		0x06: {OpWrite, req | First | HasPayload, ExtRETH, "WRITE_FIRST"},
		0x07: {OpWrite, req | Middle | HasPayload, 0, "WRITE_MIDDLE"},
		0x08: {OpWrite, req | Last | HasPayload, 0, "WRITE_LAST"},
		0x09: {OpWrite, req | Last | HasPayload | HasImm | TakesRecv, ExtImmDt, "WRITE_LAST_IMM"},
		0x0a: {OpWrite, req | Only | HasPayload, ExtRETH, "WRITE_ONLY"},
		0x0b: {OpWrite, req | Only | HasPayload | HasImm | TakesRecv, ExtRETH | ExtImmDt, "WRITE_ONLY_IMM"},
		0x0c: {OpReadReq, req | Only, ExtRETH, "READ_REQ"},
		0x0d: {OpReadResp, resp | First | HasPayload, ExtAETH, "READ_RESP_FIRST"},
		0x0e: {OpReadResp, resp | Middle | HasPayload, 0, "READ_RESP_MIDDLE"},
		0x0f: {OpReadResp, resp | Last | HasPayload, ExtAETH, "READ_RESP_LAST"},
		0x10: {OpReadResp, resp | Only | HasPayload, ExtAETH, "READ_RESP_ONLY"},
		0x11: {OpAck, resp | Only, ExtAETH, "ACK"},
		0x12: {OpAtomicAck, resp | Only, ExtAETH | ExtAtomicAckETH, "ATOMIC_ACK"},
		0x13: {OpCmpSwap, req | Only, ExtAtomicETH, "CMP_SWAP"},
		0x14: {OpFetchAdd, req | Only, ExtAtomicETH, "FETCH_ADD"},
		0x15: {OpResync, req | Only, 0, "RESYNC"},
		0x16: {OpSend, req | Last | HasPayload | HasInv | TakesRecv, ExtIETH, "SEND_LAST_INV"},
		0x17: {OpSend, req | Only | HasPayload | HasInv | TakesRecv, ExtIETH, "SEND_ONLY_INV"},
		0x1c: {OpFlush, req | Only, ExtFETH | ExtRETH, "FLUSH"},
		0x1d: {OpAtomicWrite, req | Only | HasPayload, ExtRETH, "ATOMIC_WRITE"},
	}
	add := func(base uint8, class Class, codes []uint8, request, response Ext) {
		for _, c := range codes {
			r := rows[c]
			ext := r.ext
			if r.flags&Request != 0 {
				ext |= request
			} else {
				ext |= response
			}
			n := BTHLen
			for e := Ext(1); e < extEnd; e <<= 1 {
				if ext&e != 0 {
					n += extLen[e]
				}
			}
			t[base|c] = Info{Name: class.String() + "_" + r.name, Class: class, Op: r.op, Flags: r.flags, Ext: ext, HdrLen: n}
		}
	}
	span := func(a, b uint8) (s []uint8) {
		for ; a <= b; a++ {
			s = append(s, a)
		}
		return s
	}
	add(0x00, RC, append(span(0, 0x14), 0x16, 0x17, 0x1c, 0x1d), 0, 0)
	add(0x20, UC, span(0, 0x0b), 0, 0)
	add(0x40, RD, span(0, 0x15), ExtRDETH|ExtDETH, ExtRDETH)
	add(0x60, UD, span(4, 5), ExtDETH, 0)
	add(0xa0, XRC, append(span(0, 0x14), 0x16, 0x17), ExtXRCETH, 0)
	t[CNP] = Info{Name: "CNP", Class: ClassCNP, Op: OpCNP, Flags: Request | Only, HdrLen: BTHLen + CNPReserved}
	return t
}

// Info returns the opcode's row of the table; the row of an opcode that is
// not in the specification is all zero.
func (o Opcode) Info() *Info { return &table[o] }

// Valid reports whether the opcode is in the table.
func (o Opcode) Valid() bool { return table[o].HdrLen != 0 }

// String returns the opcode's name, such as RC_WRITE_ONLY_IMM.
func (o Opcode) String() string {
	if o.Valid() {
		return table[o].Name
	}
	return fmt.Sprintf("UNKNOWN_%#02x", uint8(o))
}

// LookupOpcode finds an opcode by its name.
func LookupOpcode(name string) (Opcode, bool) {
	for i := range table {
		if table[i].Name == name && name != "" {
			return Opcode(i), true
		}
	}
	return 0, false
}
