package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func noenv(string) string { return "" }

func TestScratch(t *testing.T) {
	_, err := Parse("rxed.toml", []byte(`
[control]
sockt = "x"
mode = 438
[admin]
socket = "foo"
mode = "0999"
[metrics]
listen = "0.0.0.0:99"
[log]
level = 5
[nonsense]
a = 1
[[device]]
interface = "192.0.2.1"
link = "tcp"
shards = 17
[device.per_client]
qps = -1
bytes = "5 KB"
xs = 3
[[device]]
addr = "127.0.0.1/8"
[[device]]
addr = "127.0.0.1"
[[device]]
addr = "127.0.0.1"
faults = "tx frob"
allow = [1,2]
`), noenv, nil)
	require.Error(t, err)
	t.Log("\n" + err.Error())
}
