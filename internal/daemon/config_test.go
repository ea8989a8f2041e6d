package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/cc"
)

func noenv(string) string { return "" }

// one is a device that is good, for texts about other things.
const one = "[[device]]\naddr = \"127.0.0.1\"\n"

// TestErrors: each mistake gives an error that quotes its line, points at it, and
// says what is allowed.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // the whole error, or "..." where it does not matter
	}{
		{
			"[control]\nsockt = \"/x\"\n" + one,
			"f.toml:2:1: unknown key sockt; allowed are socket, mode, group, allow_uids, allow_groups\n    sockt = \"/x\"\n    ^~~~~",
		},
		{
			"[contrl]\nsocket = \"/x\"\n" + one,
			"f.toml:1:2: there is no section [contrl]; there are admin, control, log, metrics, process, and any number of [[device]]\n    [contrl]\n     ^~~~~~",
		},
		{"socket = 1\n" + one, "f.toml:1:1: unknown key socket; there are sections admin, control, log, metrics, process, and any number of [[device]]\n    socket = 1\n    ^~~~~~"},
		{"log.level = \"loud\"\n" + one, "f.toml:1:13: level = \"loud\": it takes \"debug\", \"info\", \"warn\" or \"error\"\n    log.level = \"loud\"\n                ^~~~~~"},
		{"[log]\nlevel = 3\n" + one, `f.toml:2:9: level = 3: it takes "debug", ...`},
		{"log = { level = \"loud\" }\n" + one, `f.toml:1:17: level = "loud": it takes ...`},
		{"log = 3\n" + one, "f.toml:1:1: unknown key log; ..."},
		{"[[log]]\n" + one, "f.toml:1:3: section log is there once: [log]\n..."},
		{"[control]\nsocket = \"verbs.sock\"\n" + one, "f.toml:2:10: socket = \"verbs.sock\": it takes the whole path of a socket, such as /run/rxed/verbs.sock\n..."},
		{"[control]\nsocket = \"/" + strings.Repeat("x", 107) + "\"\n" + one, "...: a socket's path has at most 107 octets, this one 108\n..."},
		{"[control]\nsocket = 7\n" + one, "...: it takes a string, not a number\n..."},
		{"[control]\nmode = \"0800\"\n" + one, "f.toml:2:8: mode = \"0800\": it takes rights in octal, such as \"0660\"\n..."},
		{"[control]\nmode = 660\n" + one, "f.toml:2:8: mode = 660: it takes rights in octal, such as \"0660\", or 0o660\n..."},
		{"[control]\nmode = true\n" + one, "f.toml:2:8: mode = true: it takes rights in octal, such as \"0660\", not true or false\n..."},
		{"[control]\nallow_uids = \"root\"\n" + one, "f.toml:2:14: allow_uids = \"root\": it takes a list of names and numbers, such as [\"rdma\", 1000], not a string\n..."},
		{"[control]\nallow_uids = [1.5]\n" + one, "...; a fraction is in it\n..."},
		{"[control]\nallow_uids = [\"no-such\"]\n" + one, "f.toml:2:1: there is no user \"no-such\" on this host; a number does too\n..."},
		{"[control]\nallow_groups = [-1]\n" + one, "f.toml:2:1: there is no group \"-1\" on this host; a number does too\n..."},
		{"[control]\ngroup = \"no-such\"\n" + one, "f.toml:2:1: there is no group ..."},
		{"[process]\nuser = \"no-such\"\n" + one, "f.toml:2:1: there is no user ..."},
		{"[process]\nseccomp = true\n" + one, `f.toml:2:11: seccomp = true: it takes "on", "off" or "kill"` + "\n..."},
		{"[admin]\nsocket = \"/run/rxed/verbs.sock\"\n" + one, "f.toml:2:1: control and admin cannot share the socket /run/rxed/verbs.sock\n..."},
		{"[metrics]\nlisten = \"9879\"\n" + one, "f.toml:2:10: listen = \"9879\": it takes an address and a port, such as 127.0.0.1:9879\n..."},
		{"[metrics]\nlisten = \"[::]:9879\"\n" + one, "f.toml:2:1: listen = \"[::]:9879\": others can reach that address; take a loopback one, such as 127.0.0.1, or say allow_remote = true\n..."},
		{"", "f.toml: no device is configured: add a [[device]] with interface = \"eth0\" or addr = \"127.0.0.1\", or say -d eth0"},
		{"[device]\naddr = \"127.0.0.1\"\n", "f.toml:1:2: a device is one of a list: [[device]]\n..."},
		{"[[device]]\n", "f.toml:1:3: device rxe0 is nowhere: give it an interface = \"eth0\" or an addr = \"127.0.0.1\"\n    [[device]]\n      ^~~~~~"},
		{"[[device]]\ninterface = \"eth0\"\naddr = \"127.0.0.1\"\n", "f.toml:3:1: device rxe0 has an interface and an addr; one of them says where it is\n..."},
		{"[[device]]\ninterface = \"192.0.2.1\"\n", "f.toml:2:13: interface = \"192.0.2.1\": it takes the name of a network interface; for an address there is addr = \"192.0.2.1\"\n..."},
		{"[[device]]\naddr = \"127.0.0.1/8\"\n", "f.toml:2:8: addr = \"127.0.0.1/8\": an address goes without the length of its network: \"127.0.0.1\"\n..."},
		{"[[device]]\naddr = \"127.0.0.1:4791\"\n", "...: an address goes without a port: \"127.0.0.1\"\n..."},
		{"[[device]]\naddr = \"localhost\"\n", "...: it takes an IP address of this host, such as 127.0.0.1\n..."},
		{one + "name = \"a b\"\n", "f.toml:3:8: name = \"a b\": it takes 1 to 31 letters, digits, '-', '_' and '.'\n..."},
		{one + "link = \"tcp\"\n", "f.toml:3:8: link = \"tcp\": it takes \"auto\", \"udp\", \"packet\" or \"xdp\"\n..."},
		{one + "shards = 17\n", "f.toml:3:10: shards = 17: it takes a number from 1 to 16\n    shards = 17\n             ^~"},
		{one + "shards = \"2\"\n", "f.toml:3:10: shards = \"2\": it takes a number from 1 to 16, not a string\n..."},
		{one + "shards = 0x7fffffffffffffff\n", "...: it takes a number from 1 to 16\n..."},
		{one + "faults = \"tx frob 1%\"\n", "f.toml:3:10: faults = ..."},
		{one + "seed = 3\n", "f.toml:3:1: seed is for faults; there are none\n..."},
		{one + "required = 1\n", "f.toml:3:12: required = 1: it takes true or false, not a number\n..."},
		{one + "mtu = 1500\n", "f.toml:3:1: unknown key mtu; allowed are name, interface, addr, namespace, link, shards, faults, seed, required\n..."},
		{one + one, "f.toml:4:1: addr \"127.0.0.1\" is also that of device rxe0 (line 2)\n..."},
		{"[[device]]\naddr = \"127.0.0.1\"\n[[device]]\naddr = \"::ffff:127.0.0.1\"\n", "f.toml:4:1: addr \"127.0.0.1\" is also that of device rxe0 (line 2)\n..."},
		{"[[device]]\ninterface = \"lo\"\n[[device]]\ninterface = \"lo\"\n", "f.toml:4:1: interface \"lo\" is also that of device rxe0 (line 2)\n..."},
		{"[[device]]\naddr = \"127.0.0.1\"\nname = \"a\"\n[[device]]\naddr = \"127.0.0.2\"\nname = \"a\"\n", "f.toml:6:1: name \"a\" is also that of device a (line 3)\n..."},
		{"[device.total]\nqps = 1\n", "f.toml:1:2: [device.total] is of the device above it; there is none\n..."},
		{one + "[device.totl]\nqps = 1\n", "f.toml:3:2: there is no section [device.totl]; in a device there are [device.cc] and [device.per_client] and [device.total]\n..."},
		{one + "[device.cc]\nrp_ai_rate = 0\n", "f.toml:4:14: rp_ai_rate = 0: it takes 1 to 1600000 Mb/s\n    rp_ai_rate = 0\n                 ^"},
		{one + "[device.cc]\nrp_time_reset = 0\n", "f.toml:4:17: rp_time_reset = 0: it takes 1 to 10000000 us\n..."},
		{one + "[device.cc]\nrp_dce_tcp_g = 1024\n", "f.toml:4:16: rp_dce_tcp_g = 1024: it takes 1 to 1023 1/1024\n..."},
		{one + "[device.cc]\nrp_gd = [1]\n", "f.toml:4:1: rp_gd: it takes 0 to 15 log2, not a list\n..."},
		{one + "[device.cc]\nrp_gd = 0x7fffffffffffffff\n", "f.toml:4:9: rp_gd = 0x7fffffffffffffff: it takes 0 to 15 log2\n..."},
		{one + "[device.cc]\nrp_enable = 2\n", "f.toml:4:13: rp_enable = 2: it takes 0 or 1\n..."},
		{one + "[device.cc]\nalgorithm = \"cubic\"\n", "f.toml:4:13: algorithm = \"cubic\": it takes dcqcn, none, window, swift\n..."},
		{one + "[device.cc]\nprofile = \"cx7\"\n", "f.toml:4:11: profile = \"cx7\": it takes \"mlx5\", ..."},
		{one + "[device.cc]\nrp_rate = 1\n", "f.toml:4:1: unknown key rp_rate; allowed are profile, algorithm, window, ..."},
		{one + "[device.cc]\nrp_max_rate = 5\nrp_min_rate = 10\n", "f.toml:5:1: rp_min_rate of 10 Mb/s is above rp_max_rate of 5 Mb/s\n..."},
		{one + "[device.cc]\nprofile = \"ns3\"\nrp_max_rate = 50\n", "f.toml:5:1: rp_min_rate of 100 Mb/s is above rp_max_rate of 50 Mb/s\n..."},
		{one + "[device.per_client]\nclients = 3\n", "f.toml:4:1: unknown key clients; allowed are qps, cqs, cqes, srqs, mrs, mws, pds, ahs, groups, bytes\n..."},
		{one + "[device.per_client]\nqps = 2000000\n", "f.toml:4:7: qps = 2000000: it takes a number from 0 to 1047552\n..."},
		{one + "[device.total]\nbytes = \"1 GB\"\n", "f.toml:4:9: bytes = \"1 GB\": it takes a number of octets up to 70368744177664, or such as \"512MiB\" (KiB, MiB, GiB, TiB)\n..."},
		{one + "[device.total]\nbytes = \"9000000TiB\"\n", "...: it takes a number of octets up to ..."},
		{one + "[device.per_client]\nbytes = \"2GiB\"\n[device.total]\nbytes = \"1GiB\"\n", "f.toml:4:1: a client may have 2147483648 octets, more than the 1073741824 of all clients (total)\n..."},
		{"[log\n" + one, "f.toml:1:...: ..."},
		{"[log]\nlevel = \"info\"\nlevel = \"warn\"\n" + one, "f.toml:3:..."},
		{"[log]\n\tlevel = \"schön\" # tab\n" + one, "f.toml:2:10: level = \"schön\": it takes ..."},
		{one + "addr.x = 1\n", "f.toml:3:..."},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := Parse("f.toml", []byte(c.text), noenv, nil)
			require.Error(t, err)
			matches(t, c.want, err.Error())
		})
	}
}

