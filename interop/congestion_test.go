package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What tshark prints of a guest's WRITE with ECT(0), its ACK, ours, and CNPs.
const jammedCapture = `02:00:00:00:00:02;0;;2;;4791;1052;7;5000;65535
02:00:00:00:00:02;0;;0;;4791;28;17;77;65535
02:00:00:00:00:64;0;;2;;4791;28;17;5000;65535
02:00:00:00:00:64;48;;2;;4791;40;129;0;65535
02:00:00:00:00:64;;48;;2;4791;40;129;0;65535
02:00:00:00:00:02;48;;2;;4791;40;129;0;65535
`

func TestTraffic(t *testing.T) {
	var x traffic
	require.NoError(t, x.parse(jammedCapture, macOf(2)))
	require.Equal(t, [4]int{2: 1}, x.sent)
	require.Equal(t, []int{3, 2, 1}, []int{x.came, x.cnps, x.back})
	require.Empty(t, x.odd)
	for _, c := range [][2]string{{"48;;2;;4791;40;129;0", "46;;2;;4791;40;129;0"}, {"48;;2;;4791;40;129;0", "48;;0;;4791;40;129;0"}, {"40;129;0", "44;129;0"}, {"129;0;65535", "129;1;65535"}} {
		x = traffic{}
		require.NoError(t, x.parse(strings.Replace(jammedCapture, c[0], c[1], 1), macOf(2)))
		require.NotEmpty(t, x.odd, c[1])
	}
	require.Error(t, x.parse("something else\n", macOf(2)))
}

// Each judge minds what it is for.
func TestJudges(t *testing.T) {
	good := func() *traffic {
		x := &traffic{
			ours:  map[string]uint64{"np_ecn_marked_roce_packets": 9, "np_cnp_sent": 4},
			guest: map[string]uint64{"rcvd_pkts": 20}, sent: [4]int{2: 50}, came: 24, cnps: 4,
		}
		x.relay.AB = relayed{Packets: 50, Marked: 9}
		return x
	}
	require.NoError(t, good().marked())
	for what, spoil := range map[string]func(*traffic){
		"marks that were lost":        func(x *traffic) { x.relay.AB.Marked++ },
		"no marks":                    func(x *traffic) { x.relay.AB.Marked, x.ours["np_ecn_marked_roce_packets"] = 0, 0 },
		"more CNPs than marks":        func(x *traffic) { x.ours["np_cnp_sent"], x.cnps = 10, 10 },
		"a CNP that was lost":         func(x *traffic) { x.cnps-- },
		"a CNP of another form":       func(x *traffic) { x.odd = "odd" },
		"CNPs that the guest counted": func(x *traffic) { x.guest["rcvd_pkts"] = 24 },
		"a guest without ECT":         func(x *traffic) { x.sent = [4]int{50} },
	} {
		x := good()
		spoil(x)
		require.Error(t, x.marked(), what)
	}
	require.Error(t, good().quiet())
	require.Error(t, good().notMarked())
	require.Error(t, good().lossy())
	require.Error(t, good().forged())
}
