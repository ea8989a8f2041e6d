package sys

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestPolicy runs the filter that a NIC's program gets, on each kind of call. The
// BPF machine of x/net reads words in network order.
func TestPolicy(t *testing.T) {
	p := NICCalls(false)
	raw := NICCalls(true)
	for _, c := range []struct {
		name   string
		policy *Policy
		arch   uint32
		number uint32
		arg    int
		value  uint32
		want   Verdict
	}{
		{"read", p, auditArch, unix.SYS_READ, 0, 0, VerdictAllow},
		{"the last of the list", p, auditArch, machineCalls[len(machineCalls)-1], 0, 0, VerdictAllow},
		{"another machine's read", p, 0x40000003, unix.SYS_READ, 0, 0, VerdictKill},
		{"another set of numbers", p, auditArch, x32Bit | unix.SYS_READ, 0, 0, VerdictKill},
		{"execve", p, auditArch, unix.SYS_EXECVE, 0, 0, VerdictKill},
		{"setns", p, auditArch, unix.SYS_SETNS, 0, 0, VerdictRefuse},
		{"unknown", p, auditArch, 0xfff, 0, 0, VerdictRefuse},
		{"UDP socket", p, auditArch, unix.SYS_SOCKET, 0, unix.AF_INET6, VerdictAllow},
		{"packet socket", p, auditArch, unix.SYS_SOCKET, 0, unix.AF_PACKET, VerdictRefuse},
		{"packet socket of link packet", raw, auditArch, unix.SYS_SOCKET, 0, unix.AF_PACKET, VerdictAllow},
		{"vsock", raw, auditArch, unix.SYS_SOCKET, 0, unix.AF_VSOCK, VerdictRefuse},
		{"bpf", p, auditArch, unix.SYS_BPF, 0, 0, VerdictRefuse},
		{"bpf of link xdp", raw, auditArch, unix.SYS_BPF, 0, 0, VerdictAllow},
		{"thread", p, auditArch, unix.SYS_CLONE, 0, unix.CLONE_VM | unix.CLONE_THREAD, VerdictAllow},
		{"process", p, auditArch, unix.SYS_CLONE, 0, unix.CLONE_VM, VerdictRefuse},
		{"memory", p, auditArch, unix.SYS_MMAP, 2, unix.PROT_READ | unix.PROT_WRITE, VerdictAllow},
		{"code", p, auditArch, unix.SYS_MMAP, 2, unix.PROT_READ | unix.PROT_EXEC, VerdictRefuse},
		{"memory into code", p, auditArch, unix.SYS_MPROTECT, 2, unix.PROT_EXEC, VerdictRefuse},
		{"another's thread", p, auditArch, unix.SYS_TGKILL, 0, 1, VerdictRefuse},
		{"terminal", p, auditArch, unix.SYS_IOCTL, 1, unix.TIOCSTI, VerdictRefuse},
		{"interface", p, auditArch, unix.SYS_IOCTL, 1, unix.SIOCETHTOOL, VerdictAllow},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, err := c.policy.Program()
			require.NoError(t, err)
			_, err = bpf.Assemble(code)
			require.NoError(t, err)
			vm, err := bpf.NewVM(code)
			require.NoError(t, err)
			data := make([]byte, 64)
			binary.BigEndian.PutUint32(data[offNumber:], c.number)
			binary.BigEndian.PutUint32(data[offArch:], c.arch)
			binary.BigEndian.PutUint32(data[offArgs+8*c.arg:], c.value)
			got, err := vm.Run(data)
			require.NoError(t, err)
			require.Equal(t, c.want, Verdict(got))
		})
	}
}

func TestCapsNames(t *testing.T) {
	require.Equal(t, "none", Caps(0).String())
	require.Equal(t, "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF capability 63", (CapNetAdmin | CapNetRaw | CapBPF | 1<<63).String())
}

// TestInstalled: the filter of a process that has it, in a process of its own.
func TestInstalled(t *testing.T) {
	const env = "GORXE_TEST_SECCOMP"
	switch os.Getenv(env) {
	case "":
		for _, c := range []string{"refuse", "exec"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestInstalled$", "-test.v")
			cmd.Env = append(os.Environ(), env+"="+c)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), ErrNoSeccomp.Error()) || strings.Contains(string(out), ErrThreads.Error()) {
				t.Skipf("%s", out)
			}
			if c == "refuse" {
				require.NoError(t, err, "%s", out)
				continue
			}
			var dead *exec.ExitError
			require.ErrorAs(t, err, &dead, "%s", out)
			ws := dead.Sys().(syscall.WaitStatus)
			require.True(t, ws.Signaled() && ws.Signal() == unix.SIGSYS, "%v: %s", ws, out)
		}
		return
	case "exec":
		install(t)
		_ = unix.Exec("/bin/true", []string{"true"}, nil)
		t.Fatal("still there")
	}
	install(t)
	_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	require.Equal(t, unix.EPERM, err)
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	require.NoError(t, err)
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.Equal(t, unix.EPERM, err)
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	require.ErrorIs(t, unix.Unshare(unix.CLONE_NEWNET), unix.EPERM)
	for range 50 { // threads that were there, and new ones
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends
			done <- unix.Setns(0, 0)
		}()
		require.Equal(t, unix.EPERM, <-done)
	}
	runtime.GC()
}

func install(t *testing.T) {
	_, err := Restrict(Privileges{UID: -1, GID: -1})
	require.NoError(t, err)
	require.NoError(t, NICCalls(false).Install())
	c, err := Effective()
	require.NoError(t, err)
	require.Zero(t, c)
}
