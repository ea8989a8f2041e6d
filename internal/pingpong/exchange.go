package pingpong

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// The out-of-band exchange of rdma-core's pingpong examples: the client writes
// its destination, the server connects its queue pair and answers with its
// own, the client connects and says "done".
const (
	msgLen  = len("0000:000000:000000:00000000000000000000000000000000") + 1 // with NUL
	doneLen = len("done") + 1
)

// exchangeTimeout bounds each step of the exchange: a peer that connects and
// then says nothing is not waited for forever.
const exchangeTimeout = 30 * time.Second

func encodeDest(e verbs.Endpoint) []byte {
	s := fmt.Sprintf("%04x:%06x:%06x:%s", e.LID, e.QPN, e.PSN, hex.EncodeToString(e.GID[:]))
	return append([]byte(s), 0)
}

func decodeDest(b []byte) (e verbs.Endpoint, err error) {
	bad := fmt.Errorf("the peer sent %q, which is no pingpong address; is another program listening on this port?", b)
	if len(b) != msgLen || b[msgLen-1] != 0 {
		return e, bad
	}
	var lid, qpn, psn uint32
	var gid string
	if n, err := fmt.Sscanf(string(b[:msgLen-1]), "%x:%x:%x:%s", &lid, &qpn, &psn, &gid); err != nil || n != 4 {
		return e, bad
	}
	raw, err := hex.DecodeString(gid)
	if err != nil || len(raw) != 16 || qpn > 0xffffff || psn > 0xffffff {
		return e, bad
	}
	e = verbs.Endpoint{LID: uint16(lid), QPN: qpn, PSN: psn, GID: verbs.GID(raw)}
	if e.GID == (verbs.GID{}) {
		return e, errors.New("the peer sent an empty GID: start it with a GID index (ibv_rc_pingpong -g N, see show_gids)")
	}
	return e, nil
}

func readDest(c net.Conn) (verbs.Endpoint, error) {
	b := make([]byte, msgLen)
	c.SetReadDeadline(time.Now().Add(exchangeTimeout))
	if _, err := io.ReadFull(c, b); err != nil {
		return verbs.Endpoint{}, fmt.Errorf("reading the peer's address: %w", explainIO(err))
	}
	return decodeDest(b)
}

func writeAll(c net.Conn, b []byte) error {
	c.SetWriteDeadline(time.Now().Add(exchangeTimeout))
	_, err := c.Write(b)
	return err
}

func readDone(c net.Conn) error {
	b := make([]byte, doneLen)
	c.SetReadDeadline(time.Now().Add(exchangeTimeout))
	if _, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("the client did not say it is connected: %w", explainIO(err))
	}
	return nil
}

func explainIO(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it closed the connection; it prints why on its side")
	case errors.Is(err, net.ErrClosed):
		return err
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("nothing came for %v", exchangeTimeout)
	}
	return err
}
