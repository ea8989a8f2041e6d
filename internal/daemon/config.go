package daemon

import (
	"io/fs"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/nic"
)

// Config is what rxed does. Load and Default make one.
type Config struct {
	Control Control
	Admin   Admin
	Metrics Metrics
	Log     Log
	Process Process
	Devices []Device

	where map[string]span // in the file, by section.key
}

// Control is the socket that programs attach to devices by.
type Control struct {
	Socket string
	Mode   fs.FileMode
	Group  string // of the socket's file; "" is the process's own
	// AllowUsers and AllowGroups are those whose programs may attach, names or
	// numbers. Both empty: whoever may open the socket.
	AllowUsers, AllowGroups []string
}

// Admin is the socket of HTTP requests: inspection, captures, reload.
type Admin struct {
	Socket string
	Mode   fs.FileMode
	Group  string
}

// Metrics is where Prometheus asks.
type Metrics struct {
	Listen      string // host:port; "" is nowhere
	AllowRemote bool   // Listen need not be a loopback address
}

// Log says what is written to standard error.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Process is what the process gives up once its devices are open.
type Process struct {
	User, Group string // to become; "" stays
	Seccomp     string // on, off or kill
}

// Device is a NIC to serve.
type Device struct {
	Name      string
	Interface string
	Addr      string
	Namespace string
	Link      string
	Shards    int
	Faults    string
	Seed      uint64
	Required  bool

	CC CC

	PerClient, Total Limits

	where map[string]span // in the file, by key; "" is its header
}

// CC is the congestion control of a device, and the profile that it began with.
type CC struct {
	Profile string
	cc.Config
}

// Limits bound what clients have. 0 is the server's default.
type Limits = server.Limits

// Paths of the sockets where nothing else is said.
const (
	DefaultControlSocket = control.DefaultSocket
	DefaultAdminSocket   = admin.DefaultSocket
)

// Environment variables that say where the sockets are, below a file and flags.
const (
	EnvControlSocket = control.SocketEnv
	EnvAdminSocket   = admin.EnvSocket
)

// Seccomp modes of Process.
const (
	SeccompOn   = "on"   // a call that is not allowed fails with EPERM
	SeccompOff  = "off"  // there is no filter
	SeccompKill = "kill" // it ends the process
)

// Default is the configuration of an empty file, which has no device.
func Default(getenv func(string) string) *Config {
	or := func(name, otherwise string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	return &Config{
		Control: Control{Socket: or(EnvControlSocket, DefaultControlSocket), Mode: 0o660},
		Admin:   Admin{Socket: or(EnvAdminSocket, DefaultAdminSocket), Mode: 0o600},
		Log:     Log{Level: "info", Format: "text"},
		Process: Process{Seccomp: SeccompOn},
	}
}

// NewDevice is a device with defaults.
func NewDevice() Device {
	return Device{Link: "auto", Shards: 1, Required: true, CC: CC{cc.Profiles[0], cc.Default()}, where: map[string]span{}}
}

// where it is, in words, for errors and the log.
func (d *Device) place() string {
	s := d.Interface
	if s == "" {
		s = d.Addr
	}
	if d.Namespace != "" {
		s += " in " + d.Namespace
	}
	return s
}

// maxima of a device, by which limits are checked.
var maxima = Limits{
	QPs: nic.MaxQP, CQs: nic.MaxCQ, MRs: nic.MaxMR, MWs: nic.MaxMW, PDs: nic.MaxPD, SRQs: nic.MaxSRQ, AHs: nic.MaxAH,
	CQEs: 1 << 31, Groups: nic.MaxGroups << 10, Clients: 1 << 16, Bytes: 1 << 46,
}
