package script

import (
	"slices"
	"strings"

	"github.com/gorxe/gorxe/verbs"
)

// Window is a memory window that is to be allocated.
type Window struct {
	Name    string
	Type    verbs.MWType
	Foreign bool // of another protection domain than the queue pair's

	// The Maker's: the key, which the script's binds change, and how to
	// deallocate the window.
	Key      uint32
	Withdraw func() error
}

// next is the window's key n binds later, or earlier.
func (w *Window) next(n uint64) uint32 { return w.Key&^0xff | (w.Key+uint32(n))&0xff }

// window is the header that declares one.
func (c *parser) window(a *args) {
	w := Window{Name: a.next("the window's name"), Type: verbs.MWType(a.count("type", 2, 2)), Foreign: a.flag("foreign")}
	switch {
	case strings.ContainsAny(w.Name, "+-:,0123456789"):
		a.fail("%s: a window's name is letters", w.Name)
	case w.Type == 0:
		a.fail("type=0: there are windows of type 1 and 2")
	case c.hasWindow(w.Name) || c.hasRegion(w.Name):
		a.fail("there is a region or window %s already", w.Name)
	}
	c.s.windows = append(c.s.windows, w)
}

func (c *parser) hasWindow(name string) bool {
	return slices.ContainsFunc(c.s.windows, func(o Window) bool { return o.Name == name })
}

// needKey complains of a key of a region or window that there is not.
func (c *parser) needKey(a *args, p place) {
	if !c.hasWindow(p.region) {
		c.needRegion(a, p)
	}
}

// bind takes the fields of a BIND_MW: the window, or a key that is none, its
// next key if it is not the one after, and what it is to be bound to.
func (c *parser) bind(a *args) func(r *runner) verbs.Bind {
	win := c.place(a, "window", c.needKey)
	newKey := c.place(a, "newkey", c.needKey)
	at := c.place(a, "at", c.needRegion)
	lkey := c.place(a, "lkey", c.needKey)
	if lkey == (place{}) {
		lkey.region = at.region
	}
	n, _ := a.num("size", 64)
	b := verbs.Bind{Length: n}
	if s, ok := a.str("access"); ok {
		b.Access = parseAccess(a, s)
	}
	return func(r *runner) verbs.Bind {
		b := b
		b.Key, b.LKey, b.Addr = r.key(win), r.key(lkey), r.addr(at)
		if b.NewKey = verbs.NextRKey(b.Key); newKey != (place{}) {
			b.NewKey = r.key(newKey)
		}
		return b
	}
}

// place takes a place or key; need complains of one that there is not.
func (c *parser) place(a *args, key string, need func(*args, place)) (p place) {
	if s, ok := a.str(key); ok {
		var err error
		if p, err = parsePlace(s); err != nil {
			a.fail("%s: %v", key, err)
		}
		need(a, p)
	}
	return p
}

// bound notes the key that a bind which was posted gave its window, as a program
// does.
func (r *runner) bound(b verbs.Bind) {
	for _, w := range r.windows {
		if w.Key == b.Key {
			w.Key = b.NewKey
		}
	}
}
