package bth

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// field is one field of a header: how to read and write it, and which bits of
// the header it owns.
type field struct {
	name string
	size int    // of the header
	mask string // of the field, in hexadecimal
	bits uint
	set  func(b []byte, v uint64)
	get  func(b []byte) uint64
}

func b2u(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// headerFields draws every header. The masks of one header do not overlap,
// which TestFieldsDoNotOverlap checks, so a setter that reaches into a
// neighbour changes a bit it does not own.
var headerFields = []field{
	{"BTH opcode", 12, "ff0000000000000000000000", 8, func(b []byte, v uint64) { BTH(b).SetOpcode(Opcode(v)) }, func(b []byte) uint64 { return uint64(BTH(b).Opcode()) }},
	{"BTH SE", 12, "008000000000000000000000", 1, func(b []byte, v uint64) { BTH(b).SetSE(v != 0) }, func(b []byte) uint64 { return b2u(BTH(b).SE()) }},
	{"BTH MigReq", 12, "004000000000000000000000", 1, func(b []byte, v uint64) { BTH(b).SetMigReq(v != 0) }, func(b []byte) uint64 { return b2u(BTH(b).MigReq()) }},
	{"BTH PadCount", 12, "003000000000000000000000", 2, func(b []byte, v uint64) { BTH(b).SetPadCount(int(v)) }, func(b []byte) uint64 { return uint64(BTH(b).PadCount()) }},
	{"BTH TVer", 12, "000f00000000000000000000", 4, func(b []byte, v uint64) { BTH(b).SetTVer(uint8(v)) }, func(b []byte) uint64 { return uint64(BTH(b).TVer()) }},
	{"BTH P_Key", 12, "0000ffff0000000000000000", 16, func(b []byte, v uint64) { BTH(b).SetPKey(uint16(v)) }, func(b []byte) uint64 { return uint64(BTH(b).PKey()) }},
	{"BTH FECN", 12, "000000008000000000000000", 1, func(b []byte, v uint64) { BTH(b).SetFECN(v != 0) }, func(b []byte) uint64 { return b2u(BTH(b).FECN()) }},
	{"BTH BECN", 12, "000000004000000000000000", 1, func(b []byte, v uint64) { BTH(b).SetBECN(v != 0) }, func(b []byte) uint64 { return b2u(BTH(b).BECN()) }},
	{"BTH resv6", 12, "000000003f00000000000000", 6, func(b []byte, v uint64) { BTH(b).SetResv6(uint8(v)) }, func(b []byte) uint64 { return uint64(BTH(b).Resv6()) }},
	{"BTH DestQP", 12, "0000000000ffffff00000000", 24, func(b []byte, v uint64) { BTH(b).SetDestQP(QPN(v)) }, func(b []byte) uint64 { return uint64(BTH(b).DestQP()) }},
	{"BTH AckReq", 12, "000000000000000080000000", 1, func(b []byte, v uint64) { BTH(b).SetAckReq(v != 0) }, func(b []byte) uint64 { return b2u(BTH(b).AckReq()) }},
	{"BTH resv7", 12, "00000000000000007f000000", 7, func(b []byte, v uint64) { BTH(b).SetResv7(uint8(v)) }, func(b []byte) uint64 { return uint64(BTH(b).Resv7()) }},
	{"BTH PSN", 12, "000000000000000000ffffff", 24, func(b []byte, v uint64) { BTH(b).SetPSN(MakePSN(uint32(v))) }, func(b []byte) uint64 { return uint64(BTH(b).PSN().Uint32()) }},

	{"RETH VA", 16, "ffffffffffffffff0000000000000000", 64, func(b []byte, v uint64) { RETH(b).SetVA(v) }, func(b []byte) uint64 { return RETH(b).VA() }},
	{"RETH R_Key", 16, "0000000000000000ffffffff00000000", 32, func(b []byte, v uint64) { RETH(b).SetRKey(uint32(v)) }, func(b []byte) uint64 { return uint64(RETH(b).RKey()) }},
	{"RETH DMALen", 16, "000000000000000000000000ffffffff", 32, func(b []byte, v uint64) { RETH(b).SetDMALen(uint32(v)) }, func(b []byte) uint64 { return uint64(RETH(b).DMALen()) }},

	{"AETH syndrome", 4, "ff000000", 8, func(b []byte, v uint64) { AETH(b).SetSyndrome(Syndrome(v)) }, func(b []byte) uint64 { return uint64(AETH(b).Syndrome()) }},
	{"AETH MSN", 4, "00ffffff", 24, func(b []byte, v uint64) { AETH(b).SetMSN(uint32(v)) }, func(b []byte) uint64 { return uint64(AETH(b).MSN()) }},

	{"AtomicETH VA", 28, "ffffffffffffffff0000000000000000000000000000000000000000", 64, func(b []byte, v uint64) { AtomicETH(b).SetVA(v) }, func(b []byte) uint64 { return AtomicETH(b).VA() }},
	{"AtomicETH R_Key", 28, "0000000000000000ffffffff00000000000000000000000000000000", 32, func(b []byte, v uint64) { AtomicETH(b).SetRKey(uint32(v)) }, func(b []byte) uint64 { return uint64(AtomicETH(b).RKey()) }},
	{"AtomicETH SwapAdd", 28, "000000000000000000000000ffffffffffffffff0000000000000000", 64, func(b []byte, v uint64) { AtomicETH(b).SetSwapAdd(v) }, func(b []byte) uint64 { return AtomicETH(b).SwapAdd() }},
	{"AtomicETH Compare", 28, "0000000000000000000000000000000000000000ffffffffffffffff", 64, func(b []byte, v uint64) { AtomicETH(b).SetCompare(v) }, func(b []byte) uint64 { return AtomicETH(b).Compare() }},

	{"AtomicAckETH Orig", 8, "ffffffffffffffff", 64, func(b []byte, v uint64) { AtomicAckETH(b).SetOrig(v) }, func(b []byte) uint64 { return AtomicAckETH(b).Orig() }},
	{"DETH Q_Key", 8, "ffffffff00000000", 32, func(b []byte, v uint64) { DETH(b).SetQKey(uint32(v)) }, func(b []byte) uint64 { return uint64(DETH(b).QKey()) }},
	{"DETH SrcQP", 8, "0000000000ffffff", 24, func(b []byte, v uint64) { DETH(b).SetSrcQP(QPN(v)) }, func(b []byte) uint64 { return uint64(DETH(b).SrcQP()) }},
	{"ImmDt", 4, "ffffffff", 32, func(b []byte, v uint64) { ImmDt(b).SetImm(uint32(v)) }, func(b []byte) uint64 { return uint64(ImmDt(b).Imm()) }},
	{"IETH", 4, "ffffffff", 32, func(b []byte, v uint64) { IETH(b).SetRKey(uint32(v)) }, func(b []byte) uint64 { return uint64(IETH(b).RKey()) }},
	{"XRCETH", 4, "00ffffff", 24, func(b []byte, v uint64) { XRCETH(b).SetSRQ(uint32(v)) }, func(b []byte) uint64 { return uint64(XRCETH(b).SRQ()) }},
	{"RDETH", 4, "00ffffff", 24, func(b []byte, v uint64) { RDETH(b).SetEEContext(uint32(v)) }, func(b []byte) uint64 { return uint64(RDETH(b).EEContext()) }},
	{"FETH placement", 4, "0000000f", 4, func(b []byte, v uint64) { FETH(b).SetPlacement(uint8(v)) }, func(b []byte) uint64 { return uint64(FETH(b).Placement()) }},
	{"FETH selectivity", 4, "00000030", 2, func(b []byte, v uint64) { FETH(b).SetSelectivity(uint8(v)) }, func(b []byte) uint64 { return uint64(FETH(b).Selectivity()) }},
}

// Report B09: setting a field leaves its neighbours alone, whatever they and
// the value hold, also a value too wide for the field.
func TestSettersLeaveNeighboursAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, f := range headerFields {
		mask := unhex(t, f.mask)
		require.Len(t, mask, f.size, f.name)
		limit := ^uint64(0) >> (64 - f.bits)
		for i := range 200 {
			before := make([]byte, f.size)
			for j := range before {
				before[j] = byte(r.Uint32())
			}
			v := r.Uint64()
			switch i {
			case 0:
				v = 0
			case 1:
				v = ^uint64(0)
			}
			if f.bits == 1 {
				v &= 1 // a bool has no other value
			}
			after := append([]byte(nil), before...)
			f.set(after, v)
			require.Equal(t, v&limit, f.get(after), "%s: %#x in % x", f.name, v, after)
			for j := range after {
				require.Equal(t, before[j]&^mask[j], after[j]&^mask[j], "%s: % x became % x", f.name, before, after)
			}
		}
	}
}

func TestFieldsDoNotOverlap(t *testing.T) {
	type bit struct{ octet, bit int }
	owners := map[string]map[bit]string{}
	for _, f := range headerFields {
		header := f.name[:len(f.name)-len(trimHeader(f.name))]
		if owners[header] == nil {
			owners[header] = map[bit]string{}
		}
		n := uint(0)
		for i, m := range unhex(t, f.mask) {
			for j := range 8 {
				if m>>j&1 == 0 {
					continue
				}
				n++
				require.Empty(t, owners[header][bit{i, j}], "%s overlaps", f.name)
				owners[header][bit{i, j}] = f.name
			}
		}
		require.Equal(t, f.bits, n, f.name)
	}
	require.Len(t, owners["BTH"], 96, "the BTH is drawn whole")
}

// trimHeader returns the name of the field without that of its header.
func trimHeader(name string) string {
	for i := range name {
		if name[i] == ' ' {
			return name[i:]
		}
	}
	return ""
}
