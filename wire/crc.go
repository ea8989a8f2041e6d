package wire

import "hash/crc32"

// The CRC of RoCEv2 is CRC-32 (polynomial 0x04c11db7, reflected), seeded with
// all ones and inverted at the end: hash/crc32's IEEE table. Here its register
// is kept un-inverted ("state"), so that states combine by exclusive or.
//
// crcSlice[n][b] is the contribution to the register of octet b followed by n
// zero octets. With it a run of up to 16 octets costs one lookup each and no
// shifting; crc32.Update, which is faster than memory for long inputs, costs
// as much for 12 octets as for 1000.
var crcSlice = makeSlices()

const crcSlices = 16

func makeSlices() (t [crcSlices][256]uint32) {
	for b := range 256 {
		v := crc32.IEEETable[b]
		t[0][b] = v
		for n := 1; n < crcSlices; n++ {
			v = crc32.IEEETable[byte(v)] ^ v>>8
			t[n][b] = v
		}
	}
	return t
}

// crcShort advances state s over b, four octets at a time.
func crcShort(s uint32, b []byte) uint32 {
	for len(b) >= 4 {
		s ^= uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		s = crcSlice[3][byte(s)] ^ crcSlice[2][byte(s>>8)] ^ crcSlice[1][byte(s>>16)] ^ crcSlice[0][s>>24]
		b = b[4:]
	}
	for _, c := range b {
		s = crcSlice[0][byte(s)^c] ^ s>>8
	}
	return s
}

// crcBTH advances state s over a BTH whose octet 4 counts as 0xff: 12 octets
// in one step. FECN, BECN and the reserved bits of that octet may change on
// the way.
func crcBTH(s uint32, b []byte) uint32 {
	_ = b[11]
	s ^= uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	return crcSlice[11][byte(s)] ^ crcSlice[10][byte(s>>8)] ^ crcSlice[9][byte(s>>16)] ^ crcSlice[8][s>>24] ^
		crcSlice[7][0xff] ^ crcSlice[6][b[5]] ^ crcSlice[5][b[6]] ^ crcSlice[4][b[7]] ^
		crcSlice[3][b[8]] ^ crcSlice[2][b[9]] ^ crcSlice[1][b[10]] ^ crcSlice[0][b[11]]
}

// crcLong advances state s over b with the vectorised library routine.
func crcLong(s uint32, b []byte) uint32 {
	if len(b) < 64 {
		return crcShort(s, b)
	}
	return ^crc32.Update(^s, crc32.IEEETable, b)
}

// crcUnshift moves a difference between two registers back over n octets that
// both had in common: the inverse of feeding n zero octets. Each step of a
// CRC register is invertible, so the difference is too.
func crcUnshift(d uint32, n int) uint32 {
	for i := 0; n != 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			d = unshiftPow[i].apply(d)
		}
	}
	return d
}

// matrix is a linear map of 32-bit registers: the images of the 32 unit
// vectors.
type matrix [32]uint32

func (m *matrix) apply(v uint32) (r uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		r ^= m[i] & -(v & 1)
	}
	return r
}

// unshiftPow[i] undoes 2^i zero octets; lengths up to 2^17 are covered.
var unshiftPow = makeUnshift()

func makeUnshift() (pow [18]matrix) {
	// One octet forward is r -> table[byte(r)] ^ r>>8. Its inverse: the top
	// octet of a table entry names the entry.
	var byTop [256]byte
	for b, v := range crc32.IEEETable {
		byTop[v>>24] = byte(b)
	}
	for i := range 32 {
		v := uint32(1) << i
		b := byTop[v>>24]
		pow[0][i] = (v^crc32.IEEETable[b])<<8 | uint32(b)
	}
	for k := 1; k < len(pow); k++ {
		for i := range 32 {
			pow[k][i] = pow[k-1].apply(pow[k-1][i])
		}
	}
	return pow
}
