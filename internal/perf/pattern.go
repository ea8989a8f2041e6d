package perf

import "encoding/binary"

// fillPattern fills b with the octets from offset off on of the endless
// sequence that seed stands for; off is a multiple of 8. No two sequences, and
// no two places of one, look alike, so that whatever is lost, repeated, moved
// or stale shows. It is SplitMix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators, OOPSLA 2014).
func fillPattern(b []byte, seed, off uint64) {
	w := seed + off/8*golden
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, mix(w))
		w += golden
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], mix(w))
		copy(b, last[:])
	}
}

// differs returns the first octet of b that is not the pattern's, and what it
// should be; at is -1 if there is none.
func differs(b []byte, seed, off uint64) (at int, want byte) {
	w := seed + off/8*golden
	for i := 0; i < len(b); i += 8 {
		m := mix(w)
		w += golden
		if i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:]) == m {
			continue
		}
		for j := i; j < min(i+8, len(b)); j++ {
			if want := byte(m >> (8 * (j - i))); b[j] != want {
				return j, want
			}
		}
	}
	return -1, 0
}

const golden = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
