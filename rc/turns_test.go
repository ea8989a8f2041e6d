package rc

import (
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Where responses and requests both wait, they take turns, and a response is
// the first: neither direction starves the other.
func TestTurns(t *testing.T) {
	r := newRaw(t, 100)
	r.reqTo(bth.RCReadReq, 0, bytesOf(256*4, 0), 0)
	r.post(1, verbs.WRWrite, 256*4)
	var kinds []string
	for _, b := range r.bursts(8, 1) {
		if b.Len() != 1 {
			t.Fatalf("%d packets in a burst of one", b.Len())
		}
		if b.Kind == wire.KindRequest {
			kinds = append(kinds, "request")
		} else {
			kinds = append(kinds, "response")
		}
	}
	if got, want := strings.Join(kinds, " "), strings.TrimSpace(strings.Repeat("response request ", 4)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
