package hostnet

// Caps tells which of the capabilities that a link can use are in effect.
// capabilities(7).
type Caps struct {
	NetRaw   bool // packet sockets
	NetAdmin bool // large receive buffers, XDP
	BPF      bool // load BPF programs; CAP_SYS_ADMIN includes it
}
