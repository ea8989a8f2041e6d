package main

import "testing"

// What is counted of a namespace, and what moved of it.
func TestMediumCounters(t *testing.T) {
	c := map[string]uint64{}
	snmp(c, "Ip: Forwarding InDiscards OutDiscards\nIp: 1 2 3\nUdp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: 10 11 12 13\nUdpLite: InErrors RcvbufErrors\nUdpLite: 1 1\n")
	snmp6(c, "Ip6InDiscards    4\nUdp6InDatagrams   5\nUdp6RcvbufErrors  6\nUdpLite6RcvbufErrors 7\n")
	softnet(c, "000ad6e9 00000010 00000000\n0009687b 00000002 00000000\n")
	want := map[string]uint64{"our Ip InDiscards": 2, "our Ip OutDiscards": 3, "our Udp RcvbufErrors": 13, "our Ip6 InDiscards": 4, "our Udp6 RcvbufErrors": 6, "this machine's input queues": 18}
	if len(c) != len(want) {
		t.Errorf("%v", c)
	}
	for k, v := range want {
		if c[k] != v {
			t.Errorf("%s: %d, not %d", k, c[k], v)
		}
	}
	after := map[string]uint64{"our Ip InDiscards": 2, "our Udp RcvbufErrors": 15}
	if s := lostOnTheWay(c, after, map[string]uint64{"sent_pkts": 9, "net eth0 tx_dropped": 4}); s != "our Udp RcvbufErrors 2, the guest's eth0 tx_dropped 4" {
		t.Errorf("%q", s)
	}
	if s := lostOnTheWay(c, c, nil); s != "" {
		t.Errorf("%q", s)
	}
}
