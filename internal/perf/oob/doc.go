// Package oob speaks the exchange that perftest's programs (ib_send_bw and the
// rest) have over TCP before, during and after a measurement, in both roles. It
// carries no measured traffic and knows no device: addresses of queue pairs go
// in, the peer's come out.
//
// A step is a message each way of the same length: the client writes and then
// reads, the server reads and then answers. In order:
//
//	Hello      version           16 octets, text and NULs
//	           cycle buffer       4, big endian
//	           cache line         4, big endian
//	           path MTU           2, a decimal digit (ibv_mtu) and NUL
//	Exchange   addresses        108, text, a step for each queue pair
//	Connected  addresses again  108, n+1 steps for n queue pairs in RTS
//	Begin      one address           before each run where the tool has it
//	End        bandwidth report 8 x 5 and an address, where the tool has them
//	Finish     the same              after the last run, then one address
//
// The caller goes through Hello, Exchange, Connected, then Begin, run, End for
// each size, then Finish, and the same calls do for every tool: which of them
// is a step on the wire is this package's knowledge, in order.go.
//
// Whatever a peer sends is checked before it is believed, each step has a time
// limit however slowly octets drip, and an error says what to do.
//
// Evidence: transcripts in testdata of 6.06 and 6.24 with themselves and each
// other, which the tests repeat octet by octet in both roles; and the source up
// to 6.29 (perftest_communication.c, main of the eight programs), whose new
// negotiation is left out by peers that are told an older version. perftest
// counts versions from 5.70 on as compatible. Not spoken: -R and -z (the
// connection manager instead of TCP), --dont_xchg_versions, addresses without
// GID, which need InfiniBand.
package oob
