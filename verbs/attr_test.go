package verbs

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/trace"
)

// TestValues: numbers are those of rdma-core's verbs.h.
func TestValues(t *testing.T) {
	for name, v := range map[string][2]int{
		"IBV_QPT_RC": {int(RC), 2}, "IBV_QPT_UC": {int(UC), 3}, "IBV_QPT_UD": {int(UD), 4},

		"IBV_ACCESS_LOCAL_WRITE": {int(AccessLocalWrite), 1}, "IBV_ACCESS_REMOTE_WRITE": {int(AccessRemoteWrite), 2},
		"IBV_ACCESS_REMOTE_READ": {int(AccessRemoteRead), 4}, "IBV_ACCESS_REMOTE_ATOMIC": {int(AccessRemoteAtomic), 8},
		"IBV_ACCESS_MW_BIND": {int(AccessMWBind), 16}, "IBV_ACCESS_ZERO_BASED": {int(AccessZeroBased), 32}, "all access": {int(AccessAll), 15},

		"IBV_WR_RDMA_WRITE": {int(WRWrite), 0}, "IBV_WR_RDMA_WRITE_WITH_IMM": {int(WRWriteImm), 1}, "IBV_WR_SEND": {int(WRSend), 2},
		"IBV_WR_SEND_WITH_IMM": {int(WRSendImm), 3}, "IBV_WR_RDMA_READ": {int(WRRead), 4}, "IBV_WR_ATOMIC_CMP_AND_SWP": {int(WRCmpSwap), 5},
		"IBV_WR_ATOMIC_FETCH_AND_ADD": {int(WRFetchAdd), 6}, "IBV_WR_SEND_WITH_INV": {int(WRSendInv), 9},
		"IBV_WR_LOCAL_INV": {int(WRLocalInv), 7}, "IBV_WR_BIND_MW": {int(WRBindMW), 8}, "IBV_MW_TYPE_1": {int(MWType1), 1}, "IBV_MW_TYPE_2": {int(MWType2), 2},

		"IBV_SEND_FENCE": {int(SendFence), 1}, "IBV_SEND_SIGNALED": {int(SendSignaled), 2}, "IBV_SEND_SOLICITED": {int(SendSolicited), 4},
		"IBV_SEND_INLINE": {int(SendInline), 8},

		"IBV_WC_SUCCESS": {int(WCSuccess), 0}, "IBV_WC_LOC_LEN_ERR": {int(WCLocLenErr), 1}, "IBV_WC_LOC_QP_OP_ERR": {int(WCLocQPOpErr), 2},
		"IBV_WC_LOC_PROT_ERR": {int(WCLocProtErr), 4}, "IBV_WC_WR_FLUSH_ERR": {int(WCWRFlushErr), 5}, "IBV_WC_MW_BIND_ERR": {int(WCMWBindErr), 6},
		"IBV_WC_BAD_RESP_ERR": {int(WCBadRespErr), 7}, "IBV_WC_LOC_ACCESS_ERR": {int(WCLocAccessErr), 8}, "IBV_WC_REM_INV_REQ_ERR": {int(WCRemInvReqErr), 9},
		"IBV_WC_REM_ACCESS_ERR": {int(WCRemAccessErr), 10}, "IBV_WC_REM_OP_ERR": {int(WCRemOpErr), 11}, "IBV_WC_RETRY_EXC_ERR": {int(WCRetryExcErr), 12},
		"IBV_WC_RNR_RETRY_EXC_ERR": {int(WCRNRRetryExcErr), 13}, "IBV_WC_FATAL_ERR": {int(WCFatalErr), 19}, "IBV_WC_GENERAL_ERR": {int(WCGeneralErr), 21},

		"IBV_WC_SEND": {int(WCSend), 0}, "IBV_WC_RDMA_WRITE": {int(WCWrite), 1}, "IBV_WC_RDMA_READ": {int(WCRead), 2}, "IBV_WC_COMP_SWAP": {int(WCCmpSwap), 3},
		"IBV_WC_FETCH_ADD": {int(WCFetchAdd), 4}, "IBV_WC_BIND_MW": {int(WCBindMW), 5}, "IBV_WC_LOCAL_INV": {int(WCLocalInv), 6},
		"IBV_WC_RECV": {int(WCRecv), 128}, "IBV_WC_RECV_RDMA_WITH_IMM": {int(WCRecvWriteImm), 129},

		"IBV_WC_GRH": {int(WCGRH), 1}, "IBV_WC_WITH_IMM": {int(WCWithImm), 2}, "IBV_WC_WITH_INV": {int(WCWithInv), 8},

		"IBV_QPS_RESET": {int(StateReset), 0}, "IBV_QPS_INIT": {int(StateInit), 1}, "IBV_QPS_RTR": {int(StateRTR), 2}, "IBV_QPS_RTS": {int(StateRTS), 3},
		"IBV_QPS_SQD": {int(StateSQD), 4}, "IBV_QPS_SQE": {int(StateSQE), 5}, "IBV_QPS_ERR": {int(StateErr), 6},

		"IBV_QP_STATE": {int(AttrState), 1 << 0}, "IBV_QP_ACCESS_FLAGS": {int(AttrAccess), 1 << 3}, "IBV_QP_PKEY_INDEX": {int(AttrPKeyIndex), 1 << 4},
		"IBV_QP_PORT": {int(AttrPort), 1 << 5}, "IBV_QP_QKEY": {int(AttrQKey), 1 << 6}, "IBV_QP_AV": {int(AttrAV), 1 << 7},
		"IBV_QP_PATH_MTU": {int(AttrPathMTU), 1 << 8}, "IBV_QP_TIMEOUT": {int(AttrTimeout), 1 << 9}, "IBV_QP_RETRY_CNT": {int(AttrRetryCnt), 1 << 10},
		"IBV_QP_RNR_RETRY": {int(AttrRNRRetry), 1 << 11}, "IBV_QP_RQ_PSN": {int(AttrRQPSN), 1 << 12}, "IBV_QP_MAX_QP_RD_ATOMIC": {int(AttrMaxRdAtomic), 1 << 13},
		"IBV_QP_MIN_RNR_TIMER": {int(AttrMinRNRTimer), 1 << 15}, "IBV_QP_SQ_PSN": {int(AttrSQPSN), 1 << 16},
		"IBV_QP_MAX_DEST_RD_ATOMIC": {int(AttrMaxDestRdAtomic), 1 << 17}, "IBV_QP_DEST_QPN": {int(AttrDestQPN), 1 << 20},
		"IBV_QP_RATE_LIMIT": {int(AttrRateLimit), 1 << 25},

		"IBV_EVENT_CQ_ERR": {int(EventCQErr), 0}, "IBV_EVENT_QP_FATAL": {int(EventQPFatal), 1}, "IBV_EVENT_QP_REQ_ERR": {int(EventQPReqErr), 2},
		"IBV_EVENT_QP_ACCESS_ERR": {int(EventQPAccessErr), 3}, "IBV_EVENT_COMM_EST": {int(EventCommEst), 4}, "IBV_EVENT_SQ_DRAINED": {int(EventSQDrained), 5},
		"IBV_EVENT_DEVICE_FATAL": {int(EventDeviceFatal), 8}, "IBV_EVENT_PORT_ACTIVE": {int(EventPortActive), 9}, "IBV_EVENT_PORT_ERR": {int(EventPortErr), 10},
		"IBV_EVENT_QP_LAST_WQE_REACHED": {int(EventLastWQE), 16},

		"IBV_MTU_256": {MTU(256).Enum(), 1}, "IBV_MTU_512": {MTU(512).Enum(), 2}, "IBV_MTU_1024": {MTU(1024).Enum(), 3},
		"IBV_MTU_2048": {MTU(2048).Enum(), 4}, "IBV_MTU_4096": {MTU(4096).Enum(), 5},
	} {
		require.Equal(t, v[1], v[0], name)
	}
	for _, m := range []MTU{-1, 0, 1, 255, 257, 1500, 8192} {
		require.Zero(t, m.Enum(), m)
		require.False(t, m.Valid(), m)
	}
	require.True(t, MTU(1024).Valid())
}

