package bth

import "fmt"

// Syndrome is the first octet of an AETH: what the responder says about the
// request. Bit 7 is 0; bits 6:5 choose the kind; the low five bits are the
// credit code, the RNR timer code or the NAK code. IBA 9.7.5.1.2.
type Syndrome uint8

// AckKind is bits 6:5 of a syndrome.
type AckKind uint8

const (
	KindAck      AckKind = 0
	KindRNR      AckKind = 1
	KindReserved AckKind = 2
	KindNAK      AckKind = 3
)

// Syndromes of the four named kinds. IBA 9.7.5.2.8 and table 45.
const (
	// AckUnlimited acknowledges and gives no credit limit (credit code 31).
	AckUnlimited         Syndrome = 0x1f
	NAKSequence          Syndrome = 0x60 // PSN sequence error
	NAKInvalidRequest    Syndrome = 0x61
	NAKRemoteAccess      Syndrome = 0x62
	NAKRemoteOperational Syndrome = 0x63
	NAKInvalidRD         Syndrome = 0x64
)

// Kind returns bits 6:5.
func (s Syndrome) Kind() AckKind { return AckKind(s >> 5 & 3) }

// Code returns the low five bits.
func (s Syndrome) Code() uint8 { return uint8(s & 0x1f) }

// RNRNAK returns the syndrome of a receiver-not-ready NAK with a timer code.
func RNRNAK(timer uint8) Syndrome { return Syndrome(0x20 | timer&0x1f) }

// String names the syndrome in words.
func (s Syndrome) String() string {
	if s&0x80 != 0 {
		return fmt.Sprintf("reserved %#02x", uint8(s))
	}
	switch s.Kind() {
	case KindAck:
		if s == AckUnlimited {
			return "ACK"
		}
		return fmt.Sprintf("ACK credits %d", creditCounts[s.Code()])
	case KindRNR:
		return fmt.Sprintf("RNR NAK timer %d", s.Code())
	case KindNAK:
		switch s {
		case NAKSequence:
			return "NAK sequence error"
		case NAKInvalidRequest:
			return "NAK invalid request"
		case NAKRemoteAccess:
			return "NAK remote access error"
		case NAKRemoteOperational:
			return "NAK remote operational error"
		case NAKInvalidRD:
			return "NAK invalid RD request"
		}
	}
	return fmt.Sprintf("reserved %#02x", uint8(s))
}

// creditCounts maps a credit code to the number of credits. IBA table 48;
// code 31 gives none to count.
var creditCounts = [32]int{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
	1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, -1,
}

// Credits returns how many requests beyond the MSN the responder has room
// for; ok is false when the syndrome carries no limit (code 31, or no ACK).
func (s Syndrome) Credits() (n int, ok bool) {
	if s&0x80 != 0 || s.Kind() != KindAck || s.Code() == 31 {
		return 0, false
	}
	return creditCounts[s.Code()], true
}

// AckCredits acknowledges and offers as many credits as there is a code for, at
// most n.
func AckCredits(n int) Syndrome {
	code := 0
	for code < 30 && creditCounts[code+1] <= n {
		code++
	}
	return Syndrome(code)
}

// rnrMicros maps an RNR timer code to microseconds. IBA table 46.
var rnrMicros = [32]int64{
	655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840,
	5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
}

// RNRNanos returns the wait that an RNR timer code (0 to 31) asks for, in
// nanoseconds.
func RNRNanos(code uint8) int64 { return rnrMicros[code&31] * 1000 }
