package server_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/verbs"
)

// attack is something that a client does which no honest one would.
type attack struct {
	name string // as docs/control.md has it
	what string // and what comes of it
	run  func(t *testing.T, x *arena)
}

// attacks are all of them. Whoever adds one runs `go test ./control/server -run
// TestHostileDocumented -update`, which writes the table of docs/control.md.
var attacks = []attack{
	{"wrong magic or version", "BadMessage, which names both versions; the daemon hangs up", wrongHello},
	{"a call before HELLO", "BadMessage; the daemon hangs up", callBeforeHello},
	{"a second HELLO", "BadMessage; the daemon hangs up", secondHello},
	{"half a header, a message too long, a length that lies", "the daemon hangs up", badFraming},
	{"an unknown operation, an answer as a call", "BadMessage; the daemon hangs up", unknownOp},
	{"a body too short for its operation", "BadMessage; the daemon hangs up", shortBody},
	{"descriptors sent along", "closed unseen; with more than 4 the daemon hangs up", descriptors},
	{"handles of another client, of every kind", "Closed", foreignHandles},
	{"a handle used again after DESTROY", "Closed", staleHandles},
	{"an object destroyed that others are made of", "InUse", destroyInUse},
	{"unknown kinds in DESTROY, unknown attributes in MODIFY_QP", "NotSupported, BadState", unknownBits},
	{"regions of 0 and 2^63 octets, an address range that wraps", "Limit, Failed", badRegions},
	{"objects without end", "Limit, which names who holds how many, and what to do", limits},
	{"an L_Key of another client", "completion: local protection error", foreignLKey},
	{"an R_Key of another client", "completion: remote access error", foreignRKey},
	{"an address handle of another client", "completion: local QP operation error", foreignAH},
	{"all keys, one after another", "nothing is read or written", escape},
	{"doorbells of nobody, of others, and of none", "looked at, a few in each step", doorbells},
	{"a producer index beyond the ring", "completion: local QP operation error; the queue pair is in ERR", badProducer},
	{"work requests of 0 or 255 units, with too many entries, too much inline data", "the same", badRequests},
	{"a work request that changes while the device reads it", "carried out as one or a mix of both, or a local protection error", flicker},
	{"a consumer index that is garbage", "the completion queue overflows, with an event; its queue pairs are in ERR", badConsumer},
	{"requests posted for ever while they are flushed", "a queue full of them in each step", endlessPosting},
	{"rings of random octets, rewritten while the device steps", "work requests fail", randomRings},
	{"a futex word that is hammered, and waited for by many", "nothing", futexStorm},
	{"seals, ftruncate and holes in shared memory", "EPERM; a hole is a loss of the client's own", memfd},
	{"memory kept after DESTROY", "its pages are gone; what the client puts there is its own", keptMemory},
	{"WAKE without end, for shards that there are not", "nothing", wakeStorm},
	{"1000 connections that say nothing", "the oldest are hung up on; others attach meanwhile", silentConnects},
	{"a client killed in the middle of a transfer", "all it had is destroyed", killed},
	{"answers or events never read, a HELLO never finished", "hung up on after 5 s", neverReads},
}

// arena is where attacks take place: a served device, a client that has done nothing
// wrong, and its peer.
type arena struct {
	*site
	a, b  *end // the innocent client, and its peer
	guard []byte
	sent  int
}

const guardAt = 32 << 10

func newArena(t *testing.T, cfg server.Config) *arena {
	x := &arena{site: newSite(t, gorxe.PairConfig{}, cfg)}
	x.a = newEnd(t, x.attach(), verbs.RC, 64<<10)
	x.b = newEnd(t, x.peer, verbs.RC, 64<<10)
	connect(t, x.a, x.b, servedAddr, peerAddr)
	x.guard = make([]byte, len(x.a.mr.Bytes())-guardAt)
	fill(x.guard, 77)
	copy(x.a.mr.Bytes()[guardAt:], x.guard)
	return x
}

// traffic is what the innocent client does all the time, and what must not change
// for it.
func (x *arena) traffic() {
	x.t.Helper()
	for _, w := range [][2]*end{{x.a, x.b}, {x.b, x.a}} {
		from, to := w[0], w[1]
		x.sent++
		fill(from.mr.Bytes()[:8000], x.sent)
		clear(to.mr.Bytes()[8192:16192])
		to.recv(8192, 8000)
		from.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{from.mr.SGE(0, 8000)}})
		from.wait()
		to.wait()
		require.True(x.t, bytes.Equal(from.mr.Bytes()[:8000], to.mr.Bytes()[8192:16192]), "the innocent client's data has changed on the way")
	}
	require.True(x.t, bytes.Equal(x.guard, x.a.mr.Bytes()[guardAt:]), "the innocent client's memory was written")
}

// while runs an attack's step beside traffic until it has gone on for d.
func (x *arena) while(d time.Duration, step func()) {
	x.t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				step()
			}
		}
	}()
	for end := time.Now().Add(d); time.Now().Before(end); {
		x.traffic()
	}
	close(stop)
	<-done
}

func openFiles(t *testing.T) int {
	d, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(d)
}

// Whatever a client does: it gets the right error, another client does not notice,
// and when it has gone nothing of it is left.
func TestHostile(t *testing.T) {
	x := newArena(t, server.Config{PerClient: server.Limits{QPs: 2000, MRs: 40, CQs: 2000, CQEs: 1 << 20, Bytes: 64 << 20}})
	x.traffic()
	held, files := x.server.Held(), openFiles(t)
	for _, a := range attacks {
		t.Run(strings.ReplaceAll(a.name, "/", " "), func(t *testing.T) {
			x.site.t, x.a.t, x.b.t = t, t, t
			a.run(t, x)
			x.traffic()
		})
		x.site.t, x.a.t, x.b.t = t, t, t
		x.traffic()
		require.Eventually(t, func() bool { return maps.Equal(held, x.server.Held()) }, 10*time.Second, time.Millisecond, "after %q: %v, before: %v", a.name, x.server.Held(), held)
		require.Eventually(t, func() bool { return openFiles(t) == files }, 10*time.Second, time.Millisecond, "after %q descriptors are left open", a.name)
		require.NoError(t, x.served.Err())
	}
}

var update = flag.Bool("update", false, "write the table of attacks in docs/control.md")

const (
	tableBegin = "<!-- attacks: go test ./control/server -run TestHostileDocumented -update -->\n"
	tableEnd   = "<!-- end -->"
)

// docs/control.md lists the attacks.
func TestHostileDocumented(t *testing.T) {
	const path = "../../docs/control.md"
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(b), tableBegin)
	require.True(t, ok, "the table's beginning is missing")
	table, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "the table's end is missing")
	var s strings.Builder
	s.WriteString("\n| a client's | comes to |\n| --- | --- |\n")
	for _, a := range attacks {
		s.WriteString("| " + a.name + " | " + a.what + " |\n")
	}
	s.WriteString("\n")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+tableBegin+s.String()+tableEnd+after), 0o644))
		return
	}
	require.Equal(t, s.String(), table, "run the command in the comment above the table")
}