// TestRates: the codes of rdma-core's enum ibv_rate, and what its ibv_rate_to_mbps
// says each is; every other code means nothing.
func TestRates(t *testing.T) {
	known := map[Rate]int{
		2: 2500, 3: 10000, 4: 30000, 5: 5000, 6: 20000, 7: 40000, 8: 60000, 9: 80000, 10: 120000, // IBV_RATE_2_5_GBPS to 120
		11: 14062, 12: 56250, 13: 112500, 14: 168750, // 14, 56, 112, 168
		15: 25781, 16: 103125, 17: 206250, 18: 309375, // 25, 100, 200, 300
		19: 28125, 20: 53125, 21: 425000, 22: 637500, 23: 850000, 24: 1275000, // 28, 50, 400, 600, 800, 1200
		0: 0, // IBV_RATE_MAX: no limit
	}
	for r := range 256 {
		mbps, ok := Rate(r).Mbps()
		want, known := known[Rate(r)]
		require.Equal(t, known, ok, r)
		require.Equal(t, want, mbps, r)
	}
}

// TestStrings: each value has a text of its own, and one that is none says so.
func TestStrings(t *testing.T) {
	require.Equal(t, "RC UC UD QPType(0) QPType(5)", words([]QPType{RC, UC, UD, 0, 5}))
	require.Equal(t, "RESET INIT RTR RTS SQD SQE ERR QPState(7) QPState(255)", words([]QPState{0, 1, 2, 3, 4, 5, 6, 7, 255}))
	require.Equal(t, "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD LOCAL_INV BIND_MW SEND_WITH_INV WROpcode(10)",
		words([]WROpcode{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}))
	seen := map[string]bool{}
	for _, s := range []WCStatus{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 19, 20, 21, 22, 255} {
		require.False(t, seen[s.String()], "%v twice", s)
		seen[s.String()] = true
		known := s <= 13 && s != 3 || s == 19 || s == 21
		require.Equal(t, !known, s.String() == fmt.Sprintf("WCStatus(%d)", uint8(s)), s)
	}
	// The words that ibv_wc_status_str has and users search for.
	require.Equal(t, "transport retry counter exceeded", WCRetryExcErr.String())
	require.Equal(t, "Work Request Flushed Error", WCWRFlushErr.String())
	for _, e := range []EventType{0, 1, 2, 3, 4, 5, 8, 9, 10, 16} {
		require.NotContains(t, e.String(), "EventType", uint8(e))
		require.False(t, seen[e.String()])
		seen[e.String()] = true
	}
	require.Equal(t, "EventType(6)", EventType(6).String())
	require.Equal(t, "State|Access|PKeyIndex|Port|QKey|AV|PathMTU|Timeout|RetryCnt|RNRRetry|RQPSN|MaxRdAtomic|MinRNRTimer|SQPSN|MaxDestRdAtomic|DestQPN|RateLimit|FlowControl", allAttrs.String())
	require.Equal(t, "", AttrMask(0).String())
	require.Equal(t, "AV|0x4002", (AttrAV | 1<<1 | 1<<14).String())
}

