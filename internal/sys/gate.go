package sys

import "sync/atomic"

// Gate counts the calls that are using a set of descriptors, so that closing
// waits for nobody and yet no call ever uses a descriptor number that the
// system has given to somebody else: the last one out releases them.
//
//	        Enter            Leave
//	open  --------->  in use ------->  open
//	                    | Close           (count 0)  Close
//	                    v                            |
//	                 closing  ---- last Leave ---->  released
//
// The zero value is open.
type Gate struct{ state atomic.Int64 } // count of users, and gateClosed

const gateClosed = 1 << 62

// Enter reports whether the descriptors may be used until Leave. Only after
// true must Leave be called.
func (g *Gate) Enter() bool {
	for {
		v := g.state.Load()
		if v&gateClosed != 0 {
			return false
		}
		if g.state.CompareAndSwap(v, v+1) {
			return true
		}
	}
}

// Leave ends the use. When it returns true the gate is closed, nobody is left
// inside, and the caller must release the descriptors; it returns true once.
func (g *Gate) Leave() bool { return g.state.Add(-1) == gateClosed }

// Close lets nobody else in. It returns true to the first caller, who is
// inside then: it may wake the others up, and must call Leave.
func (g *Gate) Close() bool {
	for {
		v := g.state.Load()
		if v&gateClosed != 0 {
			return false
		}
		if g.state.CompareAndSwap(v, v+1|gateClosed) {
			return true
		}
	}
}
