package control

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// Version of the protocol. A daemon serves clients of its own major version; a
// minor one adds operations, or fields at the end of a struct.
const (
	Magic        = 0x64657872 // "rxed"
	VersionMajor = 1
	VersionMinor = 0

	// MaxMessage is the longest message, header included.
	MaxMessage = 64 << 10
	// HeaderLen is the length of a header.
	HeaderLen = 16
)

// Op is what a message asks for, or answers.
type Op uint16

const (
	OpHello       Op = 1
	OpQueryDevice Op = 2
	OpQueryPort   Op = 3
	OpGIDs        Op = 4
	OpChooseGID   Op = 5
	OpCounters    Op = 6
	OpAllocPD     Op = 16
	OpRegMR       Op = 17
	OpAllocMW     Op = 18
	OpCreateCQ    Op = 19
	OpCreateSRQ   Op = 20
	OpModifySRQ   Op = 21
	OpQuerySRQ    Op = 22
	OpCreateAH    Op = 23
	OpCreateQP    Op = 24
	OpModifyQP    Op = 25
	OpQueryQP     Op = 26
	OpAttachMcast Op = 27
	OpDetachMcast Op = 28
	OpDestroy     Op = 29
	OpWake        Op = 48 // no answer
	OpEvent       Op = 64 // from the daemon, with tag 0
	OpReply       Op = 0x8000
)

// Status of an answer. With any but OK the body is text that says what is wrong.
type Status uint16

const (
	OK           Status = 0
	Failed       Status = 1  // see the text
	Closed       Status = 2  // no such object
	InUse        Status = 3  // others are made of it
	Limit        Status = 4  // no more of that kind
	BadState     Status = 5  // the queue pair's state does not allow it
	Invalid      Status = 6  // no device could do that
	NotSupported Status = 7  // this one does not
	DeviceFailed Status = 8  // it is no more
	BadMessage   Status = 9  // not this protocol; the daemon hangs up
	Denied       Status = 10 // not for this user
	NoDevice     Status = 11 // the daemon does not serve the wanted device
)

// errorsOf are the errors that travel as a status of their own.
var errorsOf = []struct {
	s   Status
	err error
}{
	{InUse, verbs.ErrInUse},
	{Limit, verbs.ErrLimit},
	{DeviceFailed, verbs.ErrFailed},
	{BadState, verbs.ErrState},
	{Invalid, verbs.ErrInvalidWR},
	{NotSupported, verbs.ErrNotSupported},
	{Closed, verbs.ErrClosed},
	{Denied, ErrDenied},
	{NoDevice, ErrNoDevice},
}

// Errors of a client beside those of package verbs.
var (
	// ErrNoDaemon: nobody serves the socket.
	ErrNoDaemon = errors.New("control: no daemon")
	// ErrNoDevice: a daemon does, but not the wanted device.
	ErrNoDevice = errors.New("control: no such device")
	// ErrDenied: the daemon does not serve this user.
	ErrDenied = errors.New("control: permission denied")
)

// StatusOf returns how an error travels.
func StatusOf(err error) Status {
	for _, e := range errorsOf {
		if errors.Is(err, e.err) {
			return e.s
		}
	}
	return Failed
}

// remoteError is an error that a daemon sent.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// Err returns the error that a status and text stand for.
func (s Status) Err(text string) error {
	for _, e := range errorsOf {
		if e.s == s {
			return &remoteError{text, e.err}
		}
	}
	return errors.New(text)
}

// Header begins every message.
type Header struct {
	Len    uint32 // of the whole message
	Op     Op
	Status Status // of an answer
	Tag    uint32 // chosen by who asks, repeated in the answer
	Zero   uint32
}

// Hello is the first message of a client. Want names a device: by its name, by its
// interface, or by an address of it; empty is the only one. With SameNetns only
// those in the network namespace that the client's socket was made in.
type Hello struct {
	Magic        uint32
	Major, Minor uint16
	By           uint32 // ByAny...
	SameNetns    uint32
	Want         [64]byte
}

// What Hello.Want is.
const (
	ByAny       = 0
	ByName      = 1
	ByInterface = 2
	ByAddr      = 3
)

// HelloReply comes with the memfd of the bell blocks.
type HelloReply struct {
	Major, Minor uint16
	Shards       uint32
	BellBytes    uint64 // of the memfd
	ClientID     uint32
	PID          uint32 // of the daemon
	Device       [32]byte
	NetDev       [32]byte
}

