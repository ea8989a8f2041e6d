package sim

import "slices"

// Shrink returns a part of a list, in its order, that fails as the whole does
// and of which no entry can be left out: what was drawn at random, such as
// requests or faults, down to what matters. fails runs a simulation with some
// entries of the list, any number down to none, and reports whether what was
// wrong with all of them is wrong still; the same entries must always have the
// same answer. It is taken as said that the whole list fails. A fails that
// returns false once its time is up ends the search with what was found so far.
//
// The algorithm is delta debugging (Zeller and Hildebrandt, IEEE TSE 28/2,
// 2002), by complements only: halves are left out, then quarters, down to
// single entries, as often as something can be.
func Shrink[T any](list []T, fails func([]T) bool) []T {
	if len(list) > 0 && fails(nil) {
		return nil
	}
	for size := (len(list) + 1) / 2; size > 0; {
		before := len(list)
		for at := 0; at < len(list); {
			rest := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if len(rest) > 0 && fails(rest) {
				list = rest
			} else {
				at += size
			}
		}
		if size == 1 && len(list) == before {
			break
		}
		size = max(1, min(size/2, len(list)))
	}
	return list
}
