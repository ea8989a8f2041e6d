package tap

import (
	"bytes"
	"context"
	"io"
	"math"
	"sync"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

const (
	// streamRoom is how many octets of a capture wait for its reader, at most;
	// as many again are being written.
	streamRoom = 8 << 20
	// streamTick is how long the last packet that a quiet link received is
	// kept back, in case that the NIC has something to say of it.
	streamTick = 100 * time.Millisecond
)

// StreamOptions bound a capture.
type StreamOptions struct {
	SnapLen int    // octets of a frame that are kept, 0 all
	Count   uint64 // frames after which it ends, 0 none
	Room    int    // octets that may wait for the reader, 0 8 MiB
}

// StreamSummary says what became of the frames of a capture.
type StreamSummary struct {
	Captured uint64 // written
	Dropped  uint64 // left out, as the reader was too slow
}

// Stream captures to w, as pcapng, until ctx is done, as many frames as asked
// for are written, or w fails, whose error it then returns. The capture has begun
// when started, which may be nil, is called; nothing has been written then. The
// last blocks are statistics of each interface, with what was left out.
func (l *Live) Stream(ctx context.Context, w io.Writer, o StreamOptions, started func()) (StreamSummary, error) {
	if o.Room <= 0 {
		o.Room = streamRoom
	}
	if o.SnapLen <= 0 {
		o.SnapLen = math.MaxInt32
	}
	s := &sink{o: o, wake: make(chan struct{}, 1), stats: make([]StreamSummary, len(l.links))}
	begin := l.Now()
	head, ng, err := l.head(o.SnapLen)
	if err != nil {
		return StreamSummary{}, err
	}
	l.add(s)
	if started != nil {
		started()
	}
	_, err = w.Write(head.Bytes())
	if err == nil {
		err = l.follow(ctx, w, s)
	}
	l.remove(s)
	if err == nil {
		_, err = w.Write(s.take())
	}
	var sum StreamSummary
	head.Reset()
	for i, x := range s.stats {
		sum.Captured += x.Captured
		sum.Dropped += x.Dropped
		end := l.Now()
		_ = ng.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{
			LastUpdate: end, StartTime: begin, EndTime: end, PacketsReceived: x.Captured + x.Dropped, PacketsDropped: x.Dropped,
		}) // to memory
	}
	if err == nil {
		_ = ng.Flush()
		_, err = w.Write(head.Bytes())
	}
	return sum, err
}

// head returns the blocks before the first packet, and what writes more to the
// same buffer.
func (l *Live) head(snap int) (*bytes.Buffer, *pcapgo.NgWriter, error) {
	b := new(bytes.Buffer)
	var ng *pcapgo.NgWriter
	for i, name := range l.names {
		in := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet}
		if snap < math.MaxInt32 {
			in.SnapLength = uint32(snap)
		}
		var err error
		if i == 0 {
			ng, err = pcapgo.NewNgWriterInterface(b, in, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "gorxe"}})
		} else {
			_, err = ng.AddInterface(in)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return b, ng, ng.Flush()
}

// follow writes what comes.
func (l *Live) follow(ctx context.Context, w io.Writer, s *sink) error {
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
			l.flush()
		}
		if b := s.take(); len(b) > 0 {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		if s.complete() {
			return nil
		}
	}
}

// sink holds what waits for the reader of a capture.
type sink struct {
	o    StreamOptions
	wake chan struct{} // there is something

	mu     sync.Mutex
	buf    []byte // whole blocks
	spare  []byte // the other one
	frames uint64
	stats  []StreamSummary // by interface
}

// put adds a packet, or counts it as dropped. It never waits for the reader.
func (s *sink) put(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := min(len(r.frame), s.o.SnapLen) + len(r.comment) + 64 // of a block
	switch {
	case s.reached():
		return
	case len(s.buf)+most > s.o.Room:
		s.stats[r.iface].Dropped++
		return
	}
	first := len(s.buf) == 0
	s.buf = appendBlock(s.buf, r, s.o.SnapLen)
	s.frames++
	s.stats[r.iface].Captured++
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// room reports whether there is room for a packet of so many octets.
func (s *sink) room(octets int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.reached() && len(s.buf)+min(octets, s.o.SnapLen) <= s.o.Room
}

// drop counts a packet that was not even made.
func (s *sink) drop(iface int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reached() {
		s.stats[iface].Dropped++
	}
}

// reached reports whether there are as many frames as were asked for.
func (s *sink) reached() bool { return s.o.Count > 0 && s.frames == s.o.Count }

// take returns what is there; it is the caller's until the next call.
func (s *sink) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buf
	s.buf, s.spare = s.spare[:0], b
	return b
}

func (s *sink) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached() && len(s.buf) == 0
}
