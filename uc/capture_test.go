package uc

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// stream is a sender and the queue pair it sends to: one queue pair of a capture.
type stream struct {
	src netip.Addr
	to  bth.QPN
}

// TestCaptures replays what queue pairs of Linux rxe sent: every packet is
// taken, every message arrives whole; and a queue pair here that sends the same
// messages sends the same packets, but for MigReq, which rxe leaves 0.
func TestCaptures(t *testing.T) {
	enginetest.Captures(t, bth.UC, []string{"rxe-pingpong-uc.pcap", "rxe/uc_pingpong.pcap", "rxe/write_uc.pcap"}, func(t *testing.T, all []enginetest.Captured) {
		streams := map[stream][]bth.Packet{}
		for _, c := range all {
			k := stream{c.Src, c.DestQP}
			streams[k] = append(streams[k], c.Packet)
		}
		for _, ps := range streams {
			replay(t, ps)
		}
	})
}

func replay(t *testing.T, ps []bth.Packet) {
	mtu := 0
	for _, p := range ps {
		mtu = max(mtu, len(p.Payload))
	}
	const room = 1 << 16
	r := unconnected(t, ps[0].DestQP, room, verbs.QPCap{MaxRecvWR: 128, MaxSendWR: 128}, nil)
	r.Base = ps[0].PSN
	r.connect(attr(verbs.MTU(mtu), uint32(ps[0].DestQP), ps[0].PSN.Uint32(), ps[0].PSN.Uint32()))
	var target *mr.Region // where its WRITEs go
	var msg []byte
	at := 0 // where the next message to be sent again lies
	var want []byte
	for i := range ps {
		p := ps[i]
		info := p.Info()
		if info.Op == bth.OpWrite && info.Has(bth.Starts) {
			if target == nil {
				target = r.Region(mr.Region{PD: 1, IOVA: p.VA, Mem: make([]byte, room), Access: verbs.AccessAll})
			}
			p.RKey = target.Key
		}
		if info.Has(bth.Starts) {
			r.recv(uint64(i), 0, room/2)
			msg = msg[:0]
		}
		msg = append(msg, p.Payload...)
		r.In(p)
		if !info.Has(bth.Ends) {
			continue
		}
		w := verbs.SendWR{Opcode: verbs.WRSend}
		if got := r.Mem[:len(msg)]; info.Op == bth.OpSend {
			if len(r.Done) != 1 || int(r.Done[0].ByteLen) != len(msg) || !bytes.Equal(got, msg) {
				t.Fatalf("packet %d: a message of %d octets: %+v", i, len(msg), r.Done)
			}
		} else {
			first := ps[i-(len(msg)-1)/mtu]
			w = verbs.SendWR{Opcode: verbs.WRWrite, RemoteAddr: first.VA, RKey: first.RKey}
			if !bytes.Equal(target.Mem[:len(msg)], msg) {
				t.Fatalf("packet %d: a WRITE of %d octets differs", i, len(msg))
			}
		}
		r.Done = r.Done[:0]
		// The same message from here, out of the upper half of the memory.
		at = room/2 + (at+len(msg))%(room/2-len(msg)-1)
		copy(r.Mem[at:], msg)
		w.SGL = []verbs.SGE{r.SGE(at, len(msg)/3), r.SGE(at+len(msg)/3, len(msg)-len(msg)/3)}
		r.Post(w)
		r.Sent()
		for _, x := range r.Pkts {
			want = append(want, enginetest.Octets(*x)...)
		}
	}
	r.WantCounts(enginetest.Counts{})
	if s := r.qp.Stats(); s.Lost != 0 || s.RcvdRequests != uint64(len(ps)) || s.SentRequests != uint64(len(ps)) {
		t.Errorf("%+v", s)
	}
	var theirs []byte
	for _, p := range ps {
		theirs = append(theirs, enginetest.Octets(p)...)
	}
	if !bytes.Equal(theirs, want) {
		t.Error("the packets sent here are others than rxe's")
	}
}
