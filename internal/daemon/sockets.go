package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// socket is a unix socket that the daemon listens on, and its file.
type socket struct {
	*net.UnixListener
	path  string
	made  os.FileInfo // the file as it was made; nil when somebody passed the socket on
	stale bool        // a file of a daemon that is no more was replaced
}

// ErrTaken: another process listens on a socket.
var ErrTaken = errors.New("another process serves it")

// listen makes a socket of a network ("unix" or "unixpacket") and its file, with
// the rights given from the first moment on. A file that nobody listens on any more
// is replaced; whether that is so is found by connecting. A lock on the folder keeps
// two daemons that start at once from doing so at the same time.
func listen(network, path string, mode fs.FileMode, gid int) (s *socket, err error) {
	dir := filepath.Dir(path)
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: there is no folder %s: make it, or name another path (RXED_SOCKET and RXED_ADMIN)", path, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("socket %s: lock %s: %w", path, dir, err)
	}
	s = &socket{path: path}
	if s.stale, err = clearStale(network, path); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o177)
	s.UnixListener, err = net.ListenUnix(network, &net.UnixAddr{Net: network, Name: path})
	syscall.Umask(old)
	if err != nil {
		hint := ""
		if errors.Is(err, os.ErrPermission) {
			hint = "; name a path in a folder that this user may write to, such as $XDG_RUNTIME_DIR"
		}
		return nil, fmt.Errorf("socket %s: %w%s", path, errors.Unwrap(err), hint)
	}
	s.SetUnlinkOnClose(false)
	if s.made, err = os.Lstat(path); err == nil {
		err = s.admit(mode, gid)
	}
	if err != nil {
		s.unlink()
		s.Close()
		return nil, err
	}
	return s, nil
}

// clearStale removes a socket's file that nobody listens on.
func clearStale(network, path string) (was bool, err error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("socket %s: %w", path, err)
	case fi.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("socket %s: a file that is no socket is there; it is left alone: name another path", path)
	}
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Net: network, Name: path})
	if err == nil {
		who := peerOf(c)
		c.Close()
		return false, fmt.Errorf("socket %s: %w%s: stop it, or name another socket", path, ErrTaken, who)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // of another type, full, or not ours to open
		return false, fmt.Errorf("socket %s: %w: it does not answer (%v)", path, ErrTaken, errors.Unwrap(err))
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("socket %s is left from a process that is no more: %w", path, err)
	}
	return true, nil
}

// admit says who may connect: the file's group, and rights.
func (s *socket) admit(mode fs.FileMode, gid int) error {
	if s.made == nil {
		return fmt.Errorf("socket %s was passed on by the service manager, whose SocketMode= and SocketGroup= say who may connect", s.path)
	}
	if gid >= 0 {
		if err := os.Lchown(s.path, -1, gid); err != nil {
			return fmt.Errorf("socket %s: group %d: %w; a process may give its files to groups that it is in", s.path, gid, errors.Unwrap(err))
		}
	}
	if err := os.Chmod(s.path, mode); err != nil {
		return fmt.Errorf("socket %s: %w", s.path, errors.Unwrap(err))
	}
	return nil
}

// unlink removes the socket's file, unless another has taken its place.
func (s *socket) unlink() {
	if s.made == nil {
		return
	}
	if fi, err := os.Lstat(s.path); err == nil && os.SameFile(fi, s.made) {
		_ = os.Remove(s.path)
	}
}

// peerOf names the process at the other end, if it can be seen.
func peerOf(c *net.UnixConn) (who string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	_ = raw.Control(func(fd uintptr) {
		u, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err != nil || u.Pid == 0 {
			return
		}
		who = fmt.Sprintf(", process %d", u.Pid)
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.Pid)); err == nil && len(b) > 0 {
			who += fmt.Sprintf(" (%s)", b[:len(b)-1])
		}
	})
	return who
}
