// Package fault injects faults: it drops, repeats, reorders, delays, corrupts,
// marks, slows down and cuts off packets by rules, the same every time for the
// same seed, packets and times. It is the one rule grammar of the project.
//
// Injector is the sans-IO core: a packet and a time in, a Decision out. Hold
// keeps packets until they leave. Both are for whoever has its own idea of time
// and transport, such as the simulator or a relay. Link puts them around any
// link.Link.
//
// # Rules
//
//	rules   = [ rule ] { ( ";" | newline ) [ rule ] } .    "#" begins a comment
//	rule    = [ "tx" | "rx" ] effect { word } .            both ways when neither is given
//	effect  = "drop" | "dup" | "reorder" | "delay" | "corrupt" | "ce" | "rate" | "cut" .
//	word    = percent | span | bitrate | option .          in any order, each at most once
//	percent = decimal "%" .                                up to 7 decimals; not for rate and cut
//	span    = duration [ ".." duration ] .                 for delay and cut; Go durations
//	bitrate = integer ( "bit" | "kbit" | "Mbit" | "Gbit" ) .  for rate; powers of 1000 a second
//	option  = "qpn=" number            destination QPN, as in the BTH
//	        | "psn=" number [ ".." number ]   24 bits; a range may wrap
//	        | "opcode=" name [ "*" ]   RC_ACK, or a prefix: RC_READ_RESP_*
//	        | "seen=" integer          the N-th time this packet passes, see below
//	        | "first=" integer         only the first N packets that match
//	        | "every=" integer         only every N-th packet that matches
//	        | "limit=" integer         at most N times in all
//	        | "by=" integer            reorder: packets that overtake, 3 if not given
//	        | "within=" duration       reorder: leave by then all the same, 10ms if not given
//	        | "buf=" integer [ "k" | "M" ] .   rate: octets that queue, 256k if not given
//
// Numbers are decimal, or hexadecimal after 0x. Effects:
//
//	drop      lose the packet
//	dup       send it twice
//	reorder   hold it until as many later packets of its direction have passed
//	delay     hold it for a time drawn evenly from the span
//	corrupt   flip one bit that the ICRC covers
//	ce        mark the IP header "congestion experienced"
//	rate      a line of that many bits a second, counting BTH to ICRC, behind a
//	          queue of buf octets; what does not fit in the queue is lost
//	cut       lose everything from one time to another after the start
//
// Examples:
//
//	tx drop 2%                            rx drop 1% opcode=RC_ACK
//	tx drop qpn=0x12 psn=100 seen=1       rx dup 2%
//	tx reorder 2% by=3                    tx delay 1ms..5ms 10%
//	tx corrupt 0.1%                       rx ce 5%
//	tx rate 100Mbit buf=256k              cut 100ms..200ms
//	drop psn=0xfffff0..5 first=1          tx drop opcode=RC_WRITE_* every=10 limit=3
//
// # What a rule does to a packet
//
// Every packet meets every rule, in their order, until one loses it; other
// effects add up. A packet matches a rule when direction, qpn, psn, opcode,
// seen and, for cut, the time are right. Of those that match, first and every
// choose by count, limit stops, and the percentage is drawn last, from a
// sequence of random numbers that the rule has for each direction: chance one
// way does not depend on the traffic of the other way. The counts of a rule
// for both ways are of both together; its line of rate is one each.
//
// seen counts passages of a packet in one direction. A packet is known by its
// destination QPN, its PSN, and whether it is a request or a response (a queue
// pair receives both, with PSNs that have nothing to do with each other), so
// that seen=1 is the first transmission and seen=2 the first retransmission.
// The last 32768 packets at least are remembered.
//
// The package imports link, wire, bth and trace.
package fault
