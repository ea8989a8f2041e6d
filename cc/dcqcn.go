package cc

// DCQCN is the reaction point of Zhu et al., "Congestion Control for Large-Scale
// RDMA Deployments", SIGCOMM 2015, with the parameters that mlx5 gives it.
//
//	      first CNP                      rate back at the line's
//	full -----------> limited: CNP: cut ------------------------> full
//	                           else: fast recovery, then additive, then hyper increase
//
// Without congestion there is no limit and nothing to do. Time is evaluated when
// somebody asks, in closed form: no timer runs.
//
// What differs from a NIC: a cut is made at once and not at the beginning of the
// next monitor period; and there is a window, which begins small and heeds losses
// and notifications, where the configuration does not say otherwise.
type DCQCN struct {
	heedful
	c    *Config
	path Path

	on     bool    // there is a limit
	rate   float64 // bits a second
	target float64
	alpha  float64
	since  int64 // when the present period of alpha began
	marked bool  // a CNP came in it

	cutAt        int64
	timer        int64 // when the timer last increased the rate, or a cut was made
	octets       int   // since the octets last did, or a cut was made
	times, bytes int   // how often each has since the last cut
	restart      bool  // a loss has begun a time of slow restart
}

// NewDCQCN returns a controller with the parameters of a configuration that
// Check has passed.
func NewDCQCN(c *Config) *DCQCN { return &DCQCN{c: c} }

// Start begins without a limit of the rate, and with a small window.
func (d *DCQCN) Start(now int64, p Path) {
	*d = DCQCN{c: d.c, path: p}
	d.Adaptive.Start(now, p)
	d.bound()
	if w := d.c.WindowInitial << 10; w > 0 {
		d.begin(w / max(1, p.MTU))
	}
}

// Configure takes other parameters. What they say of a beginning is for the next.
// Where CNPs do not slow it down any more, those that came do not either.
func (d *DCQCN) Configure(now int64, c *Config) {
	d.advance(now)
	d.c = c
	d.bound()
	if !c.RPEnable {
		d.on, d.restart = false, false
	}
	if d.on {
		d.rate, d.target = d.clamp(d.rate), d.clamp(d.target)
	}
}

// bound has the window heed Config.Window.
func (d *DCQCN) bound() {
	if d.limit = d.path.Limit; d.c.Window != 0 {
		d.limit = min(d.limit, d.c.Window)
	}
	d.window = min(d.window, d.limit)
}

const mbit = 1e6

func (d *DCQCN) line() float64 {
	line := d.path.Line
	if m := int64(d.c.RPMaxRate) * mbit; m != 0 && (m < line || line == 0) {
		line = m
	} else if line == 0 {
		line = DefaultLine
	}
	return float64(max(line, int64(d.c.RPMinRate)*mbit))
}

func (d *DCQCN) clamp(r float64) float64 {
	return max(float64(d.c.RPMinRate)*mbit, min(r, d.line()))
}

// Rate returns the limit.
func (d *DCQCN) Rate(now int64) int64 {
	if !d.on {
		if m := d.c.RPMaxRate; m != 0 {
			return int64(m) * mbit
		}
		return 0
	}
	if d.advance(now); !d.on {
		return d.Rate(now)
	}
	return int64(d.rate)
}

// OnSent counts octets.
func (d *DCQCN) OnSent(now int64, octets int) {
	if !d.on || d.c.RPByteReset == 0 {
		return
	}
	d.advance(now)
	for d.octets += octets; d.on && d.octets >= d.c.RPByteReset; {
		d.octets -= d.c.RPByteReset
		d.bytes++
		d.increase()
	}
}

// OnCNP cuts the rate.
func (d *DCQCN) OnCNP(now int64) {
	if !d.c.RPEnable {
		return
	}
	d.tell()
	d.cut(now)
}

// tell has the window heed a notification, or at least not grow.
func (d *DCQCN) tell() {
	if d.c.WindowCNP {
		d.heedful.tell()
	} else {
		d.hold()
	}
}

// OnMark has the window heed what this end asks for, and meets congestion; its peer
// is told.
func (d *DCQCN) OnMark(int64) { d.tell() }

// OnLoss makes the window smaller, and a NAK cuts the rate where the configuration
// says so.
func (d *DCQCN) OnLoss(now int64, why Loss) Reaction {
	d.Adaptive.OnLoss(now, why)
	if why != LossNAK || !d.c.RoCESlowRestart || !d.c.RPEnable {
		return TakenForLoss
	}
	d.advance(now)
	again := d.restart
	d.restart = true
	if d.cut(now); again {
		return SlowRestart
	}
	return SlowRestartBegins
}

