package sys

import (
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
)

var local = testbed.Loopback(0)

// pair returns a receiving and a sending socket, and the receiver's address.
func pair(t *testing.T) (rx, tx int, to netip.AddrPort) {
	t.Helper()
	fds := [2]int{}
	for i := range fds {
		fd, err := UDPSocket(local)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { Close(fd) })
		if err := Bind(fd, netip.AddrPortFrom(local, 0), 0); err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	if err := SetReceiveMeta(fds[0], local); err != nil {
		t.Fatal(err)
	}
	port, err := LocalPort(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1], netip.AddrPortFrom(local, port)
}

func TestBatches(t *testing.T) {
	rx, tx, to := pair(t)
	from, err := LocalPort(tx)
	if err != nil {
		t.Fatal(err)
	}
	b := NewTxBatch(3, 6)
	r := NewRxBatch(4, 8)
	for round := range 3 { // slots are reused
		b.Reset()
		for i := range 3 {
			if !b.Fits(2) {
				t.Fatal("no room")
			}
			b.Add(&TxMeta{To: to, TOS: uint8(4 * i), TTL: uint8(i)})
			b.Piece([]byte("ab"))
			b.Piece([]byte("cdefghij")[:i*4])
		}
		if b.Fits(0) {
			t.Fatal("room for a fourth message")
		}
		if n, e := b.Send(tx); n != 3 || e != 0 {
			t.Fatal(n, e)
		}
		n, e := r.Recv(rx, 4)
		if n != 3 || e != 0 {
			t.Fatal(n, e)
		}
		for i, want := range []string{"ab", "abcdef", "abcdefgh"} {
			var m RxMessage
			r.Take(i, &m)
			if string(m.Payload) != want || m.Truncated != (i == 2) || m.From != local || m.Port != from || m.TOS != uint8(4*i) || m.Segment != 0 {
				t.Fatalf("round %d message %d: %+v", round, i, m)
			}
			if i > 0 && m.TTL != uint8(i) || i == 0 && m.TTL == 0 { // 0 leaves it to the socket
				t.Fatalf("TTL %d", m.TTL)
			}
		}
		if n, e := r.Recv(rx, 4); n != 0 || e != unix.EAGAIN {
			t.Fatal(n, e)
		}
	}
}

func TestPoller(t *testing.T) {
	rx, tx, to := pair(t)
	p, err := NewPoller([]int{tx, rx})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if r, err := p.Wait(0, -1); r != 0 || err != nil {
		t.Fatal(r, err)
	}
	b := NewTxBatch(1, 1)
	b.Add(&TxMeta{To: to})
	b.Piece([]byte("x"))
	if n, e := b.Send(tx); n != 1 || e != 0 {
		t.Fatal(n, e)
	}
	if r, err := p.Wait(-1, -1); r != 2 || err != nil {
		t.Fatal(r, err)
	}
	r := NewRxBatch(1, 8)
	if n, e := r.Recv(rx, 1); n != 1 || e != 0 {
		t.Fatal(n, e)
	}
	if r, err := p.Wait(-1, tx); r != 0 || err != nil { // writable at once
		t.Fatal(r, err)
	}
	for range 3 {
		p.Wake()
		p.Wake()
		if _, err := p.Wait(-1, -1); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			_, _ = p.Wait(-1, -1)
		}
	}()
	for {
		p.Wake()
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
}

// TestPollerSet: a Wait in progress ends, and the next one looks at the new
// descriptors only.
func TestPollerSet(t *testing.T) {
	rx, tx, to := pair(t)
	p, err := NewPoller(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b := NewTxBatch(1, 1)
	b.Add(&TxMeta{To: to})
	b.Piece([]byte("x"))
	if n, e := b.Send(tx); n != 1 || e != 0 {
		t.Fatal(n, e)
	}
	ready := make(chan uint64)
	go func() {
		for {
			if r, err := p.Wait(-1, -1); r != 0 || err != nil {
				ready <- r
				return
			}
		}
	}()
	p.Set([]int{tx, rx})
	if r := <-ready; r != 2 {
		t.Fatal(r)
	}
	p.Set([]int{rx})
	for _, want := range []uint64{0, 1} { // Set is a Wake
		if r, err := p.Wait(-1, -1); r != want || err != nil {
			t.Fatal(r, err)
		}
	}
	p.Set([]int{tx})
	for range 2 {
		if r, err := p.Wait(0, -1); r != 0 || err != nil {
			t.Fatal(r, err)
		}
	}
}

// TestFeature compares with ethtool.
func TestFeature(t *testing.T) {
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("needs the program ethtool")
	}
	out, err := exec.Command("ethtool", "-k", "lo").Output()
	if err != nil {
		t.Skipf("needs ethtool to work on lo: %v", err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		name, state, ok := strings.Cut(strings.TrimSpace(line), ": ")
		on, err := Feature("lo", name)
		if !ok || err != nil {
			continue // headings and ethtool's own groups
		}
		n++
		if on != strings.HasPrefix(state, "on") {
			t.Errorf("%s: %v, ethtool says %s", name, on, state)
		}
	}
	if n < 20 {
		t.Errorf("only %d features compared", n)
	}
	if hw, err := HardwareSegmentation("lo"); hw || err != nil {
		t.Error(hw, err)
	}
	if _, err := Feature("gorxe-none", "tx-udp-segmentation"); err == nil {
		t.Error("an interface that does not exist has features")
	}
}

func TestProbeSegmentation(t *testing.T) {
	n, err := ProbeSegmentation(local, 0)
	if err != nil {
		t.Skipf("needs UDP_SEGMENT: %v", err)
	}
	if n != 64 && n != 128 {
		t.Error(n)
	}
	if mtu, err := PathMTU(local, local, 0); err != nil || mtu < 1500 {
		t.Error(mtu, err)
	}
}
