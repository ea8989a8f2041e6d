package rc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
)

// C9-89: each operation needs its own right to a region and no other. C9-105:
// an atomic's address is a multiple of 8.
func TestRights(t *testing.T) {
	rights := []verbs.Access{verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic}
	for _, c := range []struct {
		op   bth.Opcode
		need verbs.Access
		want string
	}{
		{bth.RCReadReq, verbs.AccessRemoteRead, "READ_RESP_ONLY 0/8"},
		{bth.RCWriteOnly, verbs.AccessRemoteWrite, "ACK 0"},
		{bth.RCFetchAdd, verbs.AccessRemoteAtomic, "ATOMIC_ACK 0=0x0"},
		{bth.RCCmpSwap, verbs.AccessRemoteAtomic, "ATOMIC_ACK 0=0x0"},
	} {
		for _, has := range rights {
			for off := range 17 {
				t.Run(fmt.Sprintf("%v/%v/%d", c.op, has, off), func(t *testing.T) {
					r := newRaw(t, 100)
					g, err := r.mrs.Register(mr.Region{PD: 1, IOVA: 1 << 32, Mem: make([]byte, 32), Access: has})
					if err != nil {
						t.Fatal(err)
					}
					p := r.packet(c.op, 0, make([]byte, 8))
					if c.need == verbs.AccessRemoteAtomic {
						p.Payload, p.DMALen = nil, 0
					}
					p.VA, p.RKey = g.IOVA+uint64(off), g.Key
					r.in(p)
					switch {
					case c.need == verbs.AccessRemoteAtomic && off%8 != 0:
						r.wantSent("NAK61 0")
					case has != c.need:
						r.wantSent("NAK62 0")
					default:
						r.wantSent(c.want)
					}
				})
			}
		}
	}
}
