package sys

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who is at the other end of a socket, of which groups, and in which network
// namespace, is what this process is.
func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	defer ln.Close()
	out, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	defer out.Close()
	in, err := ln.AcceptUnix()
	require.NoError(t, err)
	defer in.Close()
	pid, uid, gid, err := PeerCred(in)
	require.NoError(t, err)
	require.EqualValues(t, os.Getpid(), pid)
	require.EqualValues(t, os.Getuid(), uid)
	require.EqualValues(t, os.Getgid(), gid)
	want, err := os.Getgroups()
	require.NoError(t, err)
	var got []int
	for _, g := range PeerGroups(in) {
		got = append(got, int(g))
	}
	slices.Sort(want)
	slices.Sort(got)
	require.True(t, slices.Equal(want, got), "%v, %v", want, got)
	require.Equal(t, NetnsCookieHere(), NetnsCookie(in))
}
