package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoAllocations: posting and polling allocate nothing, whatever the
// request, also when there is nothing to poll.
func TestNoAllocations(t *testing.T) {
	f, q, cq := open(t, QPConfig{Cap: QPCap{MaxSendSGE: MaxSGE, MaxRecvSGE: MaxSGE, MaxInline: MaxInline}}, StateRTS)
	send := []SendWR{
		{ID: 1, Opcode: WRSend, SGL: sges(MaxSGE)}, {ID: 2, Opcode: WRSend, Flags: SendInline, Inline: octets(MaxInline)}, {ID: 3, Opcode: WRRead},
	}
	recv := []RecvWR{{ID: 4, SGL: sges(MaxSGE)}, {ID: 5}}
	wc := make([]WC, 4)
	n := 0
	allocs := testing.AllocsPerRun(200, func() {
		s, err1 := q.PostSend(send)
		r, err2 := q.PostRecv(recv)
		if s != 3 || r != 2 || err1 != nil || err2 != nil {
			t.Fatal(s, err1, r, err2)
		}
		for range recv {
			if _, _, ok := f.rq.Fetch(f.sgl[:]); !ok {
				t.Fatal("no receive request")
			}
		}
		n += cq.Poll(wc) + cq.Poll(wc)
	})
	require.Zero(t, allocs)
	require.Equal(t, 201*3, n)
	require.Equal(t, 201, f.progress)
}

// TestNoAllocationsFull: neither does a queue that is full.
func TestNoAllocationsFull(t *testing.T) {
	f, q, _ := open(t, QPConfig{Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}, StateRTS)
	f.bell = func() {}
	send, recv := []SendWR{{Opcode: WRSend}}, []RecvWR{{}}
	_, _ = q.PostSend(send)
	_, _ = q.PostRecv(recv)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err1 := q.PostSend(send)
		_, err2 := q.PostRecv(recv)
		if err1 != ErrQueueFull || err2 != ErrQueueFull {
			t.Fatal(err1, err2)
		}
	}))
}