func words[T fmt.Stringer](s []T) string {
	var b []string
	for _, x := range s {
		b = append(b, x.String())
	}
	return strings.Join(b, " ")
}

const allAttrs = AttrState | AttrAccess | AttrPKeyIndex | AttrPort | AttrQKey | AttrAV | AttrPathMTU | AttrTimeout | AttrRetryCnt | AttrRNRRetry |
	AttrRQPSN | AttrMaxRdAtomic | AttrMinRNRTimer | AttrSQPSN | AttrMaxDestRdAtomic | AttrDestQPN | AttrRateLimit | AttrFlowControl

// goldenTransitions are the transitions there are besides those to RESET and
// ERR: from, to, what must be set and what may be, as Linux's ib_core has them,
// less alternate paths, CUR_STATE, the SQD notification and the port in SQD.
const goldenTransitions = `
RC RESET INIT must Access|PKeyIndex|Port
RC INIT INIT may Access|PKeyIndex|Port
RC INIT RTR must AV|PathMTU|RQPSN|MinRNRTimer|MaxDestRdAtomic|DestQPN may Access|PKeyIndex|RateLimit|FlowControl
RC RTR RTS must Timeout|RetryCnt|RNRRetry|MaxRdAtomic|SQPSN may Access|MinRNRTimer|RateLimit
RC RTS RTS may Access|MinRNRTimer|RateLimit
RC RTS SQD
RC SQD RTS may Access|MinRNRTimer|RateLimit
RC SQD SQD may Access|PKeyIndex|AV|Timeout|RetryCnt|RNRRetry|MaxRdAtomic|MinRNRTimer|MaxDestRdAtomic|RateLimit
UC RESET INIT must Access|PKeyIndex|Port
UC INIT INIT may Access|PKeyIndex|Port
UC INIT RTR must AV|PathMTU|RQPSN|DestQPN may Access|PKeyIndex|RateLimit
UC RTR RTS must SQPSN may Access|RateLimit
UC RTS RTS may Access|RateLimit
UC RTS SQD
UC SQD RTS may Access|RateLimit
UC SQD SQD may Access|PKeyIndex|AV|RateLimit
UC SQE RTS may Access|RateLimit
UD RESET INIT must PKeyIndex|Port|QKey
UD INIT INIT may PKeyIndex|Port|QKey
UD INIT RTR may PKeyIndex|QKey|RateLimit
UD RTR RTS must SQPSN may QKey|RateLimit
UD RTS RTS may QKey|RateLimit
UD RTS SQD
UD SQD RTS may QKey|RateLimit
UD SQD SQD may PKeyIndex|QKey|RateLimit
UD SQE RTS may QKey|RateLimit
`

