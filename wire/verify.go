package wire

import (
	"net/netip"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// Bounds of the window in which a hidden IPv4 identification is believed.
const (
	// idCounted: identifications below this are those of a counted burst
	// (IDCount), sent by a peer like us; segments of it may arrive singly.
	idCounted = MaxSegments
	// idSure: a peer whose first so many identifications are counted ones counts
	// all of them; a single other one is then more likely damaged than its own.
	idSure = 16
	// idAhead: how far past the peer's last identification the next may be.
	// Linux draws them from a counter shared by the destinations of a hash
	// bucket, so other traffic of the peer moves it too. And a pause of the
	// peer moves it without a pause here when packets from before and after
	// are taken together: half a second at one a millisecond. UC and UD do not
	// send again what is dropped for that. Nor may queue pairs that take turns
	// (idBehind) be farther apart.
	idAhead = 512
	// idBehind: how far back a reordered packet may be. Linux takes the
	// identification before the packet waits in a queueing discipline, and
	// fq_codel and fq serve the queue pairs in turn, whose ports differ: eight of
	// Soft-RoCE's, with 64 packets waiting each, were up to 492 apart.
	idBehind = 512
	// idPerMilli: Linux moves the counter by up to one per clock tick of idle
	// time (ip_idents_reserve); the fastest tick is 1 ms. A ConnectX has one
	// counter for all it sends, so with traffic to others it moves much faster:
	// such a rate is learned, up to idMaxRate.
	idPerMilli = 1
	idMaxRate  = 50_000
	// idMinGap is the shortest time, in nanoseconds, that a rate is taken from.
	idMinGap = 10_000
	// missWeight and missLimit: when more than one packet in missWeight falls
	// outside the window, the rate is too low and doubled. What is damaged gets
	// as far as the window once in 2^16 times, so it is the peer's own.
	missWeight = 16
	missLimit  = 64
	// maxPeers bounds the table; it is emptied when full.
	maxPeers = 4096
)

// Verifier checks invariant CRCs. Where a datagram carries its IP header the
// check is exact. From a UDP socket over IPv4 the identification is hidden.
// The CRC is linear, so the identification that would make the ICRC right is
// solved for, and the packet is accepted if there is one (a wrong packet has
// one with probability 2^-16) and it lies where the peer's next must lie:
//
//   - 0 to 127: the segments of a counted burst;
//   - the peer's last plus 1 to 512, plus one per idle millisecond (or what the
//     peer's counter was seen to move in that time), or up to 512 behind it.
//
// In steady traffic that lets a random error pass with probability 2^-21.8, on
// top of the UDP checksum where the sender fills it in. The first
// identification of a peer outside 0 to 127 is taken on the ICRC's word alone,
// with DF set or clear (2^-15), and counted as trace.NoteIDLearned; from then
// on the peer's DF bit is known too. Of a peer that has sent 16 from 0 to 127
// and no other, it takes two that fit each other. One outside the window, or with the other
// DF bit, is dropped and remembered; a second one that fits after it, at no more
// than twice the rate that would explain the first, moves the window there and
// widens it to that rate from then on; and the rate is doubled while more than
// one in 16 falls outside. A peer whose counter other traffic moves
// by 65536 between two packets is thus checked at 2^-16 only.
//
// What is said of a peer here is kept for each address of ours that it sends to, groups
// among them: Linux has other counters for other destinations.
//
// Anybody can make a right ICRC, with any source address: what a packet says of
// its peer counts only when somebody vouches for it (Confirm). Otherwise one
// forged packet could make a Verifier deaf to a peer, and many could fill its
// table.
//
// One goroutine at a time may use a Verifier.
type Verifier struct {
	peers map[way]*idPeer

	// what the last packet would change, until it is confirmed
	news    idPeer
	newsOf  way
	hasNews bool

	// the last peer, and the last pseudo header's state
	last     *idPeer
	lastWay  way
	src, dst netip.Addr
	sport    uint16
	flags    uint16
	n        int
	state    uint32

	// Learned counts identifications taken on the ICRC's word alone.
	Learned uint64
}

// way is from a peer to an address of ours, or a group.
type way struct{ src, dst netip.Addr }

type idPeer struct {
	id        uint16
	known     bool
	clear     bool  // sends with DF clear
	counted   uint8 // identifications below idCounted while not known, up to idSure
	odd       bool  // seen, not solved for, to count otherwise
	cand      uint16
	candClear bool
	has       bool  // cand is set
	at        int64 // when the window moved last
	candAt    int64
	candRate  int64 // per millisecond, that would explain cand
	rate      int64 // learned, per millisecond
	missed    uint8 // missWeight for each packet outside the window, 1 less for each inside
}

// NewVerifier returns a Verifier that knows no peers.
func NewVerifier() *Verifier { return &Verifier{peers: make(map[way]*idPeer)} }

// Check is Examine and Confirm: for those who take every packet at its word,
// such as a capture.
func (v *Verifier) Check(now int64, d *Datagram, i int) trace.Reason {
	r := v.Examine(now, d, i)
	v.Confirm()
	return r
}

// Examine verifies the ICRC of segment i of d at time now (nanoseconds, any
// epoch). It returns trace.None, trace.DropShort, trace.DropICRC or
// trace.DropICRCWindow. Only after Confirm do later packets of the peer profit
// from this one.
//
//gorxe:hot
func (v *Verifier) Examine(now int64, d *Datagram, i int) trace.Reason {
	v.hasNews = false
	pkt := d.Segment(i)
	if len(pkt) < bth.BTHLen+bth.ICRCLen {
		return trace.DropShort
	}
	flags := uint16(FlagDF)
	if d.IDKnown {
		flags = d.Flags
	}
	if len(pkt) != v.n || d.SrcPort != v.sport || flags != v.flags || d.Src != v.src || d.Dst != v.dst {
		v.n, v.sport, v.flags, v.src, v.dst = len(pkt), d.SrcPort, flags, d.Src, d.Dst
		v.state = prefixState(d.Src, d.Dst, d.SrcPort, len(pkt), flags)
	}
	body := pkt[:len(pkt)-bth.ICRCLen]
	if !d.Src.Is4() {
		if packetState(v.state, body) != storedICRC(pkt) {
			return trace.DropICRC
		}
		return trace.None
	}
	id := uint16(i)
	if d.IDKnown {
		id += d.ID
	}
	diff := packetState(v.state^idState(id), body) ^ storedICRC(pkt)
	switch {
	case diff == 0:
		if i == 0 {
			v.count(way{d.Src, d.Dst}, !d.IDKnown || d.ID == 0 && d.Flags&FlagDF != 0)
		}
		return trace.None
	case d.IDKnown:
		// Linux also merges datagrams that all have one identification, as the
		// single packets of a socket with DF set have (RFC 6864).
		if i > 0 && packetState(v.state^idState(d.ID), body) == storedICRC(pkt) {
			return trace.None
		}
		return trace.DropICRC
	}
	diff = crcUnshift(diff, len(body))
	off, ok := idBasis.solve(diff)
	clear := !ok // perhaps the sender does not set DF
	if clear {
		if off, ok = idBasis.solve(diff ^ dfState); !ok {
			return trace.DropICRC
		}
	}
	v.newsOf = way{d.Src, d.Dst}
	v.news = v.peer(v.newsOf)
	before := v.news
	r := v.news.admit(now, id^off, clear)
	v.hasNews = v.news != before
	return r
}

// Confirm makes the packet examined last count for its peer: the caller knows
// by other means that it is the peer's, or at least that the peer is one.
func (v *Verifier) Confirm() {
	if !v.hasNews {
		return
	}
	v.hasNews = false
	p := v.last
	if p == nil || v.lastWay != v.newsOf {
		if p = v.peers[v.newsOf]; p == nil {
			if len(v.peers) >= maxPeers {
				clear(v.peers)
			}
			p = new(idPeer)
			v.peers[v.newsOf] = p
		}
		v.last, v.lastWay = p, v.newsOf
	}
	if !p.known && v.news.known {
		v.Learned++
	}
	*p = v.news
}

// count notes whether a peer counts the identifications of a burst from 0. Where
// every identification is seen, one that does not begin there settles it.
func (v *Verifier) count(w way, counts bool) {
	p := v.peer(w)
	switch {
	case p.known || p.odd || counts && p.counted == idSure:
		return
	case counts:
		p.counted++
	default:
		p.odd = true
	}
	v.news, v.newsOf, v.hasNews = p, w, true
}

// Counts reports whether a peer is known to number the packets of each burst to a
// local address from 0, as UDP segmentation offload on an unconnected socket does, and
// no others. Over IPv6 it is not known of any.
func (v *Verifier) Counts(peer, local netip.Addr) bool {
	p := v.peer(way{peer, local})
	return !p.known && !p.odd && p.counted >= idSure
}

// admit decides whether a solved identification is where the peer's next one
// may be, and moves the window.
func (p *idPeer) admit(now int64, id uint16, clear bool) trace.Reason {
	if !p.known {
		switch {
		case id < idCounted && !clear:
			p.counted = min(p.counted+1, idSure)
		case p.counted < idSure || p.follows(now, id, clear, idPerMilli):
			p.id, p.known, p.clear, p.at, p.has = id, true, clear, now, false
		default:
			p.cand, p.candClear, p.has, p.candAt = id, clear, true, now
			return trace.DropICRCWindow
		}
		return trace.None
	}
	same := clear == p.clear
	switch {
	case same && id-p.id <= ahead(now-p.at, max(p.rate, idPerMilli)) && id != p.id:
		p.id, p.at, p.has = id, now, false
		p.missed -= min(p.missed, 1)
		return trace.None
	case same && p.id-id <= idBehind: // reordered or repeated: does not move the window
		return trace.None
	case same && id < idCounted:
		return trace.None
	case p.follows(now, id, clear, 2*p.candRate):
		if now-p.candAt >= idMinGap { // otherwise it tells of no rate
			p.rate = min(2*max(p.rate, p.candRate), idMaxRate)
		}
		p.id, p.clear, p.at, p.has = id, clear, now, false
		return trace.None
	}
	gap := max(now-p.at, idMinGap)
	p.cand, p.candClear, p.has, p.candAt = id, clear, true, now
	p.candRate = min(int64(id-p.id)*1e6/gap+1, idMaxRate)
	if p.missed += missWeight; p.missed >= missLimit {
		p.rate, p.missed = min(2*max(p.rate, p.candRate), idMaxRate), 0
	}
	return trace.DropICRCWindow
}

// follows reports whether an identification fits after the one that was
// remembered.
func (p *idPeer) follows(now int64, id uint16, clear bool, rate int64) bool {
	return p.has && clear == p.candClear && id != p.cand && id-p.cand <= ahead(now-p.candAt, rate)
}

// ahead returns how far a counter may have moved in a time without packets, at
// a rate per millisecond.
func ahead(nanos, rate int64) uint16 {
	const most = 0xffff - idBehind
	if nanos <= 0 {
		return idAhead
	}
	if nanos >= most*1e6 {
		return most
	}
	return uint16(min(idAhead+nanos*rate/1e6, most))
}

// peer returns what is known of a peer.
func (v *Verifier) peer(w way) idPeer {
	if v.last != nil && v.lastWay == w {
		return *v.last
	}
	p := v.peers[w]
	if p == nil {
		return idPeer{}
	}
	v.last, v.lastWay = p, w
	return *p
}

// dfState is what the DF bit contributes to the state after the pseudo header.
var dfState = func() uint32 {
	v := crcSlice[0][FlagDF>>8]
	for range prefix4 - 8 - 7 {
		v = crcSlice[0][byte(v)] ^ v>>8
	}
	return v
}()

// basis is an echelon form of the 16 contributions of single identification
// bits, each with the identification that makes it.
type basis struct {
	vec [32]uint32 // by highest bit
	id  [32]uint16
}

var idBasis = func() (b basis) {
	for i := range 16 {
		v, id := idState(1<<i), uint16(1)<<i
		for bit := 31; v != 0; bit-- {
			if v>>bit&1 == 0 {
				continue
			}
			if b.vec[bit] == 0 {
				b.vec[bit], b.id[bit] = v, id
				break
			}
			v, id = v^b.vec[bit], id^b.id[bit]
		}
	}
	return b
}()

func (b *basis) solve(d uint32) (id uint16, ok bool) {
	for bit := 31; bit >= 0 && d != 0; bit-- {
		if d>>bit&1 != 0 {
			if b.vec[bit] == 0 {
				return 0, false
			}
			d ^= b.vec[bit]
			id ^= b.id[bit]
		}
	}
	return id, true
}