func (d *DCQCN) cut(now int64) {
	if d.advance(now); !d.on {
		*d = DCQCN{
			heedful: d.heedful, c: d.c, path: d.path, restart: d.restart, on: true, rate: d.line(),
			alpha: float64(d.c.RPInitialAlphaValue) / 1024, since: now, cutAt: now - int64(d.c.RPRateReduceMonitorPeriod)*1000,
		}
		if r := d.c.RPRateToSetOnFirstCNP; r != 0 {
			d.rate = d.clamp(float64(r) * mbit)
		}
		d.target = d.rate
	}
	d.marked = true
	if now-d.cutAt < int64(d.c.RPRateReduceMonitorPeriod)*1000 {
		return
	}
	if d.c.RPClampTgtRate || d.bytes > 0 || d.times > 0 && d.c.RPClampTgtRateATI {
		d.target = d.rate
	}
	left := max(1-d.alpha*1024/float64(int(1)<<d.c.RPGD), float64(d.c.RPMinDecFac)/100)
	d.rate = d.clamp(d.rate * left)
	d.target = max(d.target, d.rate)
	d.cutAt, d.timer = now, now
	d.octets, d.times, d.bytes = 0, 0, 0
}

// advance brings alpha and the timer to the present.
func (d *DCQCN) advance(now int64) {
	if !d.on {
		return
	}
	d.decay(now)
	period := int64(d.c.RPTimeReset) * 1000
	n := (now - d.timer) / period
	if n <= 0 {
		return
	}
	d.timer += n * period
	for ; n > 0 && d.on; n-- {
		if d.times > d.c.RPThreshold+settled && d.bytes <= d.c.RPThreshold {
			n -= d.grow(n - 1)
		}
		d.times++
		d.increase()
	}
}

// decay evaluates alpha: a period with a CNP moves it towards 1, one without
// towards 0, by 1-g each.
func (d *DCQCN) decay(now int64) {
	period := int64(d.c.RPDCETCPRTT) * 1000
	n := (now - d.since) / period
	if n <= 0 {
		return
	}
	d.since += n * period
	g := float64(d.c.RPDCETCPG) / 1024
	if d.marked {
		d.marked = false
		d.alpha = 1 - float64(g*(1-d.alpha))
		n--
	}
	d.alpha *= power(g, n)
}

// power returns g to the n-th, 0 < g < 1.
func power(g float64, n int64) float64 {
	r := 1.0
	for ; n > 0 && r > 0; n >>= 1 {
		if n&1 != 0 {
			r *= g
		}
		g *= g
	}
	return r
}

// increase is one of the timer's or of the octets'. Fast recovery brings the rate
// halfway to the target, the later stages move that first. Without a count of
// octets the timer alone decides about the hyper increase.
func (d *DCQCN) increase() {
	switch f := d.c.RPThreshold; {
	case max(d.times, d.bytes) <= f:
	case d.times > f && (d.bytes > f || d.c.RPByteReset == 0 && d.times > f+1):
		d.target += float64(d.c.RPHAIRate) * mbit
	default:
		d.target += float64(d.c.RPAIRate) * mbit
	}
	d.target = min(d.target, d.line())
	d.rate += float64(d.target-d.rate) / 2
	d.release()
}

// settled is after how many increases the rate follows the target at a distance
// of one step.
const settled = 64

// grow makes at most n increases by the timer alone at once, as many as leave the
// target below the line, and returns how many.
func (d *DCQCN) grow(n int64) int64 {
	step := float64(d.c.RPAIRate) * mbit
	if d.c.RPByteReset == 0 {
		step = float64(d.c.RPHAIRate) * mbit
	}
	n = min(n, int64((d.line()-d.target)/step)-1, 1<<30)
	if n <= 0 {
		return 0
	}
	d.target += float64(step * float64(n))
	d.rate = d.target - step
	d.times += int(n)
	return n
}

// release ends the limit when the rate is as good as the line's.
func (d *DCQCN) release() {
	if d.rate >= d.line()*(1-1.0/1024) {
		d.on, d.restart = false, false
	}
}

// State says how fast it is, and why.
func (d *DCQCN) State(now int64) State {
	r := d.Rate(now)
	s := State{Rate: r, Window: d.Adaptive.Window(now), Limited: d.on}
	if d.on {
		s.Target, s.Alpha = int64(d.target), d.alpha
	}
	return s
}
