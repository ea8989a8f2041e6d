// Command bench measures gorxe beside what else carries data between two
// processes: iperf3 and UCX over TCP, qperf over UDP. Two network namespaces
// are joined by a veth pair, with one process in each; every round runs each
// program once, so that a ratio is of neighbours in time, and the median of the
// rounds counts. It needs root, and installs the Debian packages that lack.
//
//	go run ./bench [-rounds 5] [-time 2s] [-run RE] [-json FILE] [-profile DIR] [-idle 20s]
//
// Its exit status says whether every need is met. The same program runs as the
// two ends, inside the namespaces, which go with it however it ends short of
// SIGKILL.
package main
