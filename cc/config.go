package cc

import (
	"fmt"
	"slices"
	"strings"
)

// Algorithms that Config.Algorithm can name.
const (
	AlgDCQCN  = "dcqcn"
	AlgNone   = "none"
	AlgWindow = "window"
	AlgSwift  = "swift"
)

// Keys by which a notification point spaces CNPs: NICs differ in it.
const (
	PacingQP          = "qp"
	PacingDestination = "destination"
	PacingPort        = "port"
)

// Config is the congestion control of a device. Names of parameters that begin
// with rp, np or roce, their units and their defaults are mlx5's (Linux
// drivers/infiniband/hw/mlx5/cong.c, and NVIDIA's "DCQCN CC Parameters"). The
// zero value is not a good one: begin with Default.
//
// The reaction point is a queue pair that sends: an RC or UC requester, and a
// responder to READs. The notification point is one that receives that.
type Config struct {
	// Algorithm is dcqcn; none, which sends as fast as it can in a window that
	// only losses make smaller; window, which does so in one that never changes;
	// or swift, which goes by delay.
	Algorithm string
	// Window is how many packets may be in flight at most; 0 is what the peer's
	// receive buffer is taken to bear.
	Window int
	// WindowInitial is how many KiB a queue pair begins with under dcqcn and
	// swift: its window doubles with each round trip until something speaks
	// against it. 0 begins with all of it, as NICs do.
	WindowInitial int
	// WindowCNP makes the window of dcqcn smaller with notifications, as DCTCP's:
	// where the rate's parameters do not fit the path, as ConnectX's do not fit one
	// of less than some Gb/s, that is what keeps its queues short.
	WindowCNP bool

	RPEnable                  bool // notifications slow a queue pair down, and it sends ECT(0)
	RPClampTgtRate            bool // each cut moves the target rate too
	RPClampTgtRateATI         bool // a cut moves it when the rate has grown by the timer since the last, and not only when by octets
	RPTimeReset               int  // microseconds between increases
	RPByteReset               int  // octets between increases; 0 does not count them
	RPThreshold               int  // increases that only recover the target rate
	RPAIRate                  int  // Mb/s that the target rate grows by then
	RPHAIRate                 int  // and when both counts are beyond the threshold
	RPMaxRate                 int  // Mb/s; 0 is the line's
	RPMinDecFac               int  // percent of the rate that are left by a cut at least
	RPMinRate                 int  // Mb/s
	RPRateToSetOnFirstCNP     int  // Mb/s; 0 is the line's
	RPDCETCPG                 int  // 1/1024 of alpha that a period leaves
	RPDCETCPRTT               int  // microseconds of such a period
	RPRateReduceMonitorPeriod int  // microseconds between cuts
	RPInitialAlphaValue       int  // 1/1024
	RPGD                      int  // log2 of what alpha, in 1/1024, is divided by for a cut

	NPEnable             bool   // marked packets make notifications
	NPMinTimeBetweenCNPs int    // microseconds
	NPCNPPacing          string // what that is for: qp, destination or port
	NPCNPDSCP            int
	NPCNPPrio            int // service level, 0 to 7

	// RoCESlowRestart makes losses count as congestion, as in ConnectX-5 and 6:
	// who reports a gap sends a notification too, and who is told of one cuts its
	// rate (Lumina, SIGCOMM 2023, on NACK-triggered CNPs). Hardware has it on. Here it
	// is off: on a path that loses at random, 1 % say, it costs 40 % of the rate, and a
	// host's receive buffer is such a path.
	RoCESlowRestart bool

	SwiftBaseTarget int // microseconds of delay that are aimed at
	SwiftAI         int // 1/100 packets that the window grows by in a round trip
	SwiftBeta       int // percent that it shrinks in proportion to the delay beyond that
	SwiftMaxMDF     int // percent that it shrinks at most
}

