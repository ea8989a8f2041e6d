package bth

import "testing"

// MaxHeaderLen is that of the opcode with the longest headers, and no more.
func TestMaxHeaderLen(t *testing.T) {
	longest := 0
	for o := range 256 {
		longest = max(longest, Opcode(o).Info().HdrLen)
	}
	if longest != MaxHeaderLen {
		t.Errorf("the longest headers have %d octets, MaxHeaderLen is %d", longest, MaxHeaderLen)
	}
}