// DeviceReply is verbs.DeviceAttr. Behind it stands text, a line for each thing
// that the device goes without.
type DeviceReply struct {
	NodeGUID, MaxMRSize                                                                    uint64
	VendorID, MaxQP, MaxQPWR, MaxSGE, MaxCQ, MaxCQE, MaxMR, MaxMW, MaxPD                   uint32
	MaxQPRdAtom, MaxInitRdAtom, MaxSRQ, MaxSRQWR, MaxAH, MaxMcastGrp, MaxMcastQP, AckDelay uint32
	PhysPorts, Shards, AtomicHCA                                                           uint32
	Name                                                                                   [32]byte
	FWVer, Link                                                                            [16]byte
	ICRC                                                                                   [96]byte
}

// PortReply is verbs.PortAttr.
type PortReply struct {
	Active, MaxMTU, ActiveMTU, GIDTblLen, PKeyTblLen, NetMTU, SpeedMbit, Zero uint32
	State, LinkLayer, NetDev                                                  [32]byte
}

// GIDReply is one entry of the GID table; the answer is all of them.
type GIDReply struct {
	Index     uint32
	Zero      uint32
	GID       [16]byte
	Type      [16]byte
	Interface [32]byte
}

// ChooseGIDReq asks for the GID to reach an address from; text, with a zone where
// one is needed.
type ChooseGIDReq struct{ Peer [64]byte }

// ChooseGIDReply names it.
type ChooseGIDReply struct{ Index, Zero uint32 }

// HandleReply is the answer of what only makes an object.
type HandleReply struct{ Handle, Zero uint32 }

// RegMRReq asks for a memory region of memory that the daemon makes.
type RegMRReq struct {
	PD     uint32
	Access uint32
	Len    uint64
	IOVA   uint64
}

// RegMRReply comes with its memfd, MapBytes long.
type RegMRReply struct {
	Handle, LKey, RKey, Zero uint32
	MapBytes                 uint64
}

// AllocMWReq asks for a memory window.
type AllocMWReq struct{ PD, Type uint32 }

// AllocMWReply is its handle and first key.
type AllocMWReply struct{ Handle, RKey uint32 }

// CreateCQReq asks for a completion queue.
type CreateCQReq struct{ Depth, Vector uint32 }

// RingReply comes with the memfd of a ring; of its MapBytes the first RingBytes are
// the ring.
type RingReply struct {
	Handle, Zero        uint32
	RingBytes, MapBytes uint64
}

// CreateSRQReq asks for a shared receive queue.
type CreateSRQReq struct{ PD, MaxWR, MaxSGE, Zero uint32 }

// LimitReq arms the limit of a shared receive queue, or asks for it; LimitReply is it.
type (
	LimitReq   struct{ Handle, Limit uint32 }
	LimitReply struct{ Limit, Zero uint32 }
)

// AV is verbs.AV; StaticRate is a code of ibv_rate.
type AV struct {
	DGID              [16]byte
	SGIDIndex         uint32
	FlowLabel         uint32
	TrafficClass, TTL uint8
	SL, StaticRate    uint8
	Zero              uint32
}

// CreateAHReq asks for an address handle.
type CreateAHReq struct {
	PD, Zero uint32
	AV       AV
}

// CreateQPReq asks for a queue pair.
type CreateQPReq struct {
	PD, SendCQ, RecvCQ, SRQ                                 uint32
	Type, SigAll                                            uint32
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32
	Zero                                                    uint32
}

// CreateQPReply comes with the memfd of both rings: the send ring at 0, the receive
// ring, if there is one, at RecvAt.
type CreateQPReply struct {
	Handle, QPN, PSN, MaxDatagram uint32
	Shard, Bell                   uint32 // of the doorbell
	SendBytes, RecvBytes          uint64
	RecvAt, MapBytes              uint64
}

// QPAttr is verbs.QPAttr; RateLimit in kb/s.
type QPAttr struct {
	State, CurState, PathMTU, DestQPN, RQPSN, SQPSN, Access, PKeyIndex, Port, QKey uint32
	MaxRdAtomic, MaxDestRdAtomic                                                   uint32
	MinRNRTimer, Timeout, RetryCnt, RNRRetry                                       uint8
	FlowControl                                                                    uint32
	AV                                                                             AV
	RateLimit                                                                      uint32
}

// ModifyQPReq changes the attributes that Mask has (ibv_qp_attr_mask).
type ModifyQPReq struct {
	Handle, Mask uint32
	Attr         QPAttr
}

// HandleReq names an object.
type HandleReq struct{ Handle, Kind uint32 }

// McastReq attaches a queue pair to a group.
type McastReq struct {
	Handle, Zero uint32
	Group        [16]byte
}

// WakeReq wakes a shard that a client has rung a doorbell of and found asleep.
type WakeReq struct{ Shard, Zero uint32 }

// Event is verbs.AsyncEvent.
type Event struct{ Type, QPN, CQ, SRQ uint32 }

// A queue pair's handle says where its doorbell is: a generation above 4 bits of
// shard above 18 bits of index.
const (
	bellBits  = 18
	shardBits = 4
)

