package bth

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// IBA table 48.
func TestCredits(t *testing.T) {
	counts := []int{
		0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
		16384, 24576, 32768,
	}
	require.Len(t, counts, 31)
	for code, want := range counts {
		n, ok := Syndrome(code).Credits()
		require.True(t, ok)
		require.Equal(t, want, n)
	}
	for s := 31; s < 256; s++ {
		_, ok := Syndrome(s).Credits()
		require.False(t, ok, "%#02x", s)
	}
}

// IBA table 46, in microseconds. Linux rxe has 61410 for code 25 (report B61).
func TestRNRTimers(t *testing.T) {
	micros := []int64{
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720,
		40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	}
	require.Len(t, micros, 32)
	for code, want := range micros {
		require.Equal(t, want*1000, RNRNanos(uint8(code)), "code %d", code)
	}
	require.Equal(t, RNRNanos(1), RNRNanos(0x21), "only five bits count")
}

// IBA table 45 and 9.7.5.2.8.
func TestSyndromes(t *testing.T) {
	for _, c := range []struct {
		s    Syndrome
		kind AckKind
		code uint8
		text string
	}{
		{0x00, KindAck, 0, "ACK credits 0"},
		{0x0d, KindAck, 13, "ACK credits 96"},
		{0x1f, KindAck, 31, "ACK"},
		{0x20, KindRNR, 0, "RNR NAK timer 0"},
		{0x2c, KindRNR, 12, "RNR NAK timer 12"},
		{0x40, KindReserved, 0, "reserved 0x40"},
		{0x60, KindNAK, 0, "NAK sequence error"},
		{0x61, KindNAK, 1, "NAK invalid request"},
		{0x62, KindNAK, 2, "NAK remote access error"},
		{0x63, KindNAK, 3, "NAK remote operational error"},
		{0x64, KindNAK, 4, "NAK invalid RD request"},
		{0x65, KindNAK, 5, "reserved 0x65"},
		{0x80, KindAck, 0, "reserved 0x80"},
		{0xff, KindNAK, 31, "reserved 0xff"},
	} {
		require.Equal(t, c.kind, c.s.Kind(), "%#02x", uint8(c.s))
		require.Equal(t, c.code, c.s.Code(), "%#02x", uint8(c.s))
		require.Equal(t, c.text, c.s.String())
	}
	for timer := range uint8(32) {
		s := RNRNAK(timer)
		require.Equal(t, KindRNR, s.Kind())
		require.Equal(t, timer, s.Code())
		require.Equal(t, s, RNRNAK(timer|0xe0), "only five bits count")
	}
}