// matches compares with a text in which "..." stands for anything.
func matches(t *testing.T, want, got string) {
	t.Helper()
	rest := got
	parts := strings.Split(want, "...")
	for i, p := range parts {
		at := strings.Index(rest, p)
		if at < 0 || i == 0 && at > 0 {
			t.Fatalf("want %s\ngot  %s", want, got)
		}
		rest = rest[at+len(p):]
	}
	if parts[len(parts)-1] != "" && rest != "" {
		t.Fatalf("want %s\ngot  %s", want, got)
	}
}

// TestAllErrors: they come together, in the order of the file.
func TestAllErrors(t *testing.T) {
	_, err := Parse("f.toml", []byte("[log]\nlevel = 1\nx = 2\n[nope]\ny = 1\n[[device]]\nshards = 0\n[[device]]\naddr = \"127.0.0.9\"\nlink = \"no\"\n"), noenv, nil)
	var all Problems
	require.ErrorAs(t, err, &all)
	var at []int
	for _, p := range all {
		at = append(at, p.Line)
	}
	require.Equal(t, []int{2, 3, 4, 6, 7, 10}, at, "%v", err)
}

// TestPrint: what is printed is a file with the same meaning, of every key.
func TestPrint(t *testing.T) {
	text := `
[control]
socket = "/tmp/v.sock"
mode = 0o666
allow_uids = ["root", 1000]
[metrics]
listen = "0.0.0.0:9879"
allow_remote = true
[[device]]
interface = "eth0"
namespace = "blue"
faults = "tx drop 1%"
seed = 9
required = false
[device.cc]
rp_ai_rate = 0x0c
profile = "paper"
rp_enable = 0
np_enable = false
np_cnp_pacing = "port"
[device.per_client]
qps = 100
bytes = "512MiB"
[[device]]
name = "rxe0"
addr = "::1"
[device.total]
clients = 4
`
	c, err := Parse("f.toml", []byte(text), noenv, nil)
	require.NoError(t, err)
	require.Equal(t, "rxe1", c.Devices[0].Name, "rxe0 is taken")
	require.Equal(t, int64(512<<20), c.Devices[0].PerClient.Bytes)
	want := cc.Default()
	require.NoError(t, want.Parse("profile=paper,rp_ai_rate=12,rp_enable=0,np_enable=0,np_cnp_pacing=port"))
	require.Equal(t, CC{"paper", want}, c.Devices[0].CC, "whatever comes first in the file, the profile does")
	require.Equal(t, CC{"mlx5", cc.Default()}, c.Devices[1].CC)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	again, err := Parse("printed.toml", out.Bytes(), noenv, nil)
	require.NoError(t, err, "%s", &out)
	require.Empty(t, diff(c, again))
	require.Contains(t, out.String(), `mode         = "0666"`)
	for i := range c.Devices {
		c.Devices[i].where, again.Devices[i].where = nil, nil
	}
	c.where, again.where = nil, nil
	require.Equal(t, c, again)
}

