package transport

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const (
	initRTR = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	rtrRTS  = verbs.AttrState | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrSQPSN | verbs.AttrMaxRdAtomic
)

// Every attribute with a range is taken at its ends and refused beyond, by
// name; out of range without its bit in the mask it is of no interest.
// Ranges: IBA 11.2.5.2, and the fields of the headers and timers they fill.
func TestModifyRanges(t *testing.T) {
	flow := new(wire.Flow)
	for _, c := range []struct {
		name  string
		limit int
		mask  verbs.AttrMask
		from  verbs.QPState
		set   func(a *verbs.QPAttr, v int)
	}{
		{"MaxRdAtomic", verbs.MaxRdAtomic, rtrRTS, verbs.StateRTR, func(a *verbs.QPAttr, v int) { a.MaxRdAtomic = v }},
		{"MaxDestRdAtomic", verbs.MaxRdAtomic, initRTR, verbs.StateInit, func(a *verbs.QPAttr, v int) { a.MaxDestRdAtomic = v }},
		{"MinRNRTimer", 31, initRTR, verbs.StateInit, func(a *verbs.QPAttr, v int) { a.MinRNRTimer = uint8(v) }},
		{"Timeout", 31, rtrRTS, verbs.StateRTR, func(a *verbs.QPAttr, v int) { a.Timeout = uint8(v) }},
		{"RetryCnt", 7, rtrRTS, verbs.StateRTR, func(a *verbs.QPAttr, v int) { a.RetryCnt = uint8(v) }},
		{"RNRRetry", 7, rtrRTS, verbs.StateRTR, func(a *verbs.QPAttr, v int) { a.RNRRetry = uint8(v) }},
		{"DestQPN", 1<<24 - 1, initRTR, verbs.StateInit, func(a *verbs.QPAttr, v int) { a.DestQPN = uint32(v) }},
		{"RQPSN", 1<<24 - 1, initRTR, verbs.StateInit, func(a *verbs.QPAttr, v int) { a.RQPSN = uint32(v) }},
		{"SQPSN", 1<<24 - 1, rtrRTS, verbs.StateRTR, func(a *verbs.QPAttr, v int) { a.SQPSN = uint32(v) }},
		{"AV.SL", 7, initRTR, verbs.StateInit, func(a *verbs.QPAttr, v int) { a.AV.SL = uint8(v) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := c.from + 1
			try := func(v int) error {
				a := verbs.QPAttr{State: to, PathMTU: 1024}
				c.set(&a, v)
				got, err := CheckModify(verbs.RC, c.from, &a, c.mask, flow)
				assert.Equal(t, to, got)
				return err
			}
			assert.NoError(t, try(0))
			assert.NoError(t, try(c.limit))
			assert.ErrorContains(t, try(c.limit+1), c.name+" is")
			if c.name == "MaxRdAtomic" || c.name == "MaxDestRdAtomic" {
				assert.ErrorContains(t, try(-1), c.name+" is")
			}

			// Another step, which does not take it.
			other := verbs.QPAttr{State: verbs.StateSQD, PathMTU: 1}
			c.set(&other, c.limit+1)
			_, err := CheckModify(verbs.RC, verbs.StateRTS, &other, verbs.AttrState, nil)
			assert.NoError(t, err)
		})
	}
}

func TestModifyNeeds(t *testing.T) {
	flow := new(wire.Flow)
	a := verbs.QPAttr{State: verbs.StateRTR, PathMTU: 256}
	_, err := CheckModify(verbs.RC, verbs.StateInit, &a, initRTR, flow)
	require.NoError(t, err)
	_, err = CheckModify(verbs.RC, verbs.StateInit, &a, initRTR, nil)
	assert.ErrorContains(t, err, "without a flow")
	a.PathMTU = 257
	_, err = CheckModify(verbs.RC, verbs.StateInit, &a, initRTR, flow)
	assert.ErrorContains(t, err, "path MTU 257")
	_, err = CheckModify(verbs.RC, verbs.StateInit, &a, initRTR&^verbs.AttrRQPSN, flow)
	assert.ErrorIs(t, err, verbs.ErrState)

	// Without AttrState it stays, whatever State says.
	to, err := CheckModify(verbs.RC, verbs.StateRTS, &a, 0, nil)
	assert.NoError(t, err)
	assert.Equal(t, verbs.StateRTS, to)
}

// Each bit of the mask copies one field and no other; State is nobody's.
func TestApply(t *testing.T) {
	full := verbs.QPAttr{
		State: verbs.StateRTS, Access: 1, PKeyIndex: 2, Port: 3, QKey: 4, AV: verbs.AV{SL: 5}, PathMTU: 256, DestQPN: 6, RQPSN: 7, SQPSN: 8,
		MaxDestRdAtomic: 9, MinRNRTimer: 10, Timeout: 11, RetryCnt: 5, RNRRetry: 6, MaxRdAtomic: 12, FlowControl: true,
	}
	for mask, field := range map[verbs.AttrMask]string{
		verbs.AttrAccess: "Access", verbs.AttrPKeyIndex: "PKeyIndex", verbs.AttrPort: "Port", verbs.AttrQKey: "QKey", verbs.AttrAV: "AV",
		verbs.AttrPathMTU: "PathMTU", verbs.AttrDestQPN: "DestQPN", verbs.AttrRQPSN: "RQPSN", verbs.AttrSQPSN: "SQPSN",
		verbs.AttrMaxDestRdAtomic: "MaxDestRdAtomic", verbs.AttrMinRNRTimer: "MinRNRTimer", verbs.AttrTimeout: "Timeout",
		verbs.AttrRetryCnt: "RetryCnt", verbs.AttrRNRRetry: "RNRRetry", verbs.AttrMaxRdAtomic: "MaxRdAtomic", verbs.AttrFlowControl: "FlowControl",
		verbs.AttrState: "",
	} {
		var got, want verbs.QPAttr
		Apply(&got, &full, mask)
		if field != "" {
			f := reflect.ValueOf(&want).Elem().FieldByName(field)
			f.Set(reflect.ValueOf(full).FieldByName(field))
			assert.False(t, f.IsZero(), field)
		}
		assert.Equal(t, want, got, field)
	}
}

// In SQD the address vector may change alone; its range holds there too.
func TestModifyAddressAlone(t *testing.T) {
	for sl, ok := range map[uint8]bool{7: true, 8: false} {
		a := verbs.QPAttr{State: verbs.StateSQD, AV: verbs.AV{SL: sl}}
		_, err := CheckModify(verbs.RC, verbs.StateSQD, &a, verbs.AttrState|verbs.AttrAV, new(wire.Flow))
		assert.Equal(t, ok, err == nil, "SL %d: %v", sl, err)
	}
}
