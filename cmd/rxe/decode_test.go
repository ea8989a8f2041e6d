package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rxe runs the command line and returns what it wrote.
func rxe(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newRootCmd()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

const capture = "../../internal/decode/testdata/rping.pcap"

func TestDecode(t *testing.T) {
	out, err := rxe("decode", "--strict", capture)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 41)
	require.Contains(t, lines[0], "cm REQ")
	require.Equal(t, 41, strings.Count(out, "icrc ok"))

	out, err = rxe("decode", "--json", capture)
	require.NoError(t, err)
	var p struct {
		Frame  int
		Opcode string
		DestQP *int `json:"dest_qp"`
		PSN    *int
		ICRC   string
	}
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &p))
	require.Equal(t, 1, p.Frame)
	require.Equal(t, "UD_SEND_ONLY", p.Opcode)
	require.Equal(t, 1, *p.DestQP)
	require.NotNil(t, p.PSN)
	require.Equal(t, "ok", p.ICRC)
}

func TestDecodeStrict(t *testing.T) {
	b, err := os.ReadFile(capture)
	require.NoError(t, err)
	b[24+16+14+20+8+14] ^= 1 // one bit after the BTH of the first packet
	name := filepath.Join(t.TempDir(), "bad.pcap")
	require.NoError(t, os.WriteFile(name, b, 0o600))
	out, err := rxe("decode", name)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "icrc BAD"))
	_, err = rxe("decode", "--strict", name)
	require.ErrorContains(t, err, "1 bad packet")
}

func TestDecodeErrors(t *testing.T) {
	_, err := rxe("decode")
	require.Error(t, err)
	_, err = rxe("decode", filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rxe("decode", "decode_test.go")
	require.ErrorContains(t, err, "not a pcap, pcapng or .hex file")
	cut, err := os.ReadFile(capture)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "cut.pcap")
	require.NoError(t, os.WriteFile(name, cut[:len(cut)-1], 0o600))
	out, err := rxe("decode", name)
	require.ErrorContains(t, err, "ends inside frame 41")
	require.Equal(t, 40, strings.Count(out, "icrc ok"), "the frames before it are shown")
}
