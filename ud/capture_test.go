package ud

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// TestCaptures: a queue pair here that sends the datagrams that one of Linux rxe
// sent makes the same packets of them, but for MigReq, which rxe leaves 0.
func TestCaptures(t *testing.T) {
	enginetest.Captures(t, bth.UD, []string{"rxe-pingpong-ud.pcap", "rxe/ud_pingpong.pcap", "rxe/send_ud.pcap"}, func(t *testing.T, ps []enginetest.Captured) {
		type sender struct {
			src netip.Addr
			qpn bth.QPN
		}
		senders := map[sender]*raw{}
		for i, c := range ps {
			k := sender{c.Src, c.SrcQP}
			r := senders[k]
			if r == nil {
				r = unready(t, func(x *Config) { x.QPN, x.MTU = c.SrcQP, 4096 })
				a := verbs.QPAttr{QKey: c.QKey, SQPSN: c.PSN.Uint32()}
				r.Modify(verbs.StateInit, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey, a, nil)
				r.Modify(verbs.StateRTR, 0, a, nil)
				r.Modify(verbs.StateRTS, verbs.AttrSQPSN, a, nil)
				senders[k] = r
			}
			body := c.Packet.Payload
			copy(r.Mem, body)
			w := r.wr(uint64(i), 1, len(body))
			w.RemoteQPN, w.RemoteQKey, w.Imm = uint32(c.DestQP), c.QKey, c.Imm
			if c.Info().Has(bth.HasImm) {
				w.Opcode = verbs.WRSendImm
			}
			r.Post(w)
			r.Sent()
			if len(r.Pkts) != 1 || !bytes.Equal(enginetest.Octets(*r.Pkts[0]), enginetest.Octets(c.Packet)) {
				t.Fatalf("datagram %d: %s\nrxe:        %s", i, r.Texts(r.Pkts), r.Texts([]*bth.Packet{&c.Packet}))
			}
		}
	})
}
