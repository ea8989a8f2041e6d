// Command bench measures gorxe against iperf3 on the same wire: two network
// namespaces joined by a veth pair, one process in each, runs interleaved,
// medians and their spread. It needs root, iproute2 and iperf3.
//
//	go run ./bench [-rounds 5] [-time 2s] [-mtu 9000] [-link udp] [-json FILE]
//
// Its exit status says whether every need is met; the file of -json has the
// figures, and how busy the machine was before. The same program runs as the
// two ends, inside the namespaces, which go with it however it ends short of
// SIGKILL.
package main
