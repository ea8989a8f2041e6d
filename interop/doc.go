// Command interop proves gorxe against the Linux kernel's Soft-RoCE. It boots
// an emulated Debian guest (package rig), puts our side into a network
// namespace on the same bridge, and runs a list of cases in both roles:
//
//	go run ./interop             every case (needs root; about 10 minutes)
//	go run ./interop -smoke      a few of each kind, in CI (4 minutes with the build of the guest)
//	go run ./interop -list       what there is
//	go run ./interop -run 'pingpong.*mtu256.*udp'
//	go run ./interop -reference  the kernel against itself: what it does where we should do the same
//
// Four groups of cases:
//
//   - pingpong: ibv_rc_pingpong in the guest against rxe pingpong rc;
//   - verbs: a program on the API (this one, started again inside the
//     namespace) against verbs_peer.py in the guest, with every octet compared;
//   - trouble: one end does what the other has to put up with: receive requests
//     that come late or never, queue pairs and devices that end in mid-transfer,
//     requests that are refused;
//   - faults: the same with loss, duplication and reordering, made by netem in
//     the guest or by link/fault on our side.
//
// A role is ours: as client we connect and are the requester. Link packet runs
// as root, link udp as uid 65534 without any capability. After each case the
// guest's counters of errors must not have moved, faults aside. Progress is a
// line for each case, -json writes it all for programs, and the exit status is
// 0 when every case passed.
//
// What is to be known of the guest (Linux 6.12, rdma-core 44, under qemu 7.2):
//
//   - ibv_rc_pingpong wants -g: GID index 0 is link-local, then one for each
//     address in the order they were given; as a server it listens on IPv4 only;
//     -t fails, since Soft-RoCE has no timestamps.
//   - It takes a few megabytes a second at path MTU 256, and its NIC has a queue
//     of 256 packets. We send a megabyte at line rate, so the tap before it has a
//     long queue; else the guest counts out_of_seq_request.
//   - Packets that wait for ARP and are given up after their queue pair is gone
//     crash its kernel, so it is told our MAC address.
//   - While READ responses come in, an ACK that was overtaken ends its queue pair:
//     the READ completes with success and without its data, what follows is
//     flushed (a warning in rxe_comp.c). So reordering is for cases that have one
//     request outstanding.
//   - It stands still for a second when the machine is busy, which a timeout of
//     code 14 with seven retries does not survive.
//   - With cmpxchg16b its kernel dies every few minutes, of the emulator; rig
//     takes that instruction away. A case whose guest died is tried again on a
//     new one, and says so.
//
// Cases are the table in cases.go; procedures on verbs are written once, in
// terms of a requester and a responder, and know neither role nor link.
package main
