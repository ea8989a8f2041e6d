// Package demo shows the whole of gorxe in a few seconds without privileges:
// two NICs in one process, on 127.0.0.1 and 127.0.0.2, exchange every RC
// operation over UDP sockets, check the data, then do it again while packets
// are dropped, and leave a capture that Wireshark opens.
package demo
