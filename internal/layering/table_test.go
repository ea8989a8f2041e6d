package layering

// rule says what the non-test code of a package may import.
type rule struct {
	// imports are the gorxe packages it may import, relative to the module;
	// a name with a trailing slash stands for everything below it, "*" for
	// everything.
	imports []string
	// engine packages are sans-IO: see banned.
	engine bool
}

// house is the table of DESIGN.md: upper imports lower, never sideways. Each
// line may use what is above it, and lists it.
var house = map[string]rule{
	// Leaves: vocabulary, and helpers without one.
	"trace":         {engine: true},
	"verbs":         {imports: []string{"trace"}},
	"internal/perm": {engine: true},
	"internal/sys":  {},

	// Packets.
	"bth":  {imports: []string{"trace"}, engine: true},
	"wire": {imports: []string{"bth", "trace"}, engine: true},

	// Engines.
	"mr":                   {imports: []string{"verbs", "trace", "internal/perm"}, engine: true},
	"atomic":               {imports: []string{"mr", "verbs", "trace"}, engine: true},
	"cc":                   {imports: []string{"bth", "trace"}, engine: true},
	"internal/fluid":       {imports: []string{"cc"}, engine: true},
	"transport":            {imports: []string{"wire", "bth", "mr", "verbs", "trace"}, engine: true},
	"transport/enginetest": {imports: []string{"transport", "wire", "bth", "mr", "verbs", "trace", "internal/pcap"}}, // what tests of engines share
	"rc":                   {imports: []string{"transport", "wire", "bth", "mr", "atomic", "cc", "verbs", "trace", "internal/perm"}, engine: true},
	"uc":                   {imports: []string{"transport", "wire", "bth", "verbs", "trace"}, engine: true},
	"ud":                   {imports: []string{"cc", "transport", "wire", "bth", "mr", "verbs", "trace"}, engine: true},
	"cm":                   {imports: []string{"wire", "bth", "verbs", "trace"}, engine: true},

	// Links, and what knows the host.
	"link":                   {imports: []string{"wire", "bth", "trace"}},
	"link/mem":               {imports: []string{"link", "wire", "bth", "trace"}},
	"link/mem/memtest":       {imports: []string{"link/mem", "link", "wire", "bth", "trace"}}, // what tests of links share
	"link/internal/udptx":    {imports: []string{"link", "wire", "bth", "trace", "internal/sys", "internal/hostnet"}},
	"link/internal/linktest": {imports: []string{"link", "wire", "bth", "trace", "internal/testbed"}}, // what tests of links share
	"link/udp":               {imports: []string{"link/internal/udptx", "link", "wire", "bth", "trace", "internal/sys", "internal/hostnet"}},
	"link/packet":            {imports: []string{"link/internal/udptx", "link", "wire", "bth", "trace", "internal/sys", "internal/hostnet"}},
	"link/xdp":               {imports: []string{"link/internal/udptx", "link", "wire", "bth", "trace", "internal/sys", "internal/hostnet"}},
	"link/fault":             {imports: []string{"link", "wire", "bth", "trace"}},
	"link/tap":               {imports: []string{"link", "wire", "bth", "trace"}},
	"internal/hostnet":       {imports: []string{"trace"}},
	"internal/testbed":       {imports: []string{"internal/sys"}},

	// The device, and another process's way in to it.
	"nic":            {imports: []string{"link/", "transport", "rc", "uc", "ud", "cm", "cc", "mr", "atomic", "wire", "bth", "verbs", "trace", "internal/hostnet", "internal/perm", "internal/sys"}},
	"control/admin":  {},
	"control/server": {imports: []string{"control", "nic", "verbs", "trace", "internal/sys"}},
	"control":        {imports: []string{"verbs", "trace", "internal/sys"}},
	".":              {imports: []string{"nic", "control", "link/", "cc", "wire", "verbs", "trace", "internal/hostnet"}},

	// Tools beside the device: they see it, it does not see them.
	"layers":            {imports: []string{"wire", "bth", "trace"}},
	"sim":               {imports: []string{".", "nic", "link/", "cc", "wire", "bth", "verbs", "trace"}},
	"internal/lab":      {imports: []string{"sim", "nic", "link/fault", "cc", "wire", "bth", "verbs", "trace"}},
	"sim/scenarios":     {},
	"script":            {imports: []string{"transport", "rc", "uc", "ud", "mr", "cc", "wire", "bth", "verbs", "trace"}},
	"script/device":     {imports: []string{"script", "nic", "link", "wire", "bth", "verbs", "trace"}},                    // a whole device under a script
	"internal/inspect":  {imports: []string{"control/admin", "nic", "link/", "transport", "cc", "bth", "verbs", "trace"}}, // a device as control/admin shows it
	"internal/metrics":  {imports: []string{"control/admin"}},
	"internal/pcap":     {},
	"internal/devinfo":  {imports: []string{".", "verbs", "wire", "internal/hostnet"}},
	"internal/decode":   {imports: []string{"internal/pcap", "wire", "bth", "trace"}},
	"internal/replay":   {imports: []string{"internal/decode", "internal/pcap", "rc", "transport", "cc", "mr", "wire", "bth", "verbs", "trace"}},
	"internal/relay":    {imports: []string{"link/fault", "cc", "wire", "bth", "trace", "internal/hostnet", "internal/sys"}},
	"internal/layering": {},
	"internal/rules":    {},
	"internal/mutants":  {imports: []string{"internal/overlay"}},
	"internal/planted":  {imports: []string{"internal/overlay"}},
	"internal/overlay":  {},
	"internal/version":  {},

	"internal/show":                {imports: []string{"control/admin"}},
	"internal/inspect/inspecttest": {imports: []string{"internal/inspect", "nic", "link/", "verbs"}}, // what tests of these share

	// What the programs call.
	"internal/demo":     {imports: []string{".", "verbs", "link/", "trace"}},
	"internal/pingpong": {imports: []string{".", "verbs", "trace", "internal/hostnet"}},
	"internal/perf":     {imports: []string{"internal/perf/oob", "internal/perf/report", "verbs", "trace"}},

	"internal/perf/oob":    {imports: []string{"verbs"}},
	"internal/perf/report": {},

	// The daemon but for its command line.
	"internal/daemon": {imports: []string{".", "nic", "cc", "link/fault", "control", "control/server", "control/admin", "internal/inspect", "internal/metrics", "internal/hostnet", "internal/sys", "verbs", "trace"}},

	// Programs and what drives them.
	"cmd/rxe":          {imports: []string{"*"}},
	"cmd/rxed":         {imports: []string{"*"}},
	"bench":            {imports: []string{"*"}},
	"internal/contend": {imports: []string{"*"}},
	"internal/chaos":   {imports: []string{"*"}},
	"examples/embed":   {imports: []string{".", "verbs"}},
	"interop":          {imports: []string{"*"}},
	"interop/peer":     {imports: []string{"*"}},
	"interop/rig":      {imports: []string{"*"}},
	"fuzz":             {imports: []string{"*"}},
}

