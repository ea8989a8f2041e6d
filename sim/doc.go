// Package sim is a network of NICs on virtual time: any number of real NICs
// (package nic, with its engines) in one thread, over lines with latency and a
// rate, and with faults by link/fault's rules. The same seed gives the same
// run, packet for packet, and a second of network time takes as long as its
// packets take to handle.
//
//	Node: verbs.Context -> nic.NIC (Manual) -> port
//	                                            | tx faults, line rate
//	          event heap: time, then order      v
//	   [ arrive | step | call | release ] <-- network --- latency --> rx faults -> port
//
// Nothing runs beside Run, and nothing waits: programs post and poll between
// calls of Run, from Sim.After, or from Node.OnStep, which is called whenever
// a node may have completions. CQ.Wait would block for ever.
//
// Faults are rules, of the network or of a node (by chance, or by exact keys:
// queue pair, PSN and times seen), or what a Judge decides. What fails with much
// can be brought down to what it takes by Shrink.
//
// By itself such a network has a line from every node to every other one. With
// switches (AddSwitch, or Topology for the usual shapes) each node has a line to
// one of them, and packets go one by one:
//
//	NIC -> Port of node: queue, rate -> delay -> Switch: shared buffer, PFC -> Port: queue, RED, rate -> ...
//
// What a switch does is counted (PortStats), and told to whoever watches.
//
// A run of packets of a burst that no fault touches travels as one event and
// arrives in one piece, as with receive offload. What goes to a multicast group
// meets the sender's tx faults once, and reaches each node that joined as a
// copy of its own, under that node's rx faults. Counts says what became of all
// packets.
package sim
