package control

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/sys"
)

// mapping is the memory of one object.
type mapping struct {
	mem  []byte
	gate sync.RWMutex // held for reading by who waits on the memory
	gone bool

	ending atomic.Bool // its object is destroyed: nobody is to wait any more
}

// space is all memory that a Client has mapped. It outlives the Client, so that
// whatever still holds a ring has one.
type space struct {
	mu   sync.Mutex
	maps map[*byte][]byte
}

func (s *space) add(mem []byte) {
	s.mu.Lock()
	if s.maps == nil {
		s.maps = map[*byte][]byte{}
	}
	s.maps[&mem[0]] = mem
	s.mu.Unlock()
}

func (s *space) unmap(mem []byte) {
	s.mu.Lock()
	_, mine := s.maps[&mem[0]]
	delete(s.maps, &mem[0])
	s.mu.Unlock()
	if mine {
		sys.Unmap(mem)
	}
}

func (s *space) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, mem := range s.maps {
		sys.Unmap(mem)
	}
	s.maps = nil
}

// mapFD maps memory that came as the only descriptor of an answer.
func (c *Client) mapFD(fds []int, n uint64) ([]byte, error) {
	defer sys.CloseFDs(fds...)
	if err := checkFD(fds, n); err != nil {
		return nil, err
	}
	mem, err := sys.MapShared(fds[0], int(n))
	if err != nil {
		return nil, fmt.Errorf("control: mapping %d octets: %w", n, err)
	}
	c.space.add(mem)
	return mem, nil
}

func checkFD(fds []int, n uint64) error {
	if len(fds) != 1 {
		return fmt.Errorf("control: an answer with %d descriptors, 1 is expected", len(fds))
	}
	size, err := sys.SharedSize(fds[0])
	if err == nil && (n == 0 || uint64(size) < n) {
		err = fmt.Errorf("control: shared memory of %d octets, %d are promised", size, n)
	}
	return err
}
