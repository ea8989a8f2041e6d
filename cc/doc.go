// Package cc is congestion control: what decides how much a queue pair may
// have in flight, and how fast it sends. A Controller is asked by the engines,
// for its window, and by the NIC, for its rate; a Pacer spaces bursts so that the
// rate is kept. RED is what a switch marks by.
//
// Config chooses the algorithm and holds its parameters, by mlx5's names and in
// its units; Default is what a ConnectX begins with, Profiles are other sets.
//
// Everything here is sans-IO like the engines: times are nanoseconds of the
// caller's clock, rates bits a second of IP packets, header to ICRC.
package cc
