// Command rxed is the software NIC daemon: it opens devices as a configuration or
// flags say, and serves them to other programs.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorxe/gorxe/internal/daemon"
	"github.com/gorxe/gorxe/internal/version"
)

// Exit codes.
const (
	exitStopped = 0 // as it was told
	exitFailed  = 1 // a device or socket could not be had, or failed
	// exitUsage: the command line or the configuration is wrong, EX_CONFIG of
	// sysexits(3). It is not 2, with which Go ends a program that panicked, or that
	// a watchdog aborted: those are worth a restart.
	exitUsage = 78
	// A second signal ends the daemon at once, with 128 and its number.
)

func main() { os.Exit(run(os.Args[1:])) }

// run is the program but for its end, which is the exit code.
func run(args []string) int {
	code := exitStopped
	cmd := newCmd(&code)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rxed:", err)
		if code == exitStopped {
			code = exitUsage
		}
	}
	return code
}

// flags are the command line.
type flags struct {
	config      string
	check, show bool
	over        daemon.Overrides
	values      []*keyFlag
}

// keyFlag is a flag that sets a key of the configuration.
type keyFlag struct{ name, section, key, value, usage string }

// keyFlags are all of them. What is not here is in a file.
func keyFlags() []*keyFlag {
	return []*keyFlag{
		{"link", "device", "link", "", "link of all devices: auto, udp, packet or xdp"},
		{"shards", "device", "shards", "", "shards of all devices, 1 to 16"},
		{"namespace", "device", "namespace", "", "network namespace of all devices, by name or path"},
		{"faults", "device", "faults", "", `fault rules of all devices, such as "tx drop 1%"`},
		{"socket", "control", "socket", "", "where programs attach (" + daemon.DefaultControlSocket + ", or $" + daemon.EnvControlSocket + ")"},
		{"admin", "admin", "socket", "", "where rxe stat and others ask (" + daemon.DefaultAdminSocket + ", or $" + daemon.EnvAdminSocket + ")"},
		{"metrics", "metrics", "listen", "", "address and port for Prometheus, such as 127.0.0.1:9879"},
		{"log-level", "log", "level", "", "debug, info, warn or error"},
		{"log-format", "log", "format", "", "text or json"},
		{"user", "process", "user", "", "user to become once devices are open"},
		{"group", "process", "group", "", "group to become"},
		{"seccomp", "process", "seccomp", "", "filter of system calls: on, off, or kill"},
	}
}

func newCmd(code *int) *cobra.Command {
	f := flags{values: keyFlags()}
	cmd := &cobra.Command{
		Use:   "rxed [-c FILE | -d INTERFACE | --addr ADDRESS]",
		Short: "A software RDMA NIC for RoCEv2: the daemon",
		Long: `Open software RDMA NICs and serve them to other programs, which attach by a unix
socket. The devices are those of a configuration file (-c), or those that -d and
--addr name. Flags go before the file.

SIGHUP reads the file again and changes what can be changed while programs are
attached. SIGTERM and SIGINT tell programs that their devices are gone, and end the
daemon; a second one ends it at once.

The exit status is 0 when it was told to stop, 1 when a device or socket could not be
had or failed, 78 when the command line or the configuration is wrong, and 128 and the
number of the signal that came second.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		Version:       version.Of("rxed"),
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.run(cmd, code) },
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	p := cmd.Flags()
	p.SortFlags = false
	p.StringVarP(&f.config, "config", "c", "", "configuration file; dist/rxed.toml of the source has all keys")
	p.StringArrayVarP(&f.over.Interfaces, "dev", "d", nil, "network interface to serve a device on, instead of the file's; more than once for several")
	p.StringArrayVar(&f.over.Addrs, "addr", nil, "local address to serve a device on, likewise")
	for _, k := range f.values {
		p.StringVar(&k.value, k.name, "", k.usage)
	}
	p.StringVar(&f.over.CC, "cc", "", `congestion control of all devices: an algorithm (dcqcn, none, window, swift), parameters, or both: "dcqcn,rp_ai_rate=10"`)
	p.BoolVar(&f.check, "check", false, "check the configuration, say what is wrong, and end")
	p.BoolVar(&f.show, "print-config", false, "print the whole configuration with defaults and flags, and end")
	return cmd
}

func (f *flags) run(cmd *cobra.Command, code *int) error {
	cmd.Flags().Visit(func(set *pflag.Flag) {
		for _, k := range f.values {
			if k.name == set.Name {
				f.over.Keys = append(f.over.Keys, daemon.Override{Section: k.section, Key: k.key, Value: k.value, Flag: "--" + k.name})
			}
		}
	})
	if f.config == "" && len(f.over.Interfaces)+len(f.over.Addrs) == 0 {
		return errors.New("what shall be served? -d eth0 serves a device on an interface, --addr 127.0.0.5 one on an address, -c FILE those of a configuration; --help tells more")
	}
	if f.config != "" {
		path, err := filepath.Abs(f.config) // it is read again, perhaps from elsewhere
		if err != nil {
			return err
		}
		f.config = path
	}
	cfg, err := f.load()
	if err != nil {
		return err
	}
	switch {
	case f.check:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: good, %d devices\n", f.what(), len(cfg.Devices))
		return err
	case f.show:
		return cfg.Print(cmd.OutOrStdout())
	}
	*code = exitFailed
	if *code, err = daemon.Run(cfg, daemon.Options{Load: f.load, Version: version.Of("rxed"), Stderr: cmd.ErrOrStderr()}); err != nil {
		*code = exitFailed
	}
	return err
}

func (f *flags) what() string {
	if f.config == "" {
		return "command line"
	}
	return f.config
}

func (f *flags) load() (*daemon.Config, error) {
	if f.config == "" {
		return daemon.Parse("command line", nil, os.Getenv, &f.over)
	}
	return daemon.Load(f.config, os.Getenv, &f.over)
}
