package rules

// Report is a public bug report about this transport, of others' making, whose
// right behaviour is proven by something else than a script. Those that scripts
// reproduce name them.
type Report struct {
	ID    string
	Text  string
	Tests []string // as of Rule
	Gap   string
}

// Reports are those without a script.
var Reports = []Report{
	{ID: "B08", Text: "requests re-read after they were checked", Tests: []string{"verbs/wqe_test.go TestSendCopied"}},
	{ID: "B09", Text: "a header's setter changes its neighbours", Tests: []string{"bth/headers_test.go TestSettersLeaveNeighboursAlone"}},
	{ID: "B10", Text: "creation that fails half way", Tests: []string{"nic/life_test.go TestCreateFails"}},
	{ID: "B11", Text: "clean-up from many sides", Tests: []string{"nic/life_test.go TestChurn"}},
	{ID: "B12", Text: "a timer that fires after its queue pair", Tests: []string{"nic/life_test.go TestDestroyPendingTimer"}},
	{ID: "B14", Text: "a device that goes under load", Tests: []string{"nic/life_test.go TestCloseUnderLoad"}},
	{ID: "B34", Text: "long WRITEs hang on retransmission", Tests: []string{"rc/matrix_test.go TestDropMatrix", "rc/lossy_test.go TestLossy"}},
	{ID: "B35", Text: "lock-up on lost packets", Tests: []string{"rc/lossy_test.go TestLossy", "sim/workload_test.go TestWorkload"}},
	{ID: "B48", Text: "max_rd_atomic beyond the device's", Tests: []string{"rc/state_test.go TestModifyErrors"}},
	{ID: "B57", Text: "query leaves the current state out", Tests: []string{"rc/state_test.go TestEstablished"}},
	{ID: "B79", Text: "a GID that the interface has not", Tests: []string{"netns_linux_test.go TestGIDMistakes"}},
}