// Default returns the configuration of a device that is given none: DCQCN with the
// parameters of profile mlx5, but for RoCESlowRestart.
func Default() Config {
	return Config{
		Algorithm: AlgDCQCN, WindowInitial: 32, WindowCNP: true,
		RPEnable: true, NPEnable: true, NPCNPPacing: PacingQP, NPCNPDSCP: 48, NPCNPPrio: 6, NPMinTimeBetweenCNPs: 4,
		RPClampTgtRateATI: true, RPTimeReset: 300, RPByteReset: 32767, RPThreshold: 1, RPAIRate: 5, RPHAIRate: 50, RPMinDecFac: 50, RPMinRate: 1,
		RPDCETCPG: 1019, RPDCETCPRTT: 1, RPRateReduceMonitorPeriod: 4, RPInitialAlphaValue: 1023, RPGD: 11,
		SwiftBaseTarget: 200, SwiftAI: 100, SwiftBeta: 80, SwiftMaxMDF: 50,
	}
}

// Profiles are the sets of DCQCN parameters that SetProfile knows.
var Profiles = []string{"mlx5", "paper", "ns3", "slow"}

// SetProfile sets the parameters of DCQCN, at both points, to a set that is known
// by name:
//
//   - mlx5: a ConnectX's defaults;
//   - paper: those of Zhu et al., "Congestion Control for Large-Scale RDMA
//     Deployments", SIGCOMM 2015;
//   - slow: for queue pairs that get some 10 Mb/s to some 100 Mb/s, as behind a
//     bottleneck of software: mlx5's, with times that are a hundred times as long;
//   - ns3: those of the simulator of HPCC's authors and its descendants, but for
//     the packet that they bound a cut by.
func (c *Config) SetProfile(name string) error {
	d := Default()
	switch name {
	case "mlx5":
	case "paper":
		d.RPClampTgtRate, d.RPTimeReset, d.RPByteReset, d.RPThreshold, d.RPAIRate, d.RPHAIRate = true, 55, 10_000_000, 5, 40, 400
		d.RPDCETCPG, d.RPDCETCPRTT, d.RPRateReduceMonitorPeriod = 1020, 55, 50
		d.NPMinTimeBetweenCNPs = 50
	case "slow":
		d.RPClampTgtRate, d.RPTimeReset, d.RPByteReset, d.RPHAIRate = true, 5000, 0, 5
		d.RPDCETCPG, d.RPDCETCPRTT = 960, 1000
	case "ns3":
		d.RPTimeReset, d.RPByteReset, d.RPThreshold, d.RPMinRate = 1500, 0, 5, 100
		d.RPDCETCPG, d.RPDCETCPRTT = 960, 55
	default:
		return fmt.Errorf("profile %q: there are %s", name, strings.Join(Profiles, ", "))
	}
	d.Algorithm, d.Window, d.WindowInitial, d.WindowCNP = AlgDCQCN, c.Window, c.WindowInitial, c.WindowCNP
	d.RPEnable, d.NPEnable, d.NPCNPPacing, d.RoCESlowRestart = c.RPEnable, c.NPEnable, c.NPCNPPacing, c.RoCESlowRestart
	d.SwiftBaseTarget, d.SwiftAI, d.SwiftBeta, d.SwiftMaxMDF = c.SwiftBaseTarget, c.SwiftAI, c.SwiftBeta, c.SwiftMaxMDF
	*c = d
	return nil
}

// Check returns an error that names the first parameter that is out of its range,
// the range and its unit.
func (c *Config) Check() error {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.number != nil:
			if v := *f.number(c); v < f.Low || v > f.High {
				return f.outOfRange(fmt.Sprint(v))
			}
		case f.choice != nil:
			if !slices.Contains(f.Of, *f.choice(c)) {
				return f.outOfRange(*f.choice(c))
			}
		}
	}
	if c.RPMaxRate != 0 && c.RPMaxRate < c.RPMinRate {
		return fmt.Errorf("rp_min_rate of %d Mb/s is above rp_max_rate of %d Mb/s", c.RPMinRate, c.RPMaxRate)
	}
	return nil
}

// Reacts reports whether what is sent is to be marked on congestion, ECT(0), since
// the sender heeds that.
func (c *Config) Reacts() bool { return c.Algorithm == AlgDCQCN && c.RPEnable }

// New returns a controller that goes by a configuration which Check has passed, and
// which it keeps.
func New(c *Config) Controller {
	switch c.Algorithm {
	case AlgNone:
		return new(Adaptive)
	case AlgWindow:
		return NewFixed(c.Window)
	case AlgSwift:
		return NewSwift(c)
	}
	return NewDCQCN(c)
}