// thirdParty says who may import what was not written here; everything else
// uses the standard library alone. Tests may also use testOnly.
var thirdParty = map[string][]string{
	"golang.org/x/sys":                        {"internal/sys", "internal/hostnet", "internal/testbed", "link/udp", "link/packet", "link/xdp", "link/internal/udptx", "link/internal/linktest"},
	"golang.org/x/net":                        {"internal/sys", "link/udp", "link/packet", "link/xdp", "link/internal/udptx"},
	"github.com/vishvananda/netlink":          {"internal/hostnet", "internal/testbed"},
	"github.com/vishvananda/netns":            {"internal/hostnet", "internal/testbed"},
	"github.com/cilium/ebpf":                  {"link/packet", "link/xdp", "link/internal/linktest"},
	"github.com/google/gopacket":              {"layers", "internal/pcap", "internal/decode", "link/tap"},
	"github.com/HdrHistogram/hdrhistogram-go": {"internal/perf/report"},
	"github.com/prometheus/client_golang":     {"internal/metrics"},
	"github.com/spf13/cobra":                  {"cmd/"},
	"github.com/spf13/pflag":                  {"cmd/"},
	"github.com/pelletier/go-toml/v2":         {"internal/daemon", "internal/lab"},
	"github.com/coreos/go-systemd/v22":        {"internal/daemon"},
	"golang.org/x/time":                       {"internal/daemon"},
}

var testOnly = []string{
	"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/google/gopacket", "golang.org/x/sys",
	"golang.org/x/net",
}

// needsCgo are packages of allowed modules that may never be imported.
var needsCgo = []string{
	"C", "github.com/google/gopacket/pcap", "github.com/google/gopacket/afpacket", "github.com/google/gopacket/pfring",
}
