package enginetest

// Chooser decides a run: a random source, or the octets of a fuzzer.
type Chooser interface {
	// IntN returns a number below n; n-1 is the uneventful choice.
	IntN(n int) int
}

// Schedule chooses by octets, and the uneventful once they are used up.
type Schedule []byte

// IntN returns a number below n.
func (s *Schedule) IntN(n int) int {
	v := 0
	for k := 1; k < n; k *= 256 {
		if len(*s) == 0 {
			return n - 1
		}
		v = v<<8 | int((*s)[0])
		*s = (*s)[1:]
	}
	return v % n
}
