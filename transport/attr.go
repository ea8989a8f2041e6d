package transport

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// CheckModify says whether a queue pair of type t in a state may be given these
// attributes, and what is missing, too much or out of range. It returns the
// state it is to have.
func CheckModify(t verbs.QPType, from verbs.QPState, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) (to verbs.QPState, err error) {
	to = from
	if m&verbs.AttrState != 0 {
		to = a.State
	}
	if err := verbs.CheckTransition(t, from, to, m); err != nil {
		return to, err
	}
	for _, c := range []struct {
		m     verbs.AttrMask
		v     int
		limit int
		name  string
	}{
		{verbs.AttrMaxRdAtomic, a.MaxRdAtomic, verbs.MaxRdAtomic, "MaxRdAtomic"},
		{verbs.AttrMaxDestRdAtomic, a.MaxDestRdAtomic, verbs.MaxRdAtomic, "MaxDestRdAtomic"},
		{verbs.AttrMinRNRTimer, int(a.MinRNRTimer), 31, "MinRNRTimer"},
		{verbs.AttrTimeout, int(a.Timeout), 31, "Timeout"},
		{verbs.AttrRetryCnt, int(a.RetryCnt), 7, "RetryCnt"},
		{verbs.AttrRNRRetry, int(a.RNRRetry), 7, "RNRRetry"},
		{verbs.AttrDestQPN, int(a.DestQPN), bth.QPNMask, "DestQPN"},
		{verbs.AttrRQPSN, int(a.RQPSN), bth.PSNMask, "RQPSN"},
		{verbs.AttrSQPSN, int(a.SQPSN), bth.PSNMask, "SQPSN"},
		{verbs.AttrAV, int(a.AV.SL), 7, "AV.SL"},
	} {
		if m&c.m != 0 && (c.v < 0 || c.v > c.limit) {
			return to, fmt.Errorf("%v queue pair: %s is %d, the range is 0..%d", t, c.name, c.v, c.limit)
		}
	}
	if m&verbs.AttrPathMTU != 0 && !a.PathMTU.Valid() {
		return to, fmt.Errorf("%v queue pair: path MTU %d is none of 256, 512, 1024, 2048, 4096", t, a.PathMTU)
	}
	if m&verbs.AttrAV != 0 && flow == nil {
		return to, fmt.Errorf("%v queue pair: an address vector without a flow", t)
	}
	return to, nil
}

// Apply copies the attributes that m names from a to t, but the state.
func Apply(t, a *verbs.QPAttr, m verbs.AttrMask) {
	for _, c := range [...]struct {
		bit verbs.AttrMask
		set func()
	}{
		{verbs.AttrAccess, func() { t.Access = a.Access }},
		{verbs.AttrPKeyIndex, func() { t.PKeyIndex = a.PKeyIndex }},
		{verbs.AttrPort, func() { t.Port = a.Port }},
		{verbs.AttrQKey, func() { t.QKey = a.QKey }},
		{verbs.AttrAV, func() { t.AV = a.AV }},
		{verbs.AttrPathMTU, func() { t.PathMTU = a.PathMTU }},
		{verbs.AttrDestQPN, func() { t.DestQPN = a.DestQPN }},
		{verbs.AttrRQPSN, func() { t.RQPSN = a.RQPSN }},
		{verbs.AttrSQPSN, func() { t.SQPSN = a.SQPSN }},
		{verbs.AttrMaxDestRdAtomic, func() { t.MaxDestRdAtomic = a.MaxDestRdAtomic }},
		{verbs.AttrMinRNRTimer, func() { t.MinRNRTimer = a.MinRNRTimer }},
		{verbs.AttrTimeout, func() { t.Timeout = a.Timeout }},
		{verbs.AttrRetryCnt, func() { t.RetryCnt = a.RetryCnt }},
		{verbs.AttrRNRRetry, func() { t.RNRRetry = a.RNRRetry }},
		{verbs.AttrMaxRdAtomic, func() { t.MaxRdAtomic = a.MaxRdAtomic }},
		{verbs.AttrFlowControl, func() { t.FlowControl = a.FlowControl }},
		{verbs.AttrRateLimit, func() { t.RateLimit = a.RateLimit }},
	} {
		if m&c.bit != 0 {
			c.set()
		}
	}
}
