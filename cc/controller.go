package cc

// Controller decides how a queue pair sends. Its owner serialises calls, and
// hands over times that do not go back.
type Controller interface {
	// Start begins afresh with a path: when a queue pair enters RTS, or gets
	// this controller later.
	Start(now int64, p Path)
	// Configure has it go by other parameters of its algorithm from now on. It
	// keeps c.
	Configure(now int64, c *Config)

	// Window returns how many packets may be unacknowledged, of RC.
	Window(now int64) int
	// Rate returns how many bits a second requests and READ responses may leave
	// at; 0 is as many as can.
	Rate(now int64) int64

	// OnSent is told of octets that left at the Rate, of IP packets.
	OnSent(now int64, octets int)
	// OnAck is told of packets newly acknowledged, and how long ago, in
	// nanoseconds, one of them was sent, where that was measured, or 0.
	OnAck(now int64, packets int, rtt int64)
	// OnLoss is told of each loss event, and says what it takes it for.
	OnLoss(now int64, why Loss) Reaction
	// OnCNP is told of each congestion notification that the peer sent: what
	// this queue pair sends met congestion.
	OnCNP(now int64)
	// OnMark is told that a response came with a congestion mark: what this
	// queue pair asked for met congestion. The peer is sent a notification.
	OnMark(now int64)

	// State is for whoever looks into a running device.
	State(now int64) State
}

// Path is what a controller has to know of a connection.
type Path struct {
	Limit int   // packets that the peer's receive buffer is taken to bear
	MTU   int   // octets of payload in a packet
	Line  int64 // bits a second of the interface; 0 is not known
}

// DefaultLine is what a line is taken to carry that does not say: 10 Gb/s.
const DefaultLine = int64(10e9)

// Loss is how a queue pair learned of a loss.
type Loss uint8

const (
	LossNAK     Loss = iota // the peer said that a packet is missing
	LossImplied             // a response passed one that is missing
	LossTimeout             // nothing came
)

// State is what a controller is about. What an algorithm does not have is 0.
type State struct {
	Rate    int64   // bits a second, 0 for as many as can
	Target  int64   // of DCQCN: what the rate recovers to
	Alpha   float64 // of DCQCN: 0 to 1, how congested the path is taken to be
	Window  int     // packets
	RTT     int64   // of Swift: nanoseconds, the last that was measured
	Limited bool    // the controller holds the rate below the line's
}

// Reaction is what a controller took a loss for.
type Reaction uint8

const (
	TakenForLoss      Reaction = iota // nothing but a loss
	SlowRestart                       // congestion: the rate was cut
	SlowRestartBegins                 // the same, for the first time since the rate was full
)
