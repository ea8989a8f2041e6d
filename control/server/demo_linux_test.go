package server_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/verbs"
)

// A program in C, which knows the protocol from its header alone, talks to this
// project's library at the other end.
func TestProgramInC(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc (Debian: apt-get install gcc libc6-dev)")
	}
	bin := filepath.Join(t.TempDir(), "rxedemo")
	out, err := exec.CommandContext(t.Context(), gcc, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", bin, "../testdata/rxedemo.c").CombinedOutput()
	require.NoError(t, err, "%s", out)

	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	b := newEnd(t, s.peer, verbs.RC, 1<<16)
	const rounds, size = 20, 4096
	gid := verbs.GIDOf(peerAddr)
	cmd := exec.CommandContext(t.Context(), bin, s.socket, hex.EncodeToString(gid[:]), strconv.Itoa(rounds))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Logf("rxedemo said: %s", stderr.String())
		}
	})

	local, err := b.qp.Endpoint(servedAddr)
	require.NoError(t, err)
	remote := verbs.Endpoint{GID: verbs.GIDOf(servedAddr)}
	var key uint32
	var addr uint64
	_, err = fmt.Fscan(stdout, &remote.QPN, &remote.PSN, &key, &addr)
	require.NoError(t, err)
	require.NoError(t, b.qp.Connect(local, remote, verbs.ConnectOptions{PathMTU: 1024}))
	for range 2 {
		b.recv(0, size)
	}
	_, err = fmt.Fprintln(in, local.QPN, local.PSN)
	require.NoError(t, err)
	// A request's completion, and that of the next message, come in either order.
	var done [256]int
	await := func(op verbs.WCOpcode) {
		for ; done[op] == 0; done[b.wait().Opcode]++ {
		}
		done[op]--
	}
	for i := range rounds {
		await(verbs.WCRecv)
		got := b.mr.Bytes()[:size]
		for k, c := range got {
			require.Equal(t, byte(i*31+k*7+k>>8), c, "round %d, octet %d", i, k)
			b.mr.Bytes()[size+k] = ^c
		}
		if i == 0 { // its memory is shared with the daemon, so peers may use it
			b.send(verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{b.mr.SGE(2*size, size)}, RemoteAddr: addr, RKey: key})
			await(verbs.WCRead)
			require.True(t, bytes.Equal(got, b.mr.Bytes()[2*size:3*size]))
		}
		b.recv(0, size)
		b.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(size, size)}})
		await(verbs.WCSend)
	}
	var word string
	_, err = fmt.Fscan(stdout, &word)
	require.NoError(t, err)
	require.Equal(t, "ok", word)
	require.NoError(t, cmd.Wait())
	require.Contains(t, stderr.String(), "rxe0 on mem")
	require.NotContains(t, stderr.String(), "event")
	require.Eventually(t, func() bool { return s.server.Held()["clients"] == 0 }, 5*time.Second, time.Millisecond)
}
