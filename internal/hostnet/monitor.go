package hostnet

import "time"

// A change often comes in several steps, so a Monitor waits until nothing has
// changed for settled, but not longer than tooLong.
const (
	settled = 10 * time.Millisecond
	tooLong = 100 * time.Millisecond
)
