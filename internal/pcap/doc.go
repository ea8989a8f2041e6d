// Package pcap reads captured frames: pcap and pcapng files (also gzipped),
// and .hex files, the plain form of the project's test vectors, where a line
// is one packet in hexadecimal and a line that starts with # is a comment.
//
// It knows file formats, not packets: a Frame is octets with the link type
// they start with. Package decode takes it from there. It wraps gopacket's
// pcapgo so that nothing else depends on it, and imports nothing of gorxe.
package pcap