// QPHandle returns the handle of a queue pair with a doorbell; gen is not 0.
func QPHandle(gen uint32, shard int, bell uint32) verbs.Handle {
	return verbs.Handle(gen<<(bellBits+shardBits) | uint32(shard)<<bellBits | bell)
}

// BellOf returns the place of a queue pair's doorbell.
func BellOf(h verbs.Handle) (shard int, bell uint32) {
	return int(h >> bellBits & (1<<shardBits - 1)), uint32(h) & (1<<bellBits - 1)
}

// MaxGen is how many generations a handle tells apart.
const MaxGen = 1<<(32-bellBits-shardBits) - 1

// Append appends a message of fixed layout to b.
func Append(b []byte, v any) []byte {
	out, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic("control: " + err.Error()) // a struct without a fixed layout
	}
	return out
}

// Decode reads a message of fixed layout, and returns what stands behind it. A
// longer one than is known is of a later minor version; a shorter one is wrong.
func Decode(b []byte, v any) (rest []byte, err error) {
	n, err := binary.Decode(b, binary.LittleEndian, v)
	if err != nil {
		return nil, fmt.Errorf("control: a message of %d octets, %d are needed", len(b), binary.Size(v))
	}
	return b[n:], nil
}

// PutText puts text into a field, cut to its length less one.
func PutText(field []byte, s string) { copy(field[:len(field)-1], s) }

// Text returns a field's text.
func Text(field []byte) string {
	for i, c := range field {
		if c == 0 {
			return string(field[:i])
		}
	}
	return string(field)
}

// AppendNamed appends named numbers: a u16 length, the name, a u64, for each.
func AppendNamed(b []byte, m map[string]uint64) []byte {
	for k, v := range m {
		if len(b)+2+len(k)+8 > MaxMessage {
			break
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(k)))
		b = append(b, k...)
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// DecodeNamed reads what AppendNamed wrote.
func DecodeNamed(b []byte) (map[string]uint64, error) {
	m := map[string]uint64{}
	for len(b) > 0 {
		if len(b) < 2 {
			return nil, errors.New("control: named numbers end early")
		}
		n := int(binary.LittleEndian.Uint16(b))
		if len(b) < 2+n+8 {
			return nil, errors.New("control: named numbers end early")
		}
		m[string(b[2:2+n])] = binary.LittleEndian.Uint64(b[2+n:])
		b = b[2+n+8:]
	}
	return m, nil
}

// FromAV and the others translate between the wire and package verbs.
func FromAV(a *verbs.AV) AV {
	return AV{
		DGID: a.DGID, SGIDIndex: uint32(a.SGIDIndex), FlowLabel: a.FlowLabel,
		TrafficClass: a.TrafficClass, TTL: a.HopLimit, SL: a.SL, StaticRate: uint8(a.StaticRate),
	}
}

// Verbs returns the address vector.
func (a *AV) Verbs() verbs.AV {
	return verbs.AV{
		DGID: a.DGID, SGIDIndex: int(a.SGIDIndex), FlowLabel: a.FlowLabel,
		TrafficClass: a.TrafficClass, HopLimit: a.TTL, SL: a.SL, StaticRate: verbs.Rate(a.StaticRate),
	}
}

// FromQPAttr translates attributes.
func FromQPAttr(a *verbs.QPAttr) QPAttr {
	return QPAttr{
		State: uint32(a.State), CurState: uint32(a.CurState), PathMTU: uint32(a.PathMTU), DestQPN: a.DestQPN, RQPSN: a.RQPSN, SQPSN: a.SQPSN,
		Access: uint32(a.Access), PKeyIndex: uint32(a.PKeyIndex), Port: uint32(a.Port), QKey: a.QKey,
		MaxRdAtomic: uint32(a.MaxRdAtomic), MaxDestRdAtomic: uint32(a.MaxDestRdAtomic),
		MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		FlowControl: b2u(a.FlowControl), AV: FromAV(&a.AV), RateLimit: a.RateLimit,
	}
}

// Verbs returns the attributes.
func (a *QPAttr) Verbs() verbs.QPAttr {
	return verbs.QPAttr{
		State: verbs.QPState(min(a.State, 255)), CurState: verbs.QPState(min(a.CurState, 255)), PathMTU: verbs.MTU(a.PathMTU), DestQPN: a.DestQPN, RQPSN: a.RQPSN, SQPSN: a.SQPSN,
		Access: verbs.Access(a.Access), PKeyIndex: int(a.PKeyIndex), Port: int(a.Port), QKey: a.QKey,
		MaxRdAtomic: int(a.MaxRdAtomic), MaxDestRdAtomic: int(a.MaxDestRdAtomic),
		MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		FlowControl: a.FlowControl != 0, AV: a.AV.Verbs(), RateLimit: a.RateLimit,
	}
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