// TestOverrides: flags go before the file, and are checked like it.
func TestOverrides(t *testing.T) {
	file := []byte("[log]\nlevel = \"warn\"\n" + one + "shards = 2\n")
	c, err := Parse("f.toml", file, noenv, &Overrides{Keys: []Override{{"log", "level", "debug", "--log-level"}, {"device", "shards", "4", "--shards"}}})
	require.NoError(t, err)
	require.Equal(t, "debug", c.Log.Level)
	require.Equal(t, 4, c.Devices[0].Shards)

	c, err = Parse("f.toml", file, noenv, &Overrides{Interfaces: []string{"eth0"}, Addrs: []string{"127.0.0.5"}, Keys: []Override{{"device", "link", "udp", "--link"}}})
	require.NoError(t, err)
	require.Len(t, c.Devices, 2, "the file's are replaced")
	require.Equal(t, []string{"eth0", "127.0.0.5"}, []string{c.Devices[0].Interface, c.Devices[1].Addr})
	require.Equal(t, []string{"rxe0", "rxe1"}, []string{c.Devices[0].Name, c.Devices[1].Name})
	require.Equal(t, "udp", c.Devices[1].Link)

	c, err = Parse("f.toml", append(file, "[device.cc]\nrp_gd = 3\nrp_ai_rate = 4\n"...), noenv, &Overrides{CC: "dcqcn,rp_ai_rate=7,profile=paper"})
	require.NoError(t, err)
	require.Equal(t, []int{3, 7, 400}, []int{c.Devices[0].CC.RPGD, c.Devices[0].CC.RPAIRate, c.Devices[0].CC.RPHAIRate})

	for _, x := range []struct {
		over Overrides
		want string
	}{
		{Overrides{Addrs: []string{"eth0"}}, "--addr eth0: it takes an IP address of this host, such as 127.0.0.1"},
		{Overrides{Interfaces: []string{"127.0.0.1"}}, `-d 127.0.0.1: it takes the name of a network interface; for an address there is addr = "127.0.0.1"`},
		{Overrides{Keys: []Override{{"device", "shards", "many", "--shards"}}}, "--shards many: it takes a number from 1 to 16"},
		{Overrides{Keys: []Override{{"process", "seccomp", "maybe", "--seccomp"}}}, `--seccomp maybe: it takes "on", "off" or "kill"`},
		{Overrides{Addrs: []string{"127.0.0.1"}, CC: "cubic"}, `--cc cubic: invalid: congestion control: algorithm of "cubic": it takes dcqcn, none, window, swift`},
		{Overrides{Addrs: []string{"127.0.0.1"}, CC: "none,rp_gd"}, `--cc none,rp_gd: "rp_gd": it takes name=value, such as rp_ai_rate=10`},
		{Overrides{Addrs: []string{"127.0.0.1", "127.0.0.1"}}, `f.toml: addr "127.0.0.1" is also that of device rxe0`},
	} {
		_, err := Parse("f.toml", nil, noenv, &x.over)
		if len(x.over.Keys) > 0 {
			_, err = Parse("f.toml", file, noenv, &x.over)
		}
		require.EqualError(t, err, x.want)
	}
}

