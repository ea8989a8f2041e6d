package tap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// livePair returns two links, the first of which can be captured from.
func livePair(t testing.TB) (*Live, *LiveLink, link.Link) {
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	l := new(Live)
	a := l.WrapAll(as, "rxe0")[0].(*LiveLink)
	t.Cleanup(func() { require.NoError(t, a.Close()); require.NoError(t, bs[0].Close()) })
	return l, a, bs[0]
}

// oneBurst is a sealed burst of n packets with some payload each.
func oneBurst(src, dst string, n, payload int) *wire.Burst {
	b := wire.NewBurst()
	b.Reset(&wire.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 50000, TTL: 64}, 0, 0)
	for i := range n {
		p := bth.Packet{Opcode: bth.RCSendFirst + 1, DestQP: 0x123, PSN: bth.MakePSN(uint32(i))}
		p.PutHeaders(b.Begin(p.PSN, p.Opcode, bth.BTHLen, payload))
		copy(b.Copy(payload), bytes.Repeat([]byte{byte(i)}, payload))
		b.End()
	}
	b.Seal(wire.IDCount)
	return b
}

// A capture that nobody reads loses packets, counts them, and holds up nobody.
func TestSlowReader(t *testing.T) {
	l, a, b := livePair(t)
	const room = 64 << 10
	held := make(chan struct{})
	var out bytes.Buffer
	first := true
	w := writer(func(p []byte) (int, error) {
		if !first {
			<-held
		}
		first = false
		return out.Write(p)
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := make(chan struct{})
	type result struct {
		sum StreamSummary
		err error
	}
	done := make(chan result)
	go func() {
		s, err := l.Stream(ctx, w, StreamOptions{Room: room}, func() { close(began) })
		done <- result{s, err}
	}()
	<-began
	burst := oneBurst("192.0.2.1", "192.0.2.2", 10, 1000)
	var ds [8]wire.Datagram
	for range 100 {
		n, err := a.Send([]*wire.Burst{burst})
		require.NoError(t, err)
		require.Equal(t, 10, n)
		for k := 1; k > 0; {
			k, err = b.Recv(ds[:])
			require.NoError(t, err)
		}
	}
	stop()
	close(held)
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, uint64(1000), r.sum.Captured+r.sum.Dropped)
	require.Positive(t, r.sum.Dropped)
	require.GreaterOrEqual(t, r.sum.Captured, uint64(room/1100), "what there was room for")
	require.LessOrEqual(t, out.Len(), 3*room)
	require.Len(t, readAll(t, out.Bytes()), int(r.sum.Captured))
	require.Zero(t, l.Captures())
	require.Nil(t, l.sinks.Load(), "off again")
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Whose reader goes away ends, and the others go on.
func TestReaderGone(t *testing.T) {
	l, a, _ := livePair(t)
	gone := errors.New("gone")
	var out bytes.Buffer
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := make(chan struct{}, 2)
	wg.Go(func() {
		_, err := l.Stream(ctx, &out, StreamOptions{}, func() { began <- struct{}{} })
		require.NoError(t, err)
	})
	failed := make(chan error)
	wg.Go(func() {
		first := true
		_, err := l.Stream(ctx, writer(func(p []byte) (int, error) {
			if first {
				first = false
				return len(p), nil
			}
			return 0, gone
		}), StreamOptions{}, func() { began <- struct{}{} })
		failed <- err
	})
	<-began
	<-began
	require.Equal(t, 2, l.Captures())
	burst := oneBurst("192.0.2.1", "192.0.2.2", 1, 100)
	_, err := a.Send([]*wire.Burst{burst})
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, gone)
	require.Equal(t, 1, l.Captures())
	_, err = a.Send([]*wire.Burst{burst})
	require.NoError(t, err)
	stop()
	wg.Wait()
	require.Len(t, readAll(t, out.Bytes()), 2)
}

// The packet that came last is written though the link is not used again, with
// what the NIC made of it.
func TestQuietLink(t *testing.T) {
	l, a, b := livePair(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	began, done := make(chan struct{}), make(chan error)
	go func() {
		_, err := l.Stream(ctx, w, StreamOptions{}, func() { close(began) })
		w.Close()
		done <- err
	}()
	<-began
	head := make([]byte, 4096)
	_, err := r.Read(head)
	require.NoError(t, err)
	_, err = b.Send([]*wire.Burst{oneBurst("192.0.2.2", "192.0.2.1", 1, 100)})
	require.NoError(t, err)
	var ds [8]wire.Datagram
	n, err := a.Recv(ds[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	a.Verdict(0, 0, trace.DropQPN)
	n, err = r.Read(head)
	require.NoError(t, err)
	require.Contains(t, string(head[:n]), "ICRC ok; dropped, unknown_qpn")
	stop()
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, <-done)
}

// Captures begin and end all the time while the link is in use.
func TestOnAndOff(t *testing.T) {
	l, a, b := livePair(t)
	end := time.Now().Add(200 * time.Millisecond)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for time.Now().Before(end) {
				ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
				var out bytes.Buffer
				s, err := l.Stream(ctx, &out, StreamOptions{Count: 50}, nil)
				stop()
				if err != nil || len(readAll(t, out.Bytes())) != int(s.Captured) || s.Captured > 50 {
					t.Errorf("%+v, %v", s, err)
				}
			}
		})
	}
	burst, back := oneBurst("192.0.2.1", "192.0.2.2", 3, 100), oneBurst("192.0.2.2", "192.0.2.1", 3, 100)
	var ds [8]wire.Datagram
	for time.Now().Before(end) {
		_, err := a.Send([]*wire.Burst{burst})
		require.NoError(t, err)
		_, err = b.Send([]*wire.Burst{back})
		require.NoError(t, err)
		n, err := a.Recv(ds[:])
		require.NoError(t, err)
		for i := range n {
			for seg := range ds[i].Segments() {
				a.Verdict(i, seg, trace.None)
			}
		}
		_, err = b.Recv(ds[:])
		require.NoError(t, err)
	}
	wg.Wait()
	require.Zero(t, l.Captures())
	require.Empty(t, a.scribe.received)
}

// Off, a capture costs next to nothing, and no memory.
func TestOffAllocates(t *testing.T) {
	_, a, b := livePair(t)
	burst := []*wire.Burst{oneBurst("192.0.2.1", "192.0.2.2", 1, 100)}
	var ds [8]wire.Datagram
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = a.Send(burst)
		_, _ = a.Recv(ds[:])
		a.Verdict(0, 0, trace.None)
	}))
	_, _ = b.Recv(ds[:])
}

func BenchmarkOff(b *testing.B) {
	_, a, _ := livePair(b)
	var ds [8]wire.Datagram
	for _, c := range []struct {
		name string
		l    link.Link
	}{{"bare", a.Unwrap()}, {"wrapped", a}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				_, _ = c.l.Recv(ds[:])
			}
		})
	}
	b.Run("verdict", func(b *testing.B) {
		for b.Loop() {
			a.Verdict(0, 0, trace.None)
		}
	})
}

// readAll returns the frames of a whole capture.
func readAll(t testing.TB, file []byte) (frames [][]byte) {
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Error(err)
		return nil
	}
	for {
		b, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			t.Error(err)
			return frames
		}
		frames = append(frames, b)
	}
}
