package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"github.com/gorxe/gorxe/internal/sys"
)

// needed are the capabilities that the links of open devices go on needing.
//
//	udp     none: what sockets want (a receive buffer beyond net.core.rmem_max, a
//	        priority) they were given when they were opened
//	packet  CAP_NET_RAW, to open its packet sockets again when the interface
//	        comes back
//	xdp     CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, for the same with its program
//	        and AF_XDP sockets
func needed(links []string) (keep sys.Caps) {
	for _, l := range links {
		switch l {
		case "packet":
			keep |= sys.CapNetRaw
		case "xdp":
			keep |= sys.CapNetRaw | sys.CapNetAdmin | sys.CapBPF
		}
	}
	return keep
}

// identity is whom Process says to become.
func (p *Process) identity() (r sys.Privileges, err error) {
	r = sys.Privileges{UID: -1, GID: -1}
	if p.User == "" && p.Group == "" {
		return r, nil
	}
	if p.User != "" {
		uid, err := userID(p.User)
		if err != nil {
			return r, err
		}
		r.UID = int(uid)
		u, err := user.LookupId(strconv.Itoa(r.UID))
		if err == nil {
			r.GID, _ = strconv.Atoi(u.Gid)
			groups, _ := u.GroupIds()
			for _, g := range groups {
				if n, err := strconv.Atoi(g); err == nil {
					r.Groups = append(r.Groups, n)
				}
			}
		} else if p.Group == "" {
			return r, fmt.Errorf("user %s has no entry in /etc/passwd that tells its group: say process.group too", p.User)
		}
	}
	if p.Group != "" {
		gid, err := groupID(p.Group)
		if err != nil {
			return r, err
		}
		r.GID = int(gid)
	}
	return r, nil
}

// giveUp leaves the process with what it needs from now on. Nothing brings the rest
// back.
func (p *Process) giveUp(links []string, log *slog.Logger) error {
	r, err := p.identity()
	if err != nil {
		return err
	}
	if r.UID == os.Getuid() && (r.GID < 0 || r.GID == os.Getgid()) {
		r.UID, r.GID = -1, -1 // it is already, as under a unit with User=
	}
	r.Keep = needed(links)
	left, err := sys.Restrict(r)
	if errors.Is(err, sys.ErrThreads) {
		log.Warn("rights were not given up", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("rights cannot be given up: %w", err)
	}
	for _, l := range left {
		log.Debug(l)
	}
	filter := "off"
	if p.Seccomp != SeccompOff {
		policy := sys.NICCalls(r.Keep != 0)
		if p.Seccomp == SeccompKill {
			policy.Default = sys.VerdictKill
		}
		switch err := policy.Install(); {
		case errors.Is(err, sys.ErrNoSeccomp):
			log.Warn("no filter of system calls", "err", err)
		case err != nil:
			return fmt.Errorf(`no filter of system calls: %w; process.seccomp = "off" does without`, err)
		default:
			filter = p.Seccomp
		}
	}
	have, err := sys.Effective()
	if err != nil {
		return err
	}
	log.Info("rights given up", "capabilities", have.String(), "uid", os.Getuid(), "gid", os.Getgid(), "seccomp", filter)
	return nil
}
