package nic

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestGRHOfCaptures compares the area before the payload of a receive with the
// IP headers of datagrams that Linux rxe sent: for each, a NIC with the address
// and Q_Key of its destination receives it. Only the number of the queue pair is
// another.
func TestGRHOfCaptures(t *testing.T) {
	names := []string{"rxe-pingpong-ud.pcap", "rxe/ud_pingpong.pcap", "rxe/send_ud.pcap"}
	enginetest.Captures(t, bth.UD, names, func(t *testing.T, ps []enginetest.Captured) {
		v := wire.NewVerifier()
		for _, c := range ps[:min(len(ps), 100)] {
			require.Equal(t, trace.None, v.Check(0, &c.Datagram, 0), "a wrong ICRC in the capture")
			received(t, c.Frame, c.Datagram, c.Packet)
		}
	})
}

// received has a NIC receive a datagram and compares what it puts into memory.
func received(t *testing.T, frame []byte, d wire.Datagram, p bth.Packet) {
	b := newBench(t, 1, func(c *Config) { c.GIDs = gidsOf(d.Dst) })
	q, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: b.cq, RecvCQ: b.cq})
	require.NoError(t, err)
	require.NoError(t, q.Activate(verbs.DatagramOptions{QKey: p.QKey}))
	recv(t, q, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 4136)}})
	b.step()
	body := bytes.Clone(d.Payload)
	bth.BTH(body).SetDestQP(bth.QPN(q.QPN()))
	icrc := body[len(body)-bth.ICRCLen:]
	src, dst := netip.AddrPortFrom(d.Src, d.SrcPort), netip.AddrPortFrom(d.Dst, wire.Port)
	binary.LittleEndian.PutUint32(icrc, wire.ICRC(body[:len(body)-bth.ICRCLen], src, dst, d.ID, d.Flags&wire.FlagDF != 0))
	d.Payload = body
	b.links[0].arrive(d)
	b.step()
	var wc [2]verbs.WC
	require.Equal(t, 1, b.cq.Poll(wc[:]))
	require.Equal(t, []any{uint32(40 + len(p.Payload)), uint32(p.SrcQP)}, []any{wc[0].ByteLen, wc[0].SrcQP})
	got := b.mr.Bytes()
	if d.Src.Is4() {
		require.Equal(t, make([]byte, 20), got[:20])
		require.Equal(t, frame[14:34], got[20:40])
	} else {
		require.Equal(t, frame[14:54], got[:40])
	}
	require.Equal(t, p.Payload, got[40:40+len(p.Payload)])
	av, err := b.ctx.AVFrom(&wc[0], got)
	require.NoError(t, err)
	require.Equal(t, verbs.GIDOf(d.Src), av.DGID)
}
