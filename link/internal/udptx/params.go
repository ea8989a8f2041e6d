package udptx

const (
	// PoolSize is how many source ports each local address has: enough for
	// the switches' ECMP hash, few enough descriptors.
	PoolSize = 16

	// MaxBursts is how many bursts one system call takes: 8 super-packets are
	// about 480 KB, 100 us of kernel time, and more gain nothing.
	MaxBursts = 8

	// DefaultSndBuf is the send buffer asked for, in octets: room for
	// MaxBursts super-packets with their overhead.
	DefaultSndBuf = 2 << 20

	// portBase is the lowest port of mlx5's range, which our own choices keep
	// to as well (rdma-core ibv_flow_label_to_udp_sport).
	portBase = 0xc000

	maxSingles = 128  // messages in a sendmmsg of single datagrams: a burst
	maxPieces  = 8192 // gathered pieces in a sendmmsg; a burst has at most 1002
)
