package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{"open": func(args []string) error {
		links, err := Open(Config{Interface: args[0], noRing: len(args) > 1})
		if err == nil {
			fmt.Println(links[0].Info().Window, links[0].Info().Missing)
		}
		return err
	}, "hold": func(args []string) error {
		if _, err := Open(Config{Interface: args[0]}); err != nil {
			return err
		}
		fmt.Print(ready)
		select {} // until it is killed
	}})
}

// ready is what the helper that holds a link prints when it does.
const ready = "open"

// node is a link in a host's namespace.
type node struct {
	*Link
	host *testbed.Host
}

// refuseRing makes openOn open links as if the kernel refused the ring.
var refuseRing bool

// openOn opens links in a host's namespace; they are closed when the test
// ends.
func openOn(t *testing.T, h *testbed.Host, cfg Config) (links []node) {
	t.Helper()
	cfg.noRing = cfg.noRing || refuseRing
	h.Do(func() {
		ls, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			links = append(links, node{l.(*Link), h})
			t.Cleanup(func() { l.Close() })
		}
	})
	return links
}

func openOne(t *testing.T, h *testbed.Host, iface string) node {
	t.Helper()
	return openOn(t, h, Config{Interface: iface})[0]
}

// What the tests share with those of other links, for a node.

func flow(t *testing.T, l node, src, dst netip.Addr) *wire.Flow {
	t.Helper()
	return linktest.Flow(t, l.host, l, src, dst)
}

func burst(l node, f *wire.Flow, qpn uint32, n, size int) *wire.Burst {
	return linktest.Burst(l.Info(), f, qpn, n, size)
}

func send(t *testing.T, l node, bs ...*wire.Burst) {
	t.Helper()
	linktest.Send(t, l, bs...)
}

func receive(t *testing.T, l node, n int) []wire.Datagram {
	t.Helper()
	return linktest.Receive(t, l, n)
}

func match(t *testing.T, ds []wire.Datagram, bs ...*wire.Burst) {
	t.Helper()
	linktest.Match(t, ds, bs...)
}
