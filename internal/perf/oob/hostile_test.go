package oob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// known are the errors that a peer can cause. Each has its sentence.
var known = []error{ErrVersion, ErrProtocol, ErrTimeout, ErrClosed, ErrMismatch}

// ending is the known error, or nil.
func ending(t *testing.T, err error, what string) error {
	t.Helper()
	for _, k := range known {
		if errors.Is(err, k) {
			require.Greater(t, len(err.Error()), 40, what)
			return k
		}
	}
	require.NoError(t, err, "%s: an error that is none of ours", what)
	return nil
}

// evil is the peer of a transcript with one thing wrong.
type evil struct {
	messages []message     // of both ends; its own are mutated
	client   bool          // its role
	eager    bool          // says everything at once
	cut      int           // octets of its own after which it ends, -1 never
	stall    bool          // and then it does not close
	drip     time.Duration // between octets of the message at the cut
	what     string
}

// mutate makes the peer of one transcript evil, in one of a dozen ways.
func mutate(rng *rand.Rand, t *transcript, client bool) evil {
	e := evil{client: client, cut: -1, eager: rng.IntN(4) == 0}
	var own []int // indexes of what it says
	total := 0
	for _, m := range t.messages {
		m.b = append([]byte(nil), m.b...)
		if string(m.b) == "done\x00" {
			continue
		}
		if m.client == client {
			own = append(own, len(e.messages))
			total += len(m.b)
		}
		e.messages = append(e.messages, m)
	}
	k := own[rng.IntN(len(own))]
	if rng.IntN(2) == 0 {
		k = own[rng.IntN(min(6, len(own)))] // where what is said is believed
	}
	m := &e.messages[k]
	junk := make([]byte, 1+rng.IntN(300))
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	switch way := rng.IntN(13); way {
	case 0:
		e.what, e.cut = "closes early", rng.IntN(total)
	case 1:
		e.what, e.cut, e.stall = "stops", rng.IntN(total), true
	case 2:
		e.what, e.cut, e.drip = "drips", rng.IntN(total), time.Duration(1+rng.IntN(200))*time.Millisecond
	case 3:
		e.what = "flips bits"
		for range 1 + rng.IntN(3) {
			m.b[rng.IntN(len(m.b))] ^= 1 << rng.IntN(8)
		}
	case 4:
		e.what, m.b = "sends junk", junk
	case 5:
		e.what, m.b = "sends too much", append(m.b, junk...)
	case 6:
		e.what, m.b = "sends too little", m.b[:rng.IntN(len(m.b))]
	case 7:
		e.what = "leaves out a message"
		e.messages = append(e.messages[:k:k], e.messages[k+1:]...)
	case 8:
		e.what = "says it twice"
		e.messages = append(e.messages[:k+1:k+1], append([]message{*m}, e.messages[k+1:]...)...)
	case 9:
		j := own[rng.IntN(len(own))]
		e.what = "changes the order"
		e.messages[j], e.messages[k] = e.messages[k], e.messages[j]
	case 10:
		e.what = "is of another program"
		all := []string{"SSH-2.0-OpenSSH_9.2\r\n", "GET / HTTP/1.1\r\n\r\n", "0000:000011:2f3a4b:00000000000000000000ffffc0000201\x00", "5.60\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "9999999999999999", "..............\x00\x00", "6.24.................", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}
		e.messages[own[0]].b = []byte(all[rng.IntN(len(all))])
	default:
		e.what = absurd(rng, m)
	}
	e.what = fmt.Sprintf("the peer of %s (client %t, message %d) %s", t.name, client, k, e.what)
	return e
}

// absurd puts a value into a message that no device and no run can have.
func absurd(rng *rand.Rand, m *message) string {
	switch len(m.b) {
	case 2:
		m.b[0] = "0967 :/"[rng.IntN(7)]
		return "has an absurd MTU"
	case 4:
		copy(m.b, [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0x7f, 0xff, 0xff, 0xff}, {0, 0, 0, 0}}[rng.IntN(4)])
		return "has an absurd size"
	case 8:
		x := []uint64{1 << 63, math.MaxUint64, math.Float64bits(math.NaN()), math.Float64bits(math.Inf(1)), math.Float64bits(-1), math.Float64bits(1e300)}[rng.IntN(6)]
		for i := range m.b {
			m.b[i] = byte(x >> (56 - 8*i))
		}
		return "has an absurd result"
	case destLen:
		d, ok := parseDest(m.b, false)
		if !ok {
			return "has an absurd address"
		}
		switch rng.IntN(6) {
		case 0:
			d.QPN = []uint32{0, 1, 0xffffff}[rng.IntN(3)]
		case 1:
			d.GID = verbs.GID{}
		case 2:
			d.GID = verbs.GID{0xff, 2, 15: 1}
		case 3:
			d.OutReads = []int{0, 256, 65535}[rng.IntN(3)]
		case 4:
			d.GID = verbs.GID{0xfd, 15: 7}
		default:
			copy(m.b[10:], []string{"ffffffff:", "-00001:", " 0x011:", "1000000:"}[rng.IntN(4)])
			return "has an absurd address"
		}
		m.b = appendDest(nil, &d, false)
		return "has an absurd address"
	}
	m.b = []byte("5.69\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	return "is old"
}

// play is what the evil peer does, until it is hung up on.
func (e *evil) play(nc net.Conn, release <-chan struct{}) {
	defer nc.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	if e.eager {
		wg.Go(func() { io.Copy(io.Discard, nc) })
	}
	said := 0
	for _, m := range e.messages {
		if m.client != e.client {
			if !e.eager {
				if _, err := io.CopyN(io.Discard, nc, int64(len(m.b))); err != nil {
					return
				}
			}
			continue
		}
		if e.cut >= 0 && said+len(m.b) > e.cut {
			if e.drip > 0 {
				for i := range m.b {
					time.Sleep(e.drip)
					if _, err := nc.Write(m.b[i : i+1]); err != nil {
						return
					}
				}
				said += len(m.b)
				e.drip, e.cut = 0, -1
				continue
			}
			nc.Write(m.b[:e.cut-said])
			if e.stall {
				<-release
			}
			if e.eager {
				nc.Close()
			}
			return
		}
		if _, err := nc.Write(m.b); err != nil {
			if e.eager {
				nc.Close()
			}
			return
		}
		said += len(m.b)
	}
	<-release
	if e.eager {
		nc.Close()
	}
}

// limits of the hostile conversations. A peer's one stop costs at most all of
// them, after as much of drips.
const (
	hostileStep = time.Second
	hostileRun  = 2 * time.Second
)

// suffer has a conversation with an evil peer and checks how it ends.
func suffer(t *testing.T, tr *transcript, e *evil, ours, theirs net.Conn, step, run, bound time.Duration) error {
	release, over := make(chan struct{}), make(chan struct{})
	go func() { defer close(over); e.play(theirs, release) }()
	cfg := tr.cfg
	cfg.Server = e.client
	cfg.StepTimeout, cfg.RunTimeout = step, run
	local, _ := tr.side(!e.client)
	start := time.Now()
	c, err := New(context.Background(), ours, cfg)
	require.NoError(t, err)
	peer, remote, told, err := converse(c, local, tr.runs, func() BWReport { return BWReport{} })
	c.Close()
	d := time.Since(start)
	close(release)
	<-over
	require.Less(t, d, bound, e.what)
	if err != nil {
		return ending(t, err, e.what)
	}
	require.Contains(t, []int{256, 512, 1024, 2048, 4096}, peer.MTU)
	require.LessOrEqual(t, peer.CycleBuffer, maxCycleBuffer)
	for i := range remote {
		require.NoError(t, c.checkDest(&remote[i], &local[i]), e.what)
	}
	for _, r := range told {
		require.True(t, rate(r.BWPeak) && rate(r.BWAvg) && rate(r.MsgRate) && r.Size <= maxSize && r.Iters <= maxIters, e.what)
	}
	return nil
}

// TestHostilePeers has 9000 conversations with a peer that has one thing wrong,
// in both roles, in virtual time: each ends in the limits, properly or with one
// of our errors, and leaves no goroutine (the bubble sees to that).
func TestHostilePeers(t *testing.T) {
	all := transcripts(t)
	programs, ends := map[Kind]int{}, map[error]int{}
	for seed := range uint64(9000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr := &all[rng.IntN(len(all))]
		e := mutate(rng, tr, seed%2 == 0)
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			// Drips and one stop.
			ends[suffer(t, tr, &e, ours, theirs, hostileStep, hostileRun, 2*hostileStep+hostileRun)]++
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		programs[tr.cfg.Kind]++
	}
	require.Len(t, programs, int(kinds), "of every program")
	require.Len(t, ends, len(known)+1, "every ending, the proper one too")
	t.Log(ends)
}

// TestHostilePeersTCP has 1000 more over TCP of the loopback interface, where
// limits are real, and counts descriptors.
func TestHostilePeersTCP(t *testing.T) {
	all := transcripts(t)
	before := descriptors(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for seed := uint64(9000); seed < 10000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr := &all[rng.IntN(len(all))]
		e := mutate(rng, tr, seed%2 == 0)
		if e.drip > 0 {
			e.drip = time.Millisecond
		}
		theirs, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		ours, err := l.Accept()
		require.NoError(t, err)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			// Virtual time has shown what the bound is; here it allows for a busy
			// machine.
			suffer(t, tr, &e, ours, theirs, 300*time.Millisecond, 300*time.Millisecond, 20*time.Second)
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	require.Equal(t, before, descriptors(t))
}

func descriptors(t *testing.T) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	return len(d)
}

// TestSlowPeer: a limit is that of a step, and not of an octet.
func TestSlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer theirs.Close()
		wg.Go(func() { io.Copy(io.Discard, theirs) })
		wg.Go(func() {
			for range 1000 {
				time.Sleep(700 * time.Millisecond)
				if _, err := theirs.Write([]byte("6")); err != nil {
					return
				}
			}
		})
		c, err := New(t.Context(), ours, Config{MTU: 1024, StepTimeout: 5 * time.Second})
		require.NoError(t, err)
		defer c.Close()
		start := time.Now()
		_, err = c.Hello()
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "exchanging versions: the peer took too long: 7 of 16 octets came in 5s; is it ib_send_bw with the same options, and not stopped?")
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// TestPeerThatDoesNotRead: a server that says nothing and reads nothing.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c, err := New(t.Context(), ours, Config{MTU: 1024, StepTimeout: 5 * time.Second})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Hello()
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "it read nothing for 5s")
	})
}

// TestCancel: whatever waits ends with the context's cause.
func TestCancel(t *testing.T) {
	for _, server := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			go io.Copy(io.Discard, theirs)
			ctx, cancel := context.WithCancelCause(t.Context())
			c, err := New(ctx, ours, Config{MTU: 1024, Server: server})
			require.NoError(t, err)
			defer c.Close()
			cause := errors.New("interrupted")
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err = c.Hello()
			require.ErrorIs(t, err, cause)
			require.ErrorIs(t, c.Alive(), cause)
		})
	}
}
