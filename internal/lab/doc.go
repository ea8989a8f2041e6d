// Package lab runs scenarios of congestion: a file says what network there is
// (package sim, with real NICs), how they react (package cc), and which flows run
// when; a Report says what became of them.
//
//	FILE.toml --Parse--> Scenario --Run--> Report --> WriteTable, WriteCSV, WriteJSON, WriteHTML
//
// What is measured is seen from outside, by the packets that reach nodes and the
// queues of ports, but for what only a NIC knows: the rate that it limits a queue
// pair to, and how often it went back. Time is the simulation's; the same scenario
// gives the same report.
//
// Rates count two things. Lines and queues count IP packets, header to ICRC, as
// package cc does; goodput of flows counts payload that came in order, each octet
// once.
package lab
