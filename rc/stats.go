package rc

// Stats are the counters of a queue pair that are not reasons. Octets are
// payload.
type Stats struct {
	SentRequests  uint64 // request packets, repeats included
	SentResponses uint64 // response packets
	RcvdRequests  uint64
	RcvdResponses uint64
	SentBytes     uint64
	RcvdBytes     uint64
	Repeated      uint64 // request packets sent again
	AcksSent      uint64
	AcksCoalesced uint64 // ACK requests answered by a later ACK
	Sends         uint64 // SEND messages begun
	Recvs         uint64 // receive completions
	Completed     uint64 // send work requests finished well
}

// Events is a set of asynchronous events.
type Events uint8

const (
	EventFatal   Events = 1 << iota // local error moved the queue pair to ERR
	EventAccess                     // a peer's request broke an access rule
	EventReqErr                     // a peer's request was invalid
	EventCommEst                    // first packet in RTR
	EventDrained                    // SQD: nothing in flight any more
	EventLastWQE                    // ERR: no receive request will be taken any more
)
