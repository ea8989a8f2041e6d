package relay

const depthBuckets = 1024

// depth is how many octets a queue holds, and over a time how many it held.
type depth struct {
	octets int
	since  int64 // when it became so
	step   int   // octets of a bucket

	begin int64
	area  float64 // octets times nanoseconds
	max   int
	time  [depthBuckets]int64 // nanoseconds, by octets/step
}

// init sets the highest depth.
func (d *depth) init(now int64, most int) {
	d.since, d.begin, d.step = now, now, max(1, (most+depthBuckets-1)/(depthBuckets-1))
}

// add changes the depth at a time that is not before the last.
func (d *depth) add(now int64, octets int) {
	d.until(now)
	d.octets += octets
	d.max = max(d.max, d.octets)
}

func (d *depth) until(now int64) {
	if now <= d.since {
		return
	}
	d.area += float64(d.octets) * float64(now-d.since)
	d.time[min(d.octets/d.step, depthBuckets-1)] += now - d.since
	d.since = now
}

// Queue is what a queue held over a time, in octets: its mean, what it did not exceed
// in 99 % of the time, to 0.1 % of the buffer, and the most.
type Queue struct {
	Mean float64 `json:"mean"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
}

// read says what the queue held, and how long that was.
func (d *depth) read(now int64) Queue {
	d.until(now)
	q := Queue{Max: d.max}
	total := d.since - d.begin
	if total <= 0 {
		return q
	}
	q.Mean = d.area / float64(total)
	left := total / 100 // time at which it may be longer
	i := depthBuckets - 1
	for ; i > 0 && d.time[i] <= left; i-- {
		left -= d.time[i]
	}
	if i > 0 { // the first bucket is an empty queue, or nearly
		q.P99 = min(d.max, (i+1)*d.step-1)
	}
	return q
}

// merge adds a later time's to d.
func (d *depth) merge(later *depth) {
	d.area += later.area
	d.max = max(d.max, later.max)
	d.since, d.octets = later.since, later.octets
	for i, t := range later.time {
		d.time[i] += t
	}
}

// restart begins anew.
func (d *depth) restart() {
	*d = depth{octets: d.octets, since: d.since, begin: d.since, step: d.step, max: d.octets}
}

// lateness is by how much packets were late.
type lateness struct{ sum, max, n int64 }

func (l *lateness) add(by int64) {
	l.n++
	l.sum += max(0, by)
	l.max = max(l.max, by)
}

func (l *lateness) merge(m *lateness) {
	l.n, l.sum, l.max = l.n+m.n, l.sum+m.sum, max(l.max, m.max)
}

func (l *lateness) read() Late {
	if l.n == 0 {
		return Late{}
	}
	return Late{Mean: float64(l.sum) / float64(l.n), Max: l.max}
}
