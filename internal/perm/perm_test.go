package perm

import "testing"

func TestPermutes(t *testing.T) {
	for _, bits := range []uint{2, 8, 20} {
		p := New(bits, 42)
		seen := make([]bool, 1<<bits)
		same := 0
		for v := range uint32(1) << bits {
			m := p.Map(v)
			if m>>bits != 0 || seen[m] || p.Unmap(m) != v {
				t.Fatalf("bits %d: %d -> %d -> %d, seen before: %v", bits, v, m, p.Unmap(m), seen[m&(1<<bits-1)])
			}
			seen[m] = true
			if m == v {
				same++
			}
		}
		if bits == 20 && same > 20 {
			t.Errorf("%d of 2^20 numbers map to themselves", same)
		}
	}
	if New(20, 1).Map(7) == New(20, 2).Map(7) {
		t.Error("the seed makes no difference")
	}
}
