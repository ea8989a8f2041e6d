package transport

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Every completion has the number and the cookie of its request, which stand in
// the ring: of one that went well, that failed, and that was flushed, in both
// queues.
func TestCookies(t *testing.T) {
	c, err := verbs.QPCap{}.WithDefaults()
	require.NoError(t, err)
	sends := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	recvs := verbs.NewRingMem(c.MaxRecvWR * verbs.RecvUnits(c.MaxRecvSGE))
	sq, err := verbs.NewSendQueue(sends, c)
	require.NoError(t, err)
	rq, err := verbs.NewRecvQueue(recvs, c.MaxRecvWR, c.MaxRecvSGE)
	require.NoError(t, err)
	for i := range uint32(3) {
		require.NoError(t, sq.Put(&verbs.SendWR{ID: 10 + uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
		binary.LittleEndian.PutUint32(sends[192+64*i+60:], 0xfffffff0+i)
		require.NoError(t, rq.Put(&verbs.RecvWR{ID: 20 + uint64(i)}))
		unit := uint32(64 * verbs.RecvUnits(c.MaxRecvSGE))
		binary.LittleEndian.PutUint32(recvs[192+unit*i+4:], 0xffffff00+i)
	}
	sq.Publish()
	rq.Publish()
	sr, ok := verbs.NewSendRing(sends)
	require.True(t, ok)
	rr, ok := verbs.NewRecvRing(recvs, c.MaxRecvSGE)
	require.True(t, ok)

	var sent, received completions
	var u Unreliable
	u.Init(Config{QPN: 5, Cap: c, SQ: sr, RQ: rr, SendCQ: &sent, RecvCQ: &received, MRs: mr.NewTable(1)})
	u.Attrs = verbs.QPAttr{State: verbs.StateRTS, PathMTU: 256}
	require.True(t, u.Skip(u.Current(0)))
	require.Equal(t, trace.None, u.Recv.Take())
	u.Recv.Done(verbs.WC{Opcode: verbs.WCRecv, ByteLen: 7}, false)
	require.Equal(t, trace.None, u.Recv.Take())
	u.Recv.Fail(verbs.WCLocLenErr, trace.FailLocalLen)
	u.ToErr(0, trace.FailLocalLen)

	require.Len(t, sent, 3)
	require.Len(t, received, 3)
	for i := range uint32(3) {
		want := sent[i].WC
		(&verbs.SendWQE{ID: 10 + uint64(i), Cookie: 0xfffffff0 + i}).Name(&want)
		require.Equal(t, want, sent[i].WC)
		want = received[i].WC
		verbs.RecvID{ID: 20 + uint64(i), Cookie: 0xffffff00 + i}.Name(&want)
		require.Equal(t, want, received[i].WC)
	}
}
