package oob

import "fmt"

// stage is how far a conversation is.
type stage uint8

const (
	opened    stage = iota // Hello is next
	greeted                // Exchange
	exchanged              // Connected
	running                // Begin, End, Finish; from here on the peer may be busy
	closed
)

func (c *Conn) enter(call string, want stage) error {
	if c.stage != want {
		return fmt.Errorf("oob: %s out of order", call)
	}
	return nil
}

// Exchange tells the peer the addresses of local queue pairs, one for each of
// Config.QPs, and returns the peer's. The queue pairs are connected next.
func (c *Conn) Exchange(local []Dest) ([]Dest, error) {
	if err := c.enter("Exchange", greeted); err != nil {
		return nil, err
	}
	if len(local) != c.cfg.QPs {
		return nil, fmt.Errorf("oob: %d addresses for %d queue pairs", len(local), c.cfg.QPs)
	}
	c.local = append([]Dest(nil), local...)
	c.remote = make([]Dest, len(local))
	for _, i := range c.cfg.addresses() {
		d, err := c.address(i)
		if err != nil {
			return nil, err
		}
		if err := c.checkDest(&d, &local[i]); err != nil {
			return nil, err
		}
		c.remote[i] = d
	}
	c.stage = exchanged
	return append([]Dest(nil), c.remote...), nil
}

// Connected tells the peer that the queue pairs are in RTS, and waits until
// its own are.
func (c *Conn) Connected() error {
	if err := c.enter("Connected", exchanged); err != nil {
		return err
	}
	if err := c.again(c.cfg.connected()); err != nil {
		return err
	}
	c.stage = running
	return nil
}

// Passive reports whether this end only serves its memory, see
// [Config.Passive].
func (c *Conn) Passive() bool { return c.cfg.Passive() }

// Begin comes before each run, with receive requests posted; where the tool
// has it, it returns when both ends are there.
func (c *Conn) Begin() error {
	if err := c.enter("Begin", running); err != nil {
		return err
	}
	if c.cfg.beginSync() {
		if err := c.again(firstQP); err != nil {
			return err
		}
	}
	c.begun = true
	return nil
}

// End comes after each run, with its result, which latency tools leave zero.
// The peer's is in remote if told is true, as it is of bidirectional tests but
// SEND's with a duration. An error that is an ErrMismatch with told true says
// that the results are of different runs; the conversation can still go on.
func (c *Conn) End(local BWReport) (remote BWReport, told bool, err error) {
	if err := c.enter("End", running); err != nil {
		return BWReport{}, false, err
	}
	c.begun = false
	sync, before := c.cfg.endSync()
	if sync && before {
		if err := c.again(firstQP); err != nil {
			return BWReport{}, false, err
		}
	}
	if c.cfg.endReport() {
		if remote, told, err = c.report(local, true); err != nil && !told {
			return BWReport{}, false, err
		}
	}
	if sync && !before {
		if err := c.again(firstQP); err != nil {
			return remote, told, err
		}
	}
	return remote, told, err
}

// Finish comes once, with the last result, and hangs up whatever happens. It
// may take the place of the last End, where that tells no result. A passive end
// calls it right after Connected: it returns when the client is done, with the
// client's result, but not that of a client with --run_infinitely, which
// perftest has none of.
func (c *Conn) Finish(local BWReport) (remote BWReport, told bool, err error) {
	if err := c.enter("Finish", running); err != nil {
		return BWReport{}, false, err
	}
	defer c.Close()
	if c.begun {
		if remote, told, err = c.End(local); err != nil {
			return remote, told, err
		}
	}
	var differ error
	if c.cfg.finishReport() {
		if err := c.again(firstQP); err != nil {
			return BWReport{}, false, err
		}
		if remote, told, differ = c.report(local, c.cfg.Server && !c.cfg.Infinite); differ != nil && !told {
			return BWReport{}, false, differ
		}
	}
	if c.cfg.finishSync() {
		if err := c.again(firstQP); err != nil {
			return remote, told, err
		}
	}
	c.hangUp()
	return remote, told, differ
}

// again exchanges addresses that both ends know already, those with the
// indexes: perftest's way to wait for each other.
func (c *Conn) again(indexes []int) error {
	for _, i := range indexes {
		d, err := c.address(i)
		if err != nil {
			return err
		}
		if !c.told(&d) {
			return fmt.Errorf("%w: the peer now names queue pair %#06x, which it had not told before; give both the same -q, and both or neither -b", ErrMismatch, d.QPN)
		}
	}
	return nil
}

func (c *Conn) told(d *Dest) bool {
	for i := range c.remote {
		if c.remote[i] == *d {
			return true
		}
	}
	return false
}

// address exchanges the address of a queue pair.
func (c *Conn) address(i int) (Dest, error) {
	var buf [destLenMax]byte
	in, err := c.step("exchanging addresses", appendDest(buf[:0], &c.local[i], c.cfg.Validation), c.lookDest)
	if err != nil {
		return Dest{}, err
	}
	d, ok := parseDest(in, c.cfg.Validation)
	if !ok {
		return Dest{}, fmt.Errorf("%w: the peer sent %q, which is no perftest address; does it use --data_validation or another option that this side does not?", ErrProtocol, in)
	}
	return d, nil
}

// lookDest refuses what cannot become an address.
func (c *Conn) lookDest(b []byte) error {
	switch {
	case c.stage >= running && b[0] == 0:
		return fmt.Errorf("%w: the peer sent %q where an address was due, perhaps a result: give both or neither of them -b, -a, -D and --run_infinitely", ErrMismatch, b)
	case len(b) == destLenShort && b[destLenShort-1] == 0:
		return fmt.Errorf("%w: the peer sent an address without GID, as on InfiniBand: start it with the index of a RoCE v2 GID (-x; show_gids lists them)", ErrMismatch)
	}
	return nil
}
