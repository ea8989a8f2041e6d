package metrics

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/internal/inspect/inspecttest"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy returns two devices that a WRITE of 10000 octets has passed between.
func busy(t *testing.T, faults string) []admin.Device {
	a, b := inspecttest.Pair(t, faults, func(c *inspect.Config) {
		c.Clients = func() []admin.ClientInfo { return []admin.ClientInfo{{ID: 1, PID: 7}} }
	})
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024, Timeout: 20}) // 4 s: a busy machine sends nothing again
	wc := inspecttest.Write(t, a, b, q, 10000)
	require.NoError(t, wc.Err())
	return []admin.Device{a.Device, b.Device}
}

func scrape(t *testing.T, devs []admin.Device) string {
	s := httptest.NewServer(Handler(func() []admin.Device { return devs }, "1.2.3"))
	defer s.Close()
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// What a WRITE of 10000 octets in packets of 1024 is on the wire: ten packets,
// the first with a RETH of 16 octets, each with 12 octets of BTH and 4 of ICRC;
// and one ACK of 20.
func TestValues(t *testing.T) {
	text := scrape(t, busy(t, ""))
	for _, want := range []string{
		`node_infiniband_port_data_transmitted_bytes_total{device="rxe0",port="1"} 10176`,
		`node_infiniband_port_data_received_bytes_total{device="rxe1",port="1"} 10176`,
		`node_infiniband_port_packets_transmitted_total{device="rxe0",port="1"} 10`,
		`node_infiniband_port_packets_received_total{device="rxe1",port="1"} 10`,
		`node_infiniband_port_data_transmitted_bytes_total{device="rxe1",port="1"} 20`,
		`node_infiniband_port_data_received_bytes_total{device="rxe0",port="1"} 20`,
		`node_infiniband_port_errors_received_total{device="rxe0",port="1"} 0`,
		`node_infiniband_state_id{device="rxe0",port="1"} 4`,
		`node_infiniband_info{board_id="gorxe",device="rxe0",firmware_version="",hca_type="gorxe"} 1`,
		`node_infiniband_np_cnp_packets_sent_total{device="rxe0",port="1"} 0`,
		`node_infiniband_np_ecn_marked_roce_packets_received_total{device="rxe0",port="1"} 0`,
		`node_infiniband_rp_cnp_packets_handled_total{device="rxe0",port="1"} 0`,
		`node_infiniband_rp_cnp_ignored_packets_received_total{device="rxe0",port="1"} 0`,
		`node_infiniband_roce_slow_restart_used_total{device="rxe0",port="1"} 0`,
		`node_infiniband_roce_slow_restart_cnps_total{device="rxe0",port="1"} 0`,
		`node_infiniband_roce_slow_restart_total{device="rxe0",port="1"} 0`,
		`gorxe_congestion_control_info{algorithm="dcqcn",device="rxe1"} 1`,
		`gorxe_build_info{version="1.2.3"} 1`,
		`gorxe_up{device="rxe0"} 1`,
		`gorxe_queue_pairs{device="rxe1"} 1`,
		`gorxe_clients{device="rxe1"} 1`,
		`gorxe_sent_payload_bytes_total{device="rxe0"} 10000`,
		`gorxe_completed_total{device="rxe0"} 1`,
		`gorxe_drops_total{device="rxe0",reason="icrc_error"} 0`,
	} {
		require.Contains(t, text, want+"\n")
	}
	require.Regexp(t, `gorxe_window_wait_seconds_total\{device="rxe0"\} \S+\n`, text)
	require.Contains(t, text, "go_goroutines ")
}

// Marks, notifications and slow restarts are counted by the names that node_exporter
// gives mlx5's.
func TestCongestion(t *testing.T) {
	a, b := inspecttest.Pair(t, "tx ce 100%; tx drop every=3 limit=1", nil)
	for _, n := range []*nic.NIC{a.NIC, b.NIC} {
		c := n.CC()
		c.RoCESlowRestart = true // it is off by default
		require.NoError(t, n.SetCC(c))
	}
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024, Timeout: 20})
	wc := inspecttest.Write(t, a, b, q, 10000)
	require.NoError(t, wc.Err())
	text := scrape(t, []admin.Device{a.Device, b.Device})
	for _, want := range []string{
		`node_infiniband_np_ecn_marked_roce_packets_received_total{device="rxe1",port="1"} [1-9]`,
		`node_infiniband_np_cnp_packets_sent_total{device="rxe1",port="1"} [1-9]`,
		`node_infiniband_rp_cnp_packets_handled_total{device="rxe0",port="1"} [1-9]`,
		`node_infiniband_roce_slow_restart_used_total{device="rxe0",port="1"} [1-9]`,
		`node_infiniband_roce_slow_restart_total{device="rxe0",port="1"} 1`,
		`gorxe_np_cnp_delay_seconds_total{device="rxe1"} \S`,
	} {
		require.Regexp(t, "(?m)^"+want, text)
	}
}

// A device that has ended is down, and nothing else is told of it.
func TestEnded(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	require.NoError(t, a.NIC.Close())
	text := scrape(t, []admin.Device{a.Device, b.Device})
	require.Contains(t, text, `gorxe_up{device="rxe0"} 0`+"\n")
	require.Contains(t, text, `gorxe_up{device="rxe1"} 1`+"\n")
	require.NotContains(t, text, `node_infiniband_state_id{device="rxe0"`)
}

func TestLint(t *testing.T) {
	devs := busy(t, "tx drop 10%; rx dup 10%")
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(func() []admin.Device { return devs }, "1.2.3"))
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
	n, err := testutil.GatherAndCount(r)
	require.NoError(t, err)
	require.Greater(t, n, 200)

	// The linter does find what is wrong.
	found, err := promlint.New(strings.NewReader("# HELP a_ns Wait.\n# TYPE a_ns counter\na_ns 1\n")).Lint()
	require.NoError(t, err)
	require.NotEmpty(t, found)
}

func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool, of the package prometheus, is not installed")
	}
	text := scrape(t, busy(t, ""))
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), out.String())
	require.Empty(t, out.String())
}
