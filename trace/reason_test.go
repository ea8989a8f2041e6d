package trace

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReasons: each has a counter name of its own and a sentence.
func TestReasons(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	names, texts := map[string]Reason{}, map[string]Reason{}
	for r := None; r < NumReasons; r++ {
		require.Regexp(t, name, r.String(), "reason %d", r)
		if old, ok := names[r.String()]; ok {
			t.Errorf("%d and %d are both %v", old, r, r)
		}
		names[r.String()] = r
		text := r.Explain()
		require.Contains(t, text, " ", r)
		require.Equal(t, strings.TrimSpace(text), text, r)
		require.NotRegexp(t, `[.;:,]$`, text, "%v: others go on after it", r)
		if old, ok := texts[text]; ok {
			t.Errorf("%v and %v: %s", old, r, text)
		}
		texts[text] = r
	}
	require.Equal(t, None, names["none"])
	for _, r := range []Reason{NumReasons, NumReasons + 1, 255} {
		require.Equal(t, "unknown_reason", r.String())
		require.Equal(t, "a reason this version does not know", r.Explain())
		require.False(t, r.IsDrop())
	}
	require.NotContains(t, names, "unknown_reason")
	require.Len(t, Counts{}, int(NumReasons))
}

// TestIsDrop: reasons that drop a packet, and those at the ends that do not.
func TestIsDrop(t *testing.T) {
	for r := None; r < NumReasons; r++ {
		require.Equal(t, r >= 1 && r <= 32, r.IsDrop(), r)
	}
	for _, r := range []Reason{DropShort, DropICRC, DropNoRecv, DropStray, DropUnsupported} {
		require.True(t, r.IsDrop(), r)
	}
	for _, r := range []Reason{None, FailRetryExceeded, FailFlushed, FailDevice, RetryTimeout, RetryLink, NoteSequenceNAK, NoteIDLearned} {
		require.False(t, r.IsDrop(), r)
	}
	require.Equal(t, DropUnsupported+1, FailRetryExceeded, "a reason between the last drop and the first failure")
}

// TestNames: the names under which rxe and mlx5 count the same things.
func TestNames(t *testing.T) {
	for r, want := range map[Reason]string{
		RetryTimeout: "local_ack_timeout_err", RetrySequence: "packet_seq_err", RetryAdaptive: "roce_adp_retrans", RetryImplied: "implied_nak_seq_err", RetryRNR: "rnr_nak_retry_err",
		NoteDuplicate: "duplicate_request", NoteRNRNAK: "send_rnr_err", NoteSequenceNAK: "rcvd_gap", DropNoRecv: "out_of_buffer",
		DropOutOfOrder: "out_of_sequence", FailRetryExceeded: "retry_exceeded_err", FailRNRExceeded: "retry_rnr_exceeded_err",
		FailRemoteAccess: "req_remote_access_errors", FailInvalidReq: "req_remote_invalid_request", FailAccess: "resp_remote_access_errors",
		FailReqLength: "resp_local_length_error", DropCNP: "rp_cnp_ignored",
	} {
		require.Equal(t, want, r.String())
	}
}

// TestDrops: reasons to discard that were counted, in words, and nothing else.
func TestDrops(t *testing.T) {
	require.Empty(t, Drops(map[string]uint64{"sent_pkts": 3, FailFlushed.String(): 2, DropICRC.String(): 0}))
	require.Equal(t, []string{
		"2 x " + DropICRC.String() + ", " + DropICRC.Explain(), "1 x " + DropStray.String() + ", " + DropStray.Explain(),
	}, Drops(map[string]uint64{DropStray.String(): 1, DropICRC.String(): 2, RetryTimeout.String(): 5}))
}
