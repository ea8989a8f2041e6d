package oob

// Which steps each program has and when: the order of calls in main() of
// send_bw.c and its seven siblings, which is the same from 5.70 to 6.29, and of
// the transcripts in testdata. Steps that only tell the two ends where the
// other is exchange the address of the first queue pair.

// addresses returns the indexes that Exchange goes through. The latency tools
// that poll memory or send requests to a passive end begin with one for luck.
func (cfg *Config) addresses() []int {
	switch cfg.Kind {
	case WriteLat, ReadLat, AtomicLat:
		return append([]int{0}, cfg.each()...)
	}
	return cfg.each()
}

// connected returns the indexes that Connected goes through. SEND first makes
// sure that both ends are in RTS, the others last.
func (cfg *Config) connected() []int {
	if cfg.Kind == SendBW {
		return append([]int{0}, cfg.each()...)
	}
	return append(cfg.each(), 0)
}

func (cfg *Config) each() []int {
	all := make([]int, cfg.QPs, cfg.QPs+1)
	for i := range all {
		all[i] = i
	}
	return all
}

// messages reports whether the responder has to post receive requests.
func (cfg *Config) messages() bool { return cfg.Kind.Send() || cfg.WriteImm }

// beginSync reports whether both ends wait for each other before each run.
func (cfg *Config) beginSync() bool {
	return cfg.messages() || cfg.Both && !cfg.Infinite
}

// endReport reports whether results are exchanged after each run. A responder
// that takes messages for a duration counts them by its own clock, and so is
// not asked.
func (cfg *Config) endReport() bool {
	return cfg.Both && !cfg.Infinite && !(cfg.messages() && cfg.Duration)
}

// endSync reports whether both ends wait for each other after each run, and
// whether they do before results are exchanged.
func (cfg *Config) endSync() (sync, before bool) {
	switch {
	case cfg.Kind.Latency() || cfg.Infinite:
		return false, false
	case cfg.Kind == SendBW:
		return cfg.All, false
	case cfg.All:
		return cfg.Both || cfg.WriteImm, true
	}
	return cfg.Both && cfg.Validation, true
}

// finishReport reports whether the client tells its result at the very end.
func (cfg *Config) finishReport() bool {
	return !cfg.Kind.Latency() && !cfg.Both && !cfg.messages()
}

// finishSync reports whether both ends wait for each other before they hang
// up: in write_lat they do not.
func (cfg *Config) finishSync() bool { return cfg.Kind != WriteLat }

// Passive reports whether this end only serves its memory: it goes from
// Connected to Finish without runs. Servers of WRITE, READ and atomics do,
// unless the test is bidirectional; in write_lat both ends run.
func (cfg *Config) Passive() bool {
	return cfg.Server && !cfg.Both && !cfg.messages() && cfg.Kind != WriteLat
}

var firstQP = []int{0}
