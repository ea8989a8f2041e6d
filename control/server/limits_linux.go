package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// Limits bound what clients make. 0 is the default.
type Limits struct {
	QPs, CQs, MRs, MWs, PDs, SRQs, AHs int
	CQEs                               int   // completions that all queues have room for
	Groups                             int   // attachments to multicast groups
	Bytes                              int64 // of memory regions and rings
	Clients                            int   // of the device; means nothing for one client
}

// DefaultPerClient is what one client may make, and DefaultDevice what all may,
// where nothing else is said; of octets half of the system's memory, if that is
// less.
var (
	DefaultPerClient = Limits{QPs: 4096, CQs: 4096, MRs: 16384, MWs: 16384, PDs: 1024, SRQs: 1024, AHs: 65536, CQEs: 4 << 20, Groups: 256, Bytes: 4 << 30}
	DefaultDevice    = Limits{QPs: 65536, CQs: 32768, MRs: 262144, MWs: 262144, PDs: 16384, SRQs: 16384, AHs: 524288, CQEs: 32 << 20, Groups: 1024, Bytes: 16 << 30, Clients: 256}
)

// or fills in what is 0.
func (l Limits) or(d Limits) Limits {
	for i, f := range l.fields() {
		if *f.v == 0 {
			*f.v = *d.fields()[i].v
		}
	}
	if l.Bytes == 0 {
		l.Bytes = d.Bytes
		if half := sys.TotalMemory() / 2; half > 0 {
			l.Bytes = min(l.Bytes, half)
		}
	}
	return l
}

// Keep returns l with was in the place of each limit that is as it is now: what does
// not change stays as it was said, 0 for a default.
func (l Limits) Keep(now, was Limits) Limits {
	n, w := now.fields(), was.fields()
	for i, f := range l.fields() {
		if *f.v == *n[i].v {
			*f.v = *w[i].v
		}
	}
	if l.Bytes == now.Bytes {
		l.Bytes = was.Bytes
	}
	return l
}

type limitField struct {
	name string
	v    *int
}

func (l *Limits) fields() []limitField {
	return []limitField{
		{"qps", &l.QPs},
		{"cqs", &l.CQs},
		{"mrs", &l.MRs},
		{"mws", &l.MWs},
		{"pds", &l.PDs},
		{"srqs", &l.SRQs},
		{"ahs", &l.AHs},
		{"cqes", &l.CQEs},
		{"groups", &l.Groups},
		{"clients", &l.Clients},
	}
}

// resource is what a limit is of.
type resource int

const (
	resQP resource = iota
	resCQ
	resMR
	resMW
	resPD
	resSRQ
	resAH
	resCQE
	resGroup
	resBytes
	resources
)

// usage is how much there is of each.
type usage [resources]int64

var resourceInfo = [resources]struct {
	key, plural string
	of          func(*Limits) int64
	advice      string
}{
	resQP:    {"qps", "queue pairs", func(l *Limits) int64 { return int64(l.QPs) }, "let several peers share queue pairs: UD instead of a connection each, an SRQ for what they receive, or fewer connections for each program"},
	resCQ:    {"cqs", "completion queues", func(l *Limits) int64 { return int64(l.CQs) }, "let queue pairs share completion queues"},
	resMR:    {"mrs", "memory regions", func(l *Limits) int64 { return int64(l.MRs) }, "register fewer, larger regions"},
	resMW:    {"mws", "memory windows", func(l *Limits) int64 { return int64(l.MWs) }, "deallocate some"},
	resPD:    {"pds", "protection domains", func(l *Limits) int64 { return int64(l.PDs) }, "share one"},
	resSRQ:   {"srqs", "shared receive queues", func(l *Limits) int64 { return int64(l.SRQs) }, "let more queue pairs share each"},
	resAH:    {"ahs", "address handles", func(l *Limits) int64 { return int64(l.AHs) }, "keep one for each destination, and destroy what is not used"},
	resCQE:   {"cqes", "completion queue entries", func(l *Limits) int64 { return int64(l.CQEs) }, "make completion queues no deeper than what is outstanding"},
	resGroup: {"groups", "multicast attachments", func(l *Limits) int64 { return int64(l.Groups) }, "detach some"},
	resBytes: {"bytes", "octets of shared memory", func(l *Limits) int64 { return l.Bytes }, "deregister regions, or make rings and regions smaller"},
}

// take claims resources for a client, all or none. The error says who holds how
// many, and what to do.
func (s *Server) take(c *client, want usage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range resources {
		if want[r] == 0 {
			continue
		}
		if per := resourceInfo[r].of(&s.perClient); c.held[r]+want[r] > per {
			return s.limitError(c, r, want[r], per, "a client")
		}
		if all := resourceInfo[r].of(&s.device); s.held[r]+want[r] > all {
			return s.limitError(c, r, want[r], all, "the device")
		}
	}
	for r := range resources {
		c.held[r] += want[r]
		s.held[r] += want[r]
	}
	return nil
}

func (s *Server) give(c *client, back usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range resources {
		c.held[r] -= back[r]
		s.held[r] -= back[r]
	}
}

// limitError is called with s.mu held.
func (s *Server) limitError(c *client, r resource, want, limit int64, whose string) error {
	i := resourceInfo[r]
	key := "total." + i.key
	if whose == "a client" {
		key = "per_client." + i.key
	}
	return fmt.Errorf("%w: %d more %s on %s: %s may have %d (%s in rxed's configuration), and %s; %s",
		verbs.ErrLimit, want, i.plural, s.name, whose, limit, key, s.holders(c, r), i.advice)
}

// holders says who has how many of something: the asking client, and the three
// that have most.
func (s *Server) holders(asking *client, r resource) string {
	var all []*client
	for _, c := range s.clients {
		if c.held[r] > 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *client) int {
		if a.held[r] != b.held[r] {
			return int(min(max(b.held[r]-a.held[r], -1), 1))
		}
		return int(a.id) - int(b.id)
	})
	const shown = 3
	words := make([]string, 0, shown+1)
	for i, c := range all {
		switch {
		case c == asking:
			words = append(words, fmt.Sprintf("this one (%s) holds %d", c.who(), c.held[r]))
		case i < shown:
			words = append(words, fmt.Sprintf("%s holds %d", c.who(), c.held[r]))
		}
	}
	if len(words) == 0 {
		return "none is held"
	}
	if n := len(all) - len(words); n > 0 {
		words = append(words, fmt.Sprintf("%d others the rest of %d", n, s.held[r]))
	}
	return strings.Join(words, ", ")
}