// TestTransitions finds out by asking which transitions there are and what
// each must and may set, and compares with the table above.
func TestTransitions(t *testing.T) {
	var got strings.Builder
	got.WriteByte('\n')
	bits := func(yes func(AttrMask) bool) (m AttrMask) {
		for b := AttrMask(1); b != 0; b <<= 1 {
			if b&allAttrs&^AttrState != 0 && yes(b) {
				m |= b
			}
		}
		return m
	}
	for _, typ := range []QPType{RC, UC, UD} {
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				check := func(m AttrMask) error { return CheckTransition(typ, from, to, AttrState|m) }
				if to == StateReset || to == StateErr {
					require.NoError(t, check(0))
					for b := AttrMask(2); b != 0; b <<= 1 {
						err := check(b)
						require.ErrorIs(t, err, ErrState)
						require.ErrorContains(t, err, "takes no attribute but State, not "+b.String())
					}
					continue
				}
				legal := false
				need := bits(func(b AttrMask) bool { // needed if all the others do not do
					err := check(allAttrs &^ b)
					legal = legal || !strings.Contains(err.Error(), "does not go")
					return strings.Contains(err.Error(), "needs "+b.String()+" as well")
				})
				if !legal {
					err := check(0)
					require.ErrorIs(t, err, ErrState)
					require.EqualError(t, err, fmt.Sprintf("verbs: queue pair state: a %v QP does not go from %v to %v (RESET, INIT, RTR, RTS is the way up)", typ, from, to))
					continue
				}
				may := bits(func(b AttrMask) bool { return need&b == 0 && check(need|b) == nil })
				require.NoError(t, check(need|may))
				if need != 0 {
					require.ErrorContains(t, check(may), fmt.Sprintf("%v QP from %v to %v needs %v as well", typ, from, to, need))
				}
				for b := AttrMask(2); b != 0; b <<= 1 { // unknown bits too
					if b&(need|may) == 0 {
						err := check(need | b)
						require.ErrorIs(t, err, ErrState)
						require.ErrorContains(t, err, "does not take "+b.String())
					}
				}
				if from == to { // the same without naming the state
					require.NoError(t, CheckTransition(typ, from, to, need|may))
				}
				fmt.Fprintf(&got, "%v %v %v", typ, from, to)
				if need != 0 {
					fmt.Fprintf(&got, " must %v", need)
				}
				if may != 0 {
					fmt.Fprintf(&got, " may %v", may)
				}
				got.WriteByte('\n')
			}
		}
	}
	require.Equal(t, goldenTransitions, got.String())
}

// TestNoTransition: without AttrState a queue pair stays where it is, whatever
// state the attributes name.
func TestNoTransition(t *testing.T) {
	for s := StateReset; s <= StateErr; s++ {
		require.NoError(t, CheckTransition(RC, s, s, 0), "nothing is changed in %v", s)
		for _, to := range []QPState{s, StateReset, StateErr} {
			err := CheckTransition(RC, s, to, AttrSQPSN)
			require.ErrorIs(t, err, ErrState)
			require.ErrorContains(t, err, "SQPSN")
			require.ErrorContains(t, err, s.String())
		}
	}
	require.NoError(t, CheckTransition(RC, StateRTS, StateInit, AttrMinRNRTimer))
	require.ErrorContains(t, CheckTransition(RC, StateRTR, StateRTR, AttrAccess), "in RTR a RC QP takes no Access")
	require.ErrorContains(t, CheckTransition(RC, StateRTR, StateRTR, AttrState), "does not go from RTR to RTR")
	require.ErrorContains(t, CheckTransition(QPType(9), StateReset, StateInit, allAttrs), "QPType(9)")
	require.ErrorContains(t, CheckTransition(RC, StateReset, QPState(77), allAttrs), "QPState(77)")
}