// TestEnvironment: below the file, above the defaults.
func TestEnvironment(t *testing.T) {
	env := func(name string) string {
		return map[string]string{EnvControlSocket: "/e/v.sock", EnvAdminSocket: "/e/a.sock"}[name]
	}
	c, err := Parse("f.toml", []byte(one+"[control]\nsocket = \"/f/v.sock\"\n"), env, nil)
	require.NoError(t, err)
	require.Equal(t, "/f/v.sock", c.Control.Socket)
	require.Equal(t, "/e/a.sock", c.Admin.Socket)
}

func TestLoadFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"), noenv, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(t.TempDir(), noenv, nil)
	require.ErrorContains(t, err, "is a directory")
	big := filepath.Join(t.TempDir(), "big.toml")
	require.NoError(t, os.WriteFile(big, bytes.Repeat([]byte("#"), MaxFile+1), 0o600))
	_, err = Load(big, noenv, nil)
	require.ErrorContains(t, err, "is longer than 1048576 octets")
	require.NoError(t, os.WriteFile(big, []byte(one), 0o600))
	_, err = Load(big, noenv, nil)
	require.NoError(t, err)
}

// TestExample: the example is good, and names every key there is.
func TestExample(t *testing.T) {
	b, err := os.ReadFile("../../dist/rxed.toml")
	require.NoError(t, err)
	c, err := Parse("rxed.toml", b, noenv, nil)
	require.NoError(t, err)
	text := string(b)
	each := func(section string, tab table) {
		tab.each(func(key, _, _ string) {
			require.Regexp(t, `(?m)^#? ?`+key+` += `, text, "%s.%s is not in the example", section, key)
		})
	}
	for name, of := range tables {
		require.Regexp(t, `(?m)^\[`+name+`\]`, text)
		each(name, of(c))
	}
	each("device", bound[Device]{deviceKeys, &c.Devices[0]})
	each("device.cc", deviceTables["cc"](&c.Devices[0]))
	d := NewDevice()
	require.Equal(t, d.CC, c.Devices[0].CC, "the example has the defaults")
	for _, f := range cc.Fields() { // in comments too
		if _, v, ok := strings.Cut(text, "\n# "+f.Name+" = "); ok {
			v, _, _ = strings.Cut(v, " ")
			v = strings.Trim(strings.NewReplacer("true", "1", "false", "0").Replace(strings.TrimSpace(strings.Split(v, "\n")[0])), `"`)
			require.Equal(t, f.Get(&d.CC.Config), v, f.Name)
		}
	}
	each("device.total", deviceTables["total"](&c.Devices[0]))
}

// FuzzParse: whatever the text, there is a configuration or errors with lines that
// are in it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(one))
	f.Add([]byte("[log]\nlevel = 1\n[[device]]\n[device.total]\nqps = -1\n"))
	f.Add([]byte("device = [{ addr = \"::1\" }, 3]\nlog = { level = { x = [1] } }\n"))
	f.Add([]byte("a.b.\"c\" = '''\nx'''\n[[device]]\r\naddr=\"\\u0000\"\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f.toml", text, noenv, nil)
		var all Problems
		switch {
		case err == nil:
			require.NotEmpty(t, c.Devices)
			require.NoError(t, c.Print(new(bytes.Buffer)))
		case errors.As(err, &all):
			lines := bytes.Count(text, []byte("\n")) + 1
			for _, p := range all {
				require.LessOrEqual(t, p.Line, lines)
				require.NotEmpty(t, p.Error())
			}
		default:
			t.Fatalf("%v is no Problems", err)
		}
	})
}
