package pingpong

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// The out-of-band exchange of rdma-core's pingpong examples.
const (
	msgLen = len("0000:000000:000000:00000000000000000000000000000000") + 1 // with NUL
	done   = "done\x00"
)

// rendezvous connects to the server, or waits for a client for as long as it
// takes.
func rendezvous(ctx context.Context, cfg *Config) (net.Conn, error) {
	if cfg.Peer != "" {
		return dial(ctx, cfg)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(cfg.Port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("TCP port %d is taken, perhaps by another pingpong; -p chooses another, the same on both sides", cfg.Port)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("TCP port %d is not for this user; -p chooses another, the same on both sides", cfg.Port)
	case err != nil:
		return nil, fmt.Errorf("couldn't listen on TCP port %d: %w", cfg.Port, err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if cfg.Ready != nil {
		cfg.Ready(l.Addr().(*net.TCPAddr).Port)
	}
	c, err := l.Accept()
	if err != nil {
		return nil, orDone(ctx, err)
	}
	return c, nil
}

func dial(ctx context.Context, cfg *Config) (net.Conn, error) {
	d := net.Dialer{Timeout: cfg.Timeout}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(cfg.Peer, strconv.Itoa(cfg.Port)))
	var dns *net.DNSError
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &dns):
		return nil, fmt.Errorf("cannot find the host %s: %s; give a name that resolves, or an address", cfg.Peer, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody listens on TCP port %d of %s: start the server there first (rxe pingpong %[3]s, or ibv_%[3]s_pingpong -g N), or give its port with -p", cfg.Port, cfg.Peer, cfg.Service)
	case timedOut(err):
		return nil, fmt.Errorf("no answer from TCP port %d of %s: is the host up, does a firewall drop that port?", cfg.Port, cfg.Peer)
	}
	return nil, fmt.Errorf("couldn't connect to TCP port %d of %s: %w", cfg.Port, cfg.Peer, err)
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func encodeDest(e verbs.Endpoint) []byte {
	s := fmt.Sprintf("%04x:%06x:%06x:%s", e.LID, e.QPN, e.PSN, hex.EncodeToString(e.GID[:]))
	return append([]byte(s), 0)
}

// errNoGID is a peer's that was started without a GID index, which does on
// InfiniBand.
var errNoGID = errors.New("the peer sent an empty GID: start it with the index of a RoCE v2 GID (-g N of ibv_*_pingpong; show_gids lists them)")

// decodeDest reads what a peer sent, of which nothing is believed.
func decodeDest(b []byte) (e verbs.Endpoint, err error) {
	if !dest(b, &e) {
		return verbs.Endpoint{}, fmt.Errorf("the peer sent %q, which is no pingpong address; is another program at this port?", b)
	}
	a := e.GID.Addr()
	switch {
	case e.QPN < 2 || e.QPN == 0xffffff:
		return e, fmt.Errorf("the peer sent QPN %#06x, which cannot be a pingpong's; is its device in order?", e.QPN)
	case e.GID == (verbs.GID{}):
		return e, errNoGID
	case a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return e, fmt.Errorf("the peer sent the GID %v, which is no host's address; choose another index there (-g)", a)
	}
	return e, nil
}

// encodeDests writes as many addresses as a service does: those that there are,
// and zeros.
func encodeDests(es []verbs.Endpoint, n int) []byte {
	b := make([]byte, 0, n*msgLen)
	for i := range n {
		var e verbs.Endpoint
		if i < len(es) {
			e = es[i]
		}
		b = append(b, encodeDest(e)...)
	}
	return b
}

// decodeDests reads the addresses of a peer, of which the first must be one;
// they end where a QPN is 0.
func decodeDests(b []byte) (es []verbs.Endpoint, err error) {
	for ; len(b) >= msgLen; b = b[msgLen:] {
		var e verbs.Endpoint
		if len(es) > 0 && dest(b[:msgLen], &e) && e.QPN == 0 {
			return es, nil
		}
		if e, err = decodeDest(b[:msgLen]); err != nil {
			return nil, err
		}
		es = append(es, e)
	}
	return es, nil
}

// dest takes the fields of a message in the one form that printf gives it.
func dest(b []byte, e *verbs.Endpoint) bool {
	if len(b) != msgLen || b[4] != ':' || b[11] != ':' || b[18] != ':' || b[msgLen-1] != 0 {
		return false
	}
	lid, err1 := strconv.ParseUint(string(b[:4]), 16, 16)
	qpn, err2 := strconv.ParseUint(string(b[5:11]), 16, 24)
	psn, err3 := strconv.ParseUint(string(b[12:18]), 16, 24)
	_, err4 := hex.Decode(e.GID[:], b[19:msgLen-1])
	e.LID, e.QPN, e.PSN = uint16(lid), uint32(qpn), uint32(psn)
	return errors.Join(err1, err2, err3, err4) == nil
}

// sameFamily checks that one IP packet can have both GIDs.
func sameFamily(local, peer verbs.GID) error {
	l, p := local.Addr(), peer.Addr()
	if l.Is4() == p.Is4() {
		return nil
	}
	return fmt.Errorf("the peer's GID is %s %v, this side's %s %v: choose one of the same family on one side (-g N; rxe gids, or show_gids, lists them)",
		family(p), p, family(l), l)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// oob is the connection of the exchange.
type oob struct {
	conn    net.Conn
	timeout time.Duration // of each step, however slowly octets drip
	service Service
}

func (o *oob) readDests() ([]verbs.Endpoint, error) {
	b := make([]byte, services[o.service].addresses*msgLen)
	if err := o.read(b); err != nil {
		return nil, fmt.Errorf("no address from the peer: %w", err)
	}
	return decodeDests(b)
}

func (o *oob) readDone() error {
	b := make([]byte, len(done))
	if err := o.read(b); err != nil {
		return fmt.Errorf("the client did not say that it is connected: %w", err)
	}
	if string(b) != done {
		return fmt.Errorf("the client said %q instead of %q; is it another program?", b, done)
	}
	return nil
}

func (o *oob) read(b []byte) error {
	o.conn.SetReadDeadline(time.Now().Add(o.timeout))
	n, err := io.ReadFull(o.conn, b)
	switch {
	case err == nil:
		return nil
	case timedOut(err):
		return fmt.Errorf("%d of %d octets came in %v; is it %s_pingpong, and not stopped?", n, len(b), o.timeout, o.service)
	case errors.Is(err, net.ErrClosed):
		return err
	}
	return fmt.Errorf("it closed the connection after %d of %d octets; it says why on its side", n, len(b))
}

func (o *oob) write(b []byte) error {
	o.conn.SetWriteDeadline(time.Now().Add(o.timeout))
	if _, err := o.conn.Write(b); err != nil {
		return fmt.Errorf("couldn't tell the peer: %w; it says why on its side", err)
	}
	return nil
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
