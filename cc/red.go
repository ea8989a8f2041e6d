package cc

import "fmt"

// RED is what a switch marks packets by: none while its queue is no longer than
// Kmin, all when it is longer than Kmax, and in between with a probability that
// rises from 0 to Pmax. The queue is the present one, as the DCQCN paper has it
// (Zhu et al., SIGCOMM 2015, figure 5), not the average of Floyd and Jacobson.
type RED struct {
	Kmin, Kmax int     // octets in the queue
	Pmax       float64 // 0 to 1
}

// Check returns an error that names the field that is wrong, its range and its unit.
func (r RED) Check() error {
	switch {
	case r.Kmin < 0:
		return fmt.Errorf("kmin of %d: it takes 0 octets or more", r.Kmin)
	case r.Kmax < r.Kmin:
		return fmt.Errorf("kmin of %d is above kmax of %d: kmax takes kmin octets or more", r.Kmin, r.Kmax)
	case !(r.Pmax >= 0 && r.Pmax <= 1):
		return fmt.Errorf("pmax of %v: it takes a probability from 0 to 1", r.Pmax)
	}
	return nil
}

// Probability returns with what probability a packet is marked that leaves, or
// finds, a queue of so many octets.
func (r RED) Probability(queue int) float64 {
	switch {
	case queue <= r.Kmin:
		return 0
	case queue > r.Kmax:
		return 1
	}
	return float64(queue-r.Kmin) / float64(r.Kmax-r.Kmin) * r.Pmax
}
