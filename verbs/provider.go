package verbs

import (
	"context"
	"net/netip"
)

// Handle names an object of a provider; 0 is none.
type Handle uint32

// Provider is what a Context works through: a NIC in this process, or the
// client of one in another. Its three parts are separate so that each stays
// small enough to fake.
type Provider interface {
	Admin
	Objects
	Datapath
}

// Admin describes the device and ends it.
type Admin interface {
	QueryDevice() (DeviceAttr, error)
	QueryPort() (PortAttr, error)
	// GIDs returns the GID table, index by index.
	GIDs() ([]GIDEntry, error)
	// ChooseGID returns the index of the GID to reach peer from.
	ChooseGID(peer netip.Addr) (int, error)
	Counters() (map[string]uint64, error)
	Events() <-chan AsyncEvent
	Close() error
}

// Objects creates and destroys. Ring memory is made by the provider, since it
// may have to be shared with another process.
type Objects interface {
	AllocPD() (Handle, error)
	RegMR(MRReq) (MRInfo, error)
	AllocMW(MWReq) (MWInfo, error)
	CreateCQ(CQConfig) (CQInfo, error)
	CreateSRQ(SRQReq) (SRQInfo, error)
	// ModifySRQ arms the limit: EventSRQLimit is reported when fewer than
	// limit requests are left, once. 0 disarms it.
	ModifySRQ(h Handle, limit int) error
	// QuerySRQ returns the limit that is armed, 0 when none is.
	QuerySRQ(h Handle) (limit int, err error)
	CreateAH(pd Handle, av *AV) (Handle, error)
	CreateQP(QPReq) (QPInfo, error)
	ModifyQP(h Handle, a *QPAttr, m AttrMask) error
	QueryQP(h Handle) (QPAttr, QPStats, error)
	// AttachMulticast makes a UD queue pair receive what is sent to a group;
	// DetachMulticast ends that.
	AttachMulticast(qp Handle, group GID) error
	DetachMulticast(qp Handle, group GID) error
	Destroy(k ObjectKind, h Handle) error
}

// Datapath is called for every post and poll.
type Datapath interface {
	// Doorbell says that send requests were posted to a queue pair, and
	// drives its shard if nobody else does. A receive doorbell is needed
	// only in the ERR state, where what is posted is flushed.
	Doorbell(h Handle)
	// Progress drives a completion queue's shard if nobody else does.
	Progress(cq Handle)
	// WaitCQ returns when the queue has completions, ctx ends or the device
	// fails. It drives the shard for a short while before it blocks.
	WaitCQ(ctx context.Context, cq Handle, q *CompQueue, solicited bool) error
}

// ObjectKind is a kind of object.
type ObjectKind uint8

const (
	KindPD ObjectKind = iota + 1
	KindMR
	KindCQ
	KindQP
	KindSRQ
	KindAH
	KindMW
)

// MRReq asks for a memory region. With Mem the region is that memory; without,
// the provider makes Len octets.
type MRReq struct {
	PD     Handle
	Mem    []byte
	Len    int
	Access Access
	// IOVA is the address that work requests and peers use for the first
	// octet; with DefaultIOVA the memory's own address.
	IOVA        uint64
	DefaultIOVA bool
}

// MRInfo describes a registered region.
type MRInfo struct {
	Handle Handle
	Mem    []byte // what MR.Bytes returns
	// Shadow is memory of the same length that the device uses in the place of
	// Mem, which it cannot see; nil when it uses Mem. This package copies
	// between the two for the program's own requests. Such a region gives no
	// rights to peers, nor to windows. It may be copied from until the provider
	// is asked to destroy the region, also when the device is closed.
	Shadow []byte
	IOVA   uint64
	LKey   uint32
	RKey   uint32
}

// MWReq asks for a memory window.
type MWReq struct {
	PD   Handle
	Type MWType
}

// MWInfo describes an allocated memory window.
type MWInfo struct {
	Handle Handle
	RKey   uint32 // which gives access to nothing until the window is bound
}

// CQConfig describes a completion queue.
type CQConfig struct {
	Depth  int // completions, rounded up to a power of two (256)
	Vector int // shard (0)
}

// CQInfo describes a created completion queue.
type CQInfo struct {
	Handle Handle
	Ring   []byte
}

// QPReq asks for a queue pair.
type QPReq struct {
	PD             Handle
	SendCQ, RecvCQ Handle
	SRQ            Handle // 0: a receive queue of its own
	Type           QPType
	Cap            QPCap
	SigAll         bool
}

// QPInfo describes a created queue pair.
type QPInfo struct {
	Handle   Handle
	QPN      uint32
	PSN      uint32 // a random first PSN
	SendRing []byte
	RecvRing []byte // nil with a shared receive queue
	// MaxDatagram is how many octets a UD queue pair can send at once: the
	// port's active MTU.
	MaxDatagram int
}

// SRQReq asks for a shared receive queue.
type SRQReq struct {
	PD     Handle
	MaxWR  int
	MaxSGE int
}

// SRQInfo describes a created shared receive queue.
type SRQInfo struct {
	Handle Handle
	Ring   []byte
}

// QPStats are counters of one queue pair by name.
type QPStats map[string]uint64
