package perf

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is two devices on a network in memory.
type world struct {
	t            *testing.T
	server, host *verbs.Context // host is the client's
}

var (
	serverAddr = netip.MustParseAddr("192.0.2.1")
	clientAddr = netip.MustParseAddr("192.0.2.2")
)

// newWorld opens the devices; rules break the client's traffic. They are closed
// by close, which is to come before a bubble ends.
func newWorld(t *testing.T, rules string) *world {
	t.Helper()
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	if rules != "" {
		bs = fault.WrapAll(bs, fault.Config{Rules: fault.MustParse(rules), Seed: 7})
	}
	return &world{t: t, server: device(t, as, serverAddr), host: device(t, bs, clientAddr)}
}

func device(t *testing.T, links []link.Link, a netip.Addr) *verbs.Context {
	t.Helper()
	d, err := nic.Open(nic.Config{
		Links: links, NetDev: "mem", Seed: uint64(a.As4()[3]),
		GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(a), Type: "RoCE v2", Interface: "mem"}},
	})
	require.NoError(t, err)
	return verbs.NewContext(d)
}

func (w *world) close() {
	require.NoError(w.t, w.server.Close())
	require.NoError(w.t, w.host.Close())
}

// side is a Run in a goroutine.
type side struct {
	out  bytes.Buffer
	done chan error
}

func (w *world) start(ctx context.Context, cfg Config) *side {
	s := &side{done: make(chan error, 1)}
	cfg.Out = &s.out
	go func() { s.done <- Run(ctx, cfg) }()
	return s
}

// configs returns what the two ends run: a short test, as change says.
func (w *world) configs(k oob.Kind, change func(c *Config)) (server, client Config) {
	both := func(dev *verbs.Context, peer string, conn net.Conn) Config {
		c := Default(k)
		c.Iters, c.GIDIndex, c.Peer, c.Device, c.conn, c.Size = 60, 0, peer, dev, conn, min(c.Size, 9000)
		change(&c)
		return c
	}
	a, b := net.Pipe()
	return both(w.server, "", a), both(w.host, "192.0.2.1", b)
}

// play runs both ends to their ends.
func (w *world) play(k oob.Kind, change func(c *Config)) (server, client *side, serr, cerr error) {
	s, c := w.configs(k, change)
	server = w.start(w.t.Context(), s)
	client = w.start(w.t.Context(), c)
	return server, client, <-server.done, <-client.done
}

// bubble runs f in virtual time.
func bubble(t *testing.T, rules string, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rules)
		defer w.close()
		f(w)
	})
}

var allKinds = []oob.Kind{oob.SendBW, oob.SendLat, oob.WriteBW, oob.WriteLat, oob.ReadBW, oob.ReadLat, oob.AtomicBW, oob.AtomicLat}

// variants are the options that change what a run does.
func variants(k oob.Kind) map[string]func(*Config) {
	v := map[string]func(*Config){
		"plain": func(*Config) {},
		"once":  func(c *Config) { c.Iters = leastIters },
	}
	if !atomics(k) {
		for _, n := range []int{1, 3, 4096, 4097, 10000, 65536} {
			v[fmt.Sprint("size ", n)] = func(c *Config) { c.Size = n }
		}
		v["all"] = func(c *Config) { c.All, c.Iters, c.RxDepth = true, 5, 2 }
	} else {
		v["swap"] = func(c *Config) { c.CmpSwap = true }
	}
	if !writes(k) {
		v["events"] = func(c *Config) { c.Events = true }
	}
	if k.Send() || writes(k) {
		v["inline"] = func(c *Config) { c.Inline, c.Size = 200, 130 }
		v["uc"] = func(c *Config) { c.Transport = verbs.UC }
	}
	if k.Send() {
		v["ud"] = func(c *Config) { c.Transport, c.Size = verbs.UD, 1000 }
		v["ud full"] = func(c *Config) { c.Transport, c.Size = verbs.UD, 4096 }
		v["ud all"] = func(c *Config) { c.Transport, c.All = verbs.UD, true }
		v["srq"] = func(c *Config) { c.SRQ = true }
		v["ud srq"] = func(c *Config) { c.Transport, c.Size, c.SRQ = verbs.UD, 7, true }
		v["rx depth"] = func(c *Config) { c.RxDepth = 2 }
	}
	if writes(k) {
		v["imm"] = func(c *Config) { c.WriteImm = true }
	}
	if reads(k) || atomics(k) {
		v["outs"] = func(c *Config) { c.OutReads = 1 }
	}
	if k.Latency() {
		return v
	}
	for name, one := range map[string]func(*Config){
		"both":     func(c *Config) { c.Both = true },
		"qps":      func(c *Config) { c.QPs = 5 },
		"list":     func(c *Config) { c.PostList = 10 },
		"list mod": func(c *Config) { c.PostList, c.CQMod = 10, 5 },
		"cq mod":   func(c *Config) { c.CQMod = 7 },
		"depth":    func(c *Config) { c.TxDepth = 1 },
		"no peak":  func(c *Config) { c.NoPeak = true },
		"gbits":    func(c *Config) { c.Gbits, c.Both, c.ReportBoth = true, true, true },
		"much":     func(c *Config) { c.QPs, c.PostList, c.Both = 3, 4, true },
	} {
		v[name] = one
	}
	if k.Send() {
		v["srq qps"] = func(c *Config) { c.SRQ, c.QPs = true, 4 }
		v["ud both"] = func(c *Config) { c.Transport, c.Size, c.Both = verbs.UD, 100, true }
		v["uc qps"] = func(c *Config) { c.Transport, c.QPs = verbs.UC, 3 }
	}
	if k == oob.WriteBW || k == oob.SendBW {
		v["all both"] = func(c *Config) { c.All, c.Both, c.Iters, c.TxDepth, c.RxDepth = true, true, 5, 2, 2 }
	}
	return v
}

// TestVariants: every tool with every option, with and without a check.
func TestVariants(t *testing.T) {
	for _, k := range allKinds {
		for name, change := range variants(k) {
			for _, check := range []bool{false, true} {
				if strings.HasPrefix(name, "all") && check != (name == "all" && (k == oob.SendBW || k == oob.WriteBW)) {
					continue // they take their time
				}
				t.Run(fmt.Sprintf("%v %s check=%v", k, name, check), func(t *testing.T) {
					bubble(t, "", func(w *world) {
						_, _, serr, cerr := w.play(k, func(c *Config) {
							change(c)
							c.Check = check && !(k == oob.WriteBW && (c.Transport == verbs.UC || c.WriteImm))
						})
						require.NoError(t, cerr, "client")
						require.NoError(t, serr, "server")
					})
				})
			}
		}
	}
}

// TestLoss: what RC repeats is invisible, and checked.
func TestLoss(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.String(), func(t *testing.T) {
			bubble(t, "tx drop 3%; rx drop 3%; rx dup 2%", func(w *world) {
				_, _, serr, cerr := w.play(k, func(c *Config) {
					c.Check, c.Iters = true, 100
					if !atomics(k) {
						c.Size = 9000
					}
					if k == oob.WriteLat {
						c.Iters = 20 // it polls in time of this machine
					}
				})
				require.NoError(t, cerr, "client")
				require.NoError(t, serr, "server")
			})
		})
	}
}
