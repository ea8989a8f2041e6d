package bth

import "strconv"

// PSN is a packet sequence number: 24 bits that wrap. It is a struct, not an
// integer, so that the comparison operators that are wrong for it do not
// compile; == and != remain. IBA 9.2.7 and 9.7.2.
type PSN struct{ v uint32 }

// PSNMask covers the 24 bits of a PSN.
const PSNMask = 1<<24 - 1

// MakePSN returns v modulo 2^24 as a PSN.
func MakePSN(v uint32) PSN { return PSN{v & PSNMask} }

// Uint32 returns the number, 0 to 0xffffff.
func (p PSN) Uint32() uint32 { return p.v }

// Add returns p moved by n packets, forward or, with a negative n, back.
func (p PSN) Add(n int) PSN { return PSN{(p.v + uint32(n)) & PSNMask} }

// Diff returns the signed distance from q to p, in [-2^23, 2^23): positive
// when p comes after q.
func (p PSN) Diff(q PSN) int { return int(int32((p.v-q.v)<<8) >> 8) }

// After reports whether p comes after q.
func (p PSN) After(q PSN) bool { return p.Diff(q) > 0 }

// Before reports whether p comes before q.
func (p PSN) Before(q PSN) bool { return p.Diff(q) < 0 }

// String returns the PSN in decimal, as Wireshark shows it.
func (p PSN) String() string { return strconv.FormatUint(uint64(p.v), 10) }

// QPN is a queue pair number, 24 bits.
type QPN uint32

// QPN values with a meaning of their own.
const (
	QPNSMI       QPN = 0        // subnet management: never valid on RoCE
	QPNGSI       QPN = 1        // general services: connection management
	QPNMulticast QPN = 0xffffff // destination of every multicast packet
	QPNMask          = 1<<24 - 1
)