// TestCap: zero fields become the defaults, the limits are allowed, and what is
// beyond them is named.
func TestCap(t *testing.T) {
	c, err := QPCap{}.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, QPCap{128, 128, 4, 4, 64}, c)
	limits := QPCap{32768, 32768, 32, 32, 512}
	c, err = limits.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, limits, c)
	one := QPCap{1, 1, 1, 1, 1}
	c, err = one.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, one, c)
	for name, f := range map[string]func(*QPCap) (*int, int){
		"MaxSendWR":  func(c *QPCap) (*int, int) { return &c.MaxSendWR, 32768 },
		"MaxRecvWR":  func(c *QPCap) (*int, int) { return &c.MaxRecvWR, 32768 },
		"MaxSendSGE": func(c *QPCap) (*int, int) { return &c.MaxSendSGE, 32 },
		"MaxRecvSGE": func(c *QPCap) (*int, int) { return &c.MaxRecvSGE, 32 },
		"MaxInline":  func(c *QPCap) (*int, int) { return &c.MaxInline, 512 },
	} {
		var c QPCap
		p, limit := f(&c)
		for _, v := range []int{limit + 1, -1, math.MaxInt, math.MinInt} {
			*p = v
			_, err := c.WithDefaults()
			require.EqualError(t, err, fmt.Sprintf("verbs: QPCap.%s is %d, the limit is %d", name, v, limit))
		}
	}
	// The largest rings are still small numbers.
	require.Equal(t, 192+64<<19, RingBytes(limits.MaxSendWR*SendUnits(limits.MaxSendSGE, limits.MaxInline)))
	require.Equal(t, 192+64<<19, RingBytes(limits.MaxRecvWR*RecvUnits(limits.MaxRecvSGE)))
}

// TestGID: the forms of a GID and the way back to the address.
func TestGID(t *testing.T) {
	for addr, text := range map[string]string{
		"192.0.2.1":             "0000:0000:0000:0000:0000:ffff:c000:0201",
		"::ffff:192.0.2.1":      "0000:0000:0000:0000:0000:ffff:c000:0201",
		"0.0.0.0":               "0000:0000:0000:0000:0000:ffff:0000:0000",
		"fe80::5054:ff:fe12:1":  "fe80:0000:0000:0000:5054:00ff:fe12:0001",
		"fe80::5054:ff:fe12:2%": "fe80:0000:0000:0000:5054:00ff:fe12:0002",
		"2001:db8::5":           "2001:0db8:0000:0000:0000:0000:0000:0005",
		"::1":                   "0000:0000:0000:0000:0000:0000:0000:0001",
		"::":                    "0000:0000:0000:0000:0000:0000:0000:0000",
	} {
		if strings.HasSuffix(addr, "%") {
			addr += "eth0"
		}
		a := netip.MustParseAddr(addr)
		require.Equal(t, text, GIDOf(a).String(), addr)
		require.Equal(t, a.Unmap().WithZone(""), GIDOf(a).Addr(), addr)
	}
	require.Equal(t, GID{}, GIDOf(netip.Addr{}))
}

// TestStatusError: a failed completion is an error that says what failed and
// why, and is found by its status.
func TestStatusError(t *testing.T) {
	w := WC{ID: 7, Status: WCRetryExcErr, VendorErr: VendorRetryExceeded, QPN: 0x1b, Reason: trace.FailRetryExceeded}
	err := fmt.Errorf("copy: %w", w.Err())
	require.EqualError(t, err, "copy: verbs: work request 7 on QP 0x00001b: transport retry counter exceeded (status 12, vendor_err 129): "+trace.FailRetryExceeded.Explain())
	require.ErrorIs(t, err, &StatusError{Status: WCRetryExcErr})
	require.NotErrorIs(t, err, &StatusError{Status: WCWRFlushErr})
	require.NotErrorIs(t, err, ErrState)
	var se *StatusError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StatusError{Status: WCRetryExcErr, VendorErr: 129, QPN: 0x1b, ID: 7, Reason: trace.FailRetryExceeded}, *se)
	w = WC{ID: math.MaxUint64, Status: 200, QPN: 0xffffff}
	require.EqualError(t, w.Err(), "verbs: work request 18446744073709551615 on QP 0xffffff: WCStatus(200) (status 200, vendor_err 0)")
	w = WC{Reason: trace.FailFlushed}
	require.NoError(t, w.Err(), "success is no error")
}
