package gorxe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/verbs"
)

// TestAtomicsLoopback is TestAtomics with NICs that talk over sockets of this
// host.
func TestAtomicsLoopback(t *testing.T) {
	for _, c := range counts {
		t.Run(c.name, func(t *testing.T) {
			var devs []*verbs.Context
			for i := range 3 {
				d, err := gorxe.Open(gorxe.Config{Addr: testbed.Loopback(i).String(), Link: gorxe.LinkUDP, Faults: c.faults, Seed: uint64(i + 1)})
				require.NoError(t, err)
				devs = append(devs, d)
			}
			count(t, devs, c.edges, 1, 200, c.faults != "")
		})
	}
}
