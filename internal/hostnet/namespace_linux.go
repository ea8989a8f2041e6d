package hostnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// namedNamespaces is where ip-netns(8) keeps the namespaces that have a name.
const namedNamespaces = "/run/netns"

// Namespace is a network namespace with a thread that lives in it: entering one
// takes CAP_SYS_ADMIN, staying in it takes nothing, so it works on after the
// process has given its privileges up.
type Namespace struct {
	name  string
	tid   int // of the thread
	calls chan namespaceCall
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once
}

type namespaceCall struct {
	f    func() error
	err  *error
	done chan struct{}
}

// OpenNamespace enters the network namespace called name, as ip-netns(8) names
// it, or that of a path such as /proc/PID/ns/net. Errors wrap ErrNoNamespace,
// and list those that have a name, or ErrNamespacePrivilege.
func OpenNamespace(name string) (*Namespace, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join(namedNamespaces, name)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("hostnet: %w: %q; %s", ErrNoNamespace, name, existingNamespaces())
	case err != nil:
		return nil, fmt.Errorf("hostnet: network namespace %q: open %s: %w", name, path, err)
	}
	defer unix.Close(fd)
	return enterNamespace(name, fd)
}

// CallerNamespace enters the network namespace of the calling thread, if that is
// another one than the process's; otherwise it returns nil. A thread that is
// locked to its goroutine may have been put into one, as those of tests are.
func CallerNamespace() (*Namespace, error) {
	const path = "/proc/thread-self/ns/net"
	// A goroutine of no thread in particular runs in the process's own. The first
	// thread of the process need not be in it: it may have been locked.
	var own string
	var err error
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		own, err = os.Readlink(path)
	}()
	<-looked
	if err != nil {
		return nil, fmt.Errorf("hostnet: network namespace of this process: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hostnet: open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || name == own {
		return nil, err
	}
	return enterNamespace("of this thread", fd)
}

func enterNamespace(name string, fd int) (*Namespace, error) {
	n := &Namespace{name: name, calls: make(chan namespaceCall), quit: make(chan struct{}), ended: make(chan struct{})}
	entered := make(chan error, 1)
	go onThread(func() { n.run(fd, entered) })
	if err := <-entered; err != nil {
		<-n.ended
		return nil, fmt.Errorf("hostnet: network namespace %q: %w", name, err)
	}
	return n, nil
}

// onThread runs f on a thread that ends with it, so that nothing else runs where
// f has put the thread. That is not the first of the process, which would stay,
// and by which others see the process.
func onThread(f func()) {
	runtime.LockOSThread() // and never unlocked, but for the first thread
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	other := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(other)
		f()
	}()
	<-other
	runtime.UnlockOSThread()
}

// run is the thread.
func (n *Namespace) run(fd int, entered chan<- error) {
	defer close(n.ended)
	err := unix.Setns(fd, unix.CLONE_NEWNET)
	switch {
	case errors.Is(err, unix.EPERM):
		err = fmt.Errorf("%w, which entering one needs (%w): run as root, or grant it with 'setcap cap_sys_admin+ep PROGRAM'", ErrNamespacePrivilege, err)
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: that is no network namespace (setns: %w); %s", ErrNoNamespace, err, existingNamespaces())
	case err != nil:
		err = os.NewSyscallError("setns", err)
	}
	n.tid = unix.Gettid()
	entered <- err
	if err != nil {
		return
	}
	for {
		select {
		case c := <-n.calls:
			c.run()
		case <-n.quit:
			return
		}
	}
}

func (c namespaceCall) run() {
	defer close(c.done)
	*c.err = c.f()
}

// Name returns what the namespace was opened by.
func (n *Namespace) Name() string { return n.name }

// Do runs f in the namespace, on its thread, and returns what f does; one call at
// a time, and from within f at once. After Close it returns ErrNamespaceClosed.
// A nil Namespace is that of the caller.
func (n *Namespace) Do(f func() error) error {
	if n == nil || unix.Gettid() == n.tid {
		return f()
	}
	err := ErrNamespaceClosed // if f ends its goroutine, and with it the thread
	c := namespaceCall{f, &err, make(chan struct{})}
	select {
	case <-n.quit:
		return ErrNamespaceClosed
	default:
	}
	select {
	case n.calls <- c:
		<-c.done
		return err
	case <-n.quit:
	case <-n.ended:
	}
	return ErrNamespaceClosed
}

// Close ends the thread, after a call in progress, also when that is its caller.
func (n *Namespace) Close() {
	if n == nil {
		return
	}
	n.once.Do(func() { close(n.quit) })
	if unix.Gettid() == n.tid {
		return
	}
	<-n.ended
	n.wait()
}

// wait returns when the kernel has let go of the thread, which it does shortly
// after its goroutine has ended: until then it holds the namespace.
func (n *Namespace) wait() {
	task := fmt.Sprintf("/proc/self/task/%d", n.tid)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if _, err := os.Stat(task); err != nil {
			return
		}
	}
}

// existingNamespaces says in words which namespaces have a name.
func existingNamespaces() string {
	dir, _ := os.ReadDir(namedNamespaces)
	if len(dir) == 0 {
		return "none has a name; 'ip netns add NAME' makes one"
	}
	var names []string
	for _, d := range dir {
		names = append(names, d.Name())
	}
	return "there are " + strings.Join(names, ", ") + " ('ip netns add NAME' makes one)"
}
