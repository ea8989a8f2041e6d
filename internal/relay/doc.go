// Package relay forwards frames between two interfaces, unchanged, and treats RoCEv2
// among them as a network would: a bottleneck with a buffer, RED-ECN marks and a
// delay, and the faults of link/fault, each direction by itself.
//
//	            +--------------------------- Way ---------------------------+
//	interface --+-- not RoCEv2 ---------------------------------------------+--> interface
//	            +-- RoCEv2 -- split -- faults -- buffer -- line -- delay ---+
//	                                              (RED)
//
// A Way is the sans-IO core of a direction: frames with the time at which they came
// go in, frames to send come out, and Step says when to come again. What happens on
// its line happens at times that are computed from those of arrivals, not at those of
// calls: who calls late gets frames late, and neither rate nor marks change.
// Relay runs two of them on packet sockets (Linux).
//
// Rates count bits of IP packets, header to ICRC, as package cc does. Octets of a
// queue are those too.
//
// A super-packet, several packets that a sender has not cut up yet or that a receiver
// has merged, is split before anything is done to it, so that each packet is what
// its ICRC was computed for. Linux Documentation/networking/segmentation-offloads.rst.
//
// The package imports link/fault, cc, wire, bth, trace, and internal/sys and
// internal/hostnet for the sockets.
package relay
