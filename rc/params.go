package rc

const (
	// defaultWindow is in packets, for a peer with the usual unprivileged
	// receive buffer of 212992 octets: measured, no loss up to 90 packets of
	// 4 KiB.
	defaultWindow = 64

	// smallWindow bounds the doubling of a window for a small path MTU.
	smallWindow = 256

	// ackFraction: a packet asks for an ACK at least every window/ackFraction
	// packets, so that the window reopens before it closes.
	ackFraction = 4

	// readFraction: one READ request asks for at most window/readFraction
	// packets; a longer READ is several requests, so that responses never
	// exceed the receive buffer. Responders see what a restart of a READ
	// looks like.
	readFraction = 2

	// timeoutUnit is 4.096 us (IBA 9.7.6.1.3) in nanoseconds.
	timeoutUnit = 4096
)
