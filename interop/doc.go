// Command interop proves gorxe against the Linux kernel's Soft-RoCE. It boots
// emulated Debian guests of two suites (package rig), puts our side into network
// namespaces on the same bridge, and runs a list of cases in both roles, those of
// the two guests at the same time:
//
//	go run ./interop             every case (needs root; 18 minutes, more on a busy machine)
//	go run ./interop -smoke      a tenth of each kind, a few over xdp, and one of each kind or more through
//	                             a daemon, drawn by -seed (default: the commit), in CI
//	go run ./interop -list       what there is
//	go run ./interop -run 'perf/send_bw/UC.*udp'
//	go run ./interop -link xdp   every case over one link
//	go run ./interop -daemon     every case with our side attached to an rxed
//	go run ./interop -reference  the kernel against itself: what it does where we should do the same
//
// A case is named GROUP/KIND[/FORM]/vFAMILY/mtuN/ROLE/LINK/SUITE. The groups:
//
//   - pingpong: rdma-core's ibv_rc_pingpong, uc, ud and srq in the guest against
//     rxe pingpong;
//   - perf: perftest's eight tools over RC, UC and UD against rxe perf;
//   - verbs: a program on the API (this one, started again inside the
//     namespace) against verbs_peer.py in the guest, with every octet compared;
//   - trouble: one end does what the other has to put up with: receive requests
//     that come late or never, queue pairs and devices that end in mid-transfer,
//     requests that are refused, datagrams that are dropped; some by packets made
//     by hand, without a device of ours, and some judged by a capture on the bridge,
//     which tshark decodes. classes.go says where each class of error is met;
//   - faults: the same with loss, duplication and reordering, made by netem in
//     the guest or by link/fault on our side;
//   - congestion: rxe relay as a bottleneck between the guest and us, and what becomes of
//     marks, losses and CNPs, some of which the guest's program makes by hand;
//   - multicast: groups, with verbs_peer.py, librdmacm's mckey, and a second
//     device of ours.
//
// RC's pingpongs and procedures are the full product of role, link, family and
// the rest, every other case against the other suite. For everything else the
// product is too large: a table for each kind holds every pair of values (cover).
//
// Through a daemon (LINK@rxed in a name) our side is a program of uid 65534, attached to
// an rxed that root started in its namespace: one for all cases of a link, one for each
// case with faults, whose rules are the daemon's. After each case the daemon must hold
// nothing of it, and when it is stopped it must end well and have complained of nothing.
// The smoke form has some of each kind so.
//
// A role is ours: as client we connect and are the requester. Links packet and
// xdp run as root, link udp as uid 65534 without any capability. After each case the
// guest's counters of errors must not have moved, faults aside. Progress is a
// line for each case; one that failed says which queues on the way lost packets.
// -json writes it all for programs, and the exit status is
// 0 when every case passed.
//
// What is to be known of the guests (Linux 6.12, rdma-core 44 and 56, perftest
// 6.06 and 6.24, under qemu 7.2; what of Soft-RoCE's and the tools' habits a
// user may meet is in docs/interop.md):
//
//   - Programs want -g or -x: GID index 0 is link-local, then one for each address
//     in the order they were given; as servers they listen on IPv4 only.
//   - It takes a few megabytes a second at path MTU 256, and its NIC has a queue
//     of 256 packets. We send a megabyte at line rate, so the tap before it has a
//     long queue; else the guest counts out_of_seq_request, and over UC waits for
//     ever. What it sends waits in a plain queue: fq_codel drops what waits long.
//   - Packets that wait for ARP and are given up after their queue pair is gone
//     crash its kernel, so it is told our MAC address, and we its.
//   - While READ responses come in, an ACK that was overtaken ends its queue pair:
//     the READ completes with success and without its data, what follows is
//     flushed (a warning in rxe_comp.c). So reordering is for cases that have one
//     request outstanding.
//   - It stands still for a second when the machine is busy, which a timeout of
//     code 14 with seven retries does not survive: perftest has -u 17.
//   - Its IP layer takes a group's packets only when a socket has joined:
//     verbs_peer.py has one. pyverbs cannot attach to groups: libibverbs is called.
//   - With cmpxchg16b its kernel dies every few minutes, of the emulator; rig
//     takes that instruction away. A case whose guest died is tried again on a
//     new one, and says so.
//
// Cases are the tables in cases.go and programs.go; procedures on verbs are
// written once, in terms of a requester and a responder, and know neither role
// nor link.
package main
