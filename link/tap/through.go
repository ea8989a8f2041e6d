package tap

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/link"
)

// through is all of a link that goes to another one unchanged.
type through struct {
	inner link.Link
	info  link.Info
}

// Info is that of the inner link.
func (l *through) Info() link.Info { return l.info }

// Unwrap returns the inner link.
func (l *through) Unwrap() link.Link { return l.inner }

// Wait waits on the inner link.
func (l *through) Wait(d time.Duration) error { return l.inner.Wait(d) }

// Wake wakes the inner link.
func (l *through) Wake() { l.inner.Wake() }

// ResolvePort asks the inner link, or returns want.
func (l *through) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	if r, ok := l.inner.(link.PortResolver); ok {
		return r.ResolvePort(src, want)
	}
	return want, nil
}

// JoinGroup asks the inner link; errors.ErrUnsupported of one that has no
// groups.
func (l *through) JoinGroup(group netip.Addr) error {
	if j, ok := l.inner.(link.GroupJoiner); ok {
		return j.JoinGroup(group)
	}
	return l.noGroups()
}

// LeaveGroup asks the inner link.
func (l *through) LeaveGroup(group netip.Addr) error {
	if j, ok := l.inner.(link.GroupJoiner); ok {
		return j.LeaveGroup(group)
	}
	return l.noGroups()
}

func (l *through) noGroups() error {
	return fmt.Errorf("tap: the link %s receives no multicast: %w", l.info.Name, errors.ErrUnsupported)
}

// Stats returns the inner link's counters.
func (l *through) Stats() link.Stats {
	if r, ok := l.inner.(link.StatsReader); ok {
		return r.Stats()
	}
	return link.Stats{}
}
