package pingpong

import "github.com/gorxe/gorxe/verbs"

// Service names one of the programs: ibv_rc_pingpong is RC.
type Service string

// The programs of rdma-core that there are.
const (
	RC  Service = "rc"  // a reliable connection
	UC  Service = "uc"  // an unreliable connection
	UD  Service = "ud"  // datagrams
	SRQ Service = "srq" // reliable connections that share their receives
)

// maxLanes is how many addresses srq_pingpong writes, whatever its number of
// queue pairs: those beyond it are all zeros.
const maxLanes = 256

// hopLimit is what Linux makes of the 1 that the originals ask for: that of the
// route (rdma_addr_find_l2_eth_by_grh), seen in Soft-RoCE's packets.
const hopLimit = 64

// qkey is the Q_Key of ud_pingpong, at both ends.
const qkey = 0x11111111

// service is what tells the programs apart.
type service struct {
	typ       verbs.QPType
	addresses int  // in each direction of the exchange
	size      int  // octets of a message by default
	grh       int  // octets before each received message
	colon     bool // the local address is printed with one before the GID
}

var services = map[Service]service{
	RC:  {typ: verbs.RC, addresses: 1, size: 4096},
	UC:  {typ: verbs.UC, addresses: 1, size: 4096},
	UD:  {typ: verbs.UD, addresses: 1, size: 1024, grh: verbs.GRHLen, colon: true},
	SRQ: {typ: verbs.RC, addresses: maxLanes, size: 4096},
}

// reliable is that the transport repeats what is lost, and tells of a peer that
// is gone.
func (s *service) reliable() bool { return s.typ == verbs.RC }
