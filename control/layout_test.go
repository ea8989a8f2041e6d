package control_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control"
)

var update = flag.Bool("update", false, "write the tables of docs/control.md and control/testdata/rxed.h")

// message is one struct of the protocol. C is its name in rxed.h.
type message struct {
	c     string
	v     any
	brief string
}

var messages = []message{
	{"header", control.Header{}, "begins every message"},
	{"hello", control.Hello{}, "HELLO"},
	{"hello_reply", control.HelloReply{}, "answer to HELLO, with the memfd of the bell blocks"},
	{"device_reply", control.DeviceReply{}, "answer to QUERY_DEVICE; text follows, a line for each thing that the device goes without"},
	{"port_reply", control.PortReply{}, "answer to QUERY_PORT"},
	{"gid_reply", control.GIDReply{}, "answer to GIDS, one for each entry of the table"},
	{"choose_gid_req", control.ChooseGIDReq{}, "CHOOSE_GID: an address as text"},
	{"choose_gid_reply", control.ChooseGIDReply{}, "answer to CHOOSE_GID"},
	{"handle_reply", control.HandleReply{}, "answer to ALLOC_PD and CREATE_AH"},
	{"reg_mr_req", control.RegMRReq{}, "REG_MR; access as ibv_access_flags"},
	{"reg_mr_reply", control.RegMRReply{}, "answer to REG_MR, with a memfd"},
	{"alloc_mw_req", control.AllocMWReq{}, "ALLOC_MW; type 1 or 2"},
	{"alloc_mw_reply", control.AllocMWReply{}, "answer to ALLOC_MW"},
	{"create_cq_req", control.CreateCQReq{}, "CREATE_CQ; vector is a shard"},
	{"ring_reply", control.RingReply{}, "answer to CREATE_CQ and CREATE_SRQ, with a memfd"},
	{"create_srq_req", control.CreateSRQReq{}, "CREATE_SRQ"},
	{"limit_req", control.LimitReq{}, "MODIFY_SRQ and QUERY_SRQ"},
	{"limit_reply", control.LimitReply{}, "answer to QUERY_SRQ"},
	{"av", control.AV{}, "an address vector; static_rate as ibv_rate"},
	{"create_ah_req", control.CreateAHReq{}, "CREATE_AH"},
	{"create_qp_req", control.CreateQPReq{}, "CREATE_QP; type as ibv_qp_type; 0 in a capacity is a default; srq 0 is none"},
	{"create_qp_reply", control.CreateQPReply{}, "answer to CREATE_QP, with a memfd: the send ring at 0, the receive ring at recv_at"},
	{"qp_attr", control.QPAttr{}, "states as ibv_qp_state; path_mtu in octets, rate_limit in kb/s; answer to QUERY_QP, followed by named counters"},
	{"modify_qp_req", control.ModifyQPReq{}, "MODIFY_QP; mask as ibv_qp_attr_mask"},
	{"handle_req", control.HandleReq{}, "DESTROY; QUERY_QP, where kind means nothing"},
	{"mcast_req", control.McastReq{}, "ATTACH_MCAST and DETACH_MCAST"},
	{"wake_req", control.WakeReq{}, "WAKE, which has no answer"},
	{"event", control.Event{}, "EVENT; type as ibv_event_type"},
}

// field is one field of a struct, in C's words.
type field struct {
	name, typ string
	n         int // of an array, or 0
	at, size  uintptr
}

func fields(t *testing.T, v any) (out []field) {
	t.Helper()
	r := reflect.TypeOf(v)
	for i := range r.NumField() {
		f := r.Field(i)
		x := field{name: snake(f.Name), at: f.Offset, size: f.Type.Size()}
		e := f.Type
		if e.Kind() == reflect.Array {
			x.n, e = e.Len(), e.Elem()
		}
		switch e.Kind() {
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			x.typ = e.Kind().String() + "_t"
		case reflect.Struct:
			for _, m := range messages {
				if reflect.TypeOf(m.v) == e {
					x.typ = "struct rxed_" + m.c
				}
			}
		}
		require.NotEmpty(t, x.typ, "%v.%s", r, f.Name)
		out = append(out, x)
	}
	return out
}

// snake turns MaxSendWR into max_send_wr.
func snake(s string) string {
	var b strings.Builder
	r := []rune(strings.NewReplacer("LKey", "Lkey", "RKey", "Rkey", "QKey", "Qkey", "PKey", "Pkey", "SRQWR", "SRQWr", "QPWR", "QPWr", "RQPSN", "RQPsn", "SQPSN", "SQPsn").Replace(s))
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// The layout in memory is that on the wire: naturally aligned, without holes that
// one side would fill in otherwise.
func TestNaturalAlignment(t *testing.T) {
	for _, m := range messages {
		r := reflect.TypeOf(m.v)
		require.EqualValues(t, r.Size(), binary.Size(m.v), "%v has holes", r)
		for i := range r.NumField() {
			require.Zero(t, r.Field(i).Offset%uintptr(r.Field(i).Type.Align()), "%v.%s", r, r.Field(i).Name)
		}
	}
	require.Equal(t, control.HeaderLen, binary.Size(control.Header{}))
}

const (
	docs   = "../docs/control.md"
	header = "testdata/rxed.h"

	docsBegin   = "<!-- layout: go test ./control -run TestLayout -update -->\n"
	docsEnd     = "<!-- end of layout -->"
	headerBegin = "/* layout: go test ./control -run TestLayout -update */\n"
	headerEnd   = "/* end of layout */"
)

// The documented layout, and that of the header for C, is the one of the structs.
func TestLayout(t *testing.T) {
	var d, h strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&d, "\n`%s` (%d octets): %s\n\n| octet | type | field |\n| --- | --- | --- |\n", m.c, binary.Size(m.v), m.brief)
		fmt.Fprintf(&h, "\n/* %s */\nstruct rxed_%s {\n", m.brief, m.c)
		for _, f := range fields(t, m.v) {
			typ, array := f.typ, ""
			if f.n > 0 {
				array = fmt.Sprintf("[%d]", f.n)
			}
			fmt.Fprintf(&h, "\t%s %s%s;\n", typ, f.name, array)
			typ = strings.NewReplacer("uint8_t", "u8", "uint16_t", "u16", "uint32_t", "u32", "uint64_t", "u64", "struct rxed_", "").Replace(typ)
			fmt.Fprintf(&d, "| %d | %s%s | %s |\n", f.at, typ, array, f.name)
		}
		fmt.Fprintf(&h, "};\n_Static_assert(sizeof(struct rxed_%s) == %d, \"layout\");\n", m.c, binary.Size(m.v))
	}
	d.WriteString("\n")
	h.WriteString("\n")
	golden(t, docs, docsBegin, docsEnd, d.String())
	golden(t, header, headerBegin, headerEnd, h.String())
}

// golden checks, or writes, the part of a file between two marks.
func golden(t *testing.T, path, begin, end, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(b), begin)
	require.True(t, ok, "%s lacks %q", path, begin)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s lacks %q", path, end)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, have, "%s is not what the structs are: run the command in it", path)
}

// A C compiler lays the structs out as Go does, and has the same numbers.
func TestLayoutInC(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc (Debian: apt-get install gcc libc6-dev)")
	}
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include \"rxed.h\"\n")
	assert := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		fmt.Fprintf(&b, "_Static_assert(%s, \"%s\");\n", s, s)
	}
	for _, m := range messages {
		for _, f := range fields(t, m.v) {
			assert("offsetof(struct rxed_%s, %s) == %d", m.c, f.name, f.at)
			assert("sizeof(((struct rxed_%s *)0)->%s) == %d", m.c, f.name, f.size)
		}
	}
	for name, n := range numbers {
		assert("%s == %d", name, n)
	}
	assert("RXED_VERSION_MINOR == %d", control.VersionMinor)
	dir := t.TempDir()
	src := filepath.Join(dir, "check.c")
	require.NoError(t, os.WriteFile(src, []byte(b.String()), 0o644))
	out, err := exec.CommandContext(t.Context(), gcc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", "testdata", src).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// numbers are constants of rxed.h.
var numbers = map[string]uint64{
	"RXED_MAGIC": control.Magic, "RXED_VERSION_MAJOR": control.VersionMajor, "RXED_MAX_MESSAGE": control.MaxMessage,
	"RXED_HELLO": uint64(control.OpHello), "RXED_QUERY_DEVICE": uint64(control.OpQueryDevice), "RXED_QUERY_PORT": uint64(control.OpQueryPort),
	"RXED_GIDS": uint64(control.OpGIDs), "RXED_CHOOSE_GID": uint64(control.OpChooseGID), "RXED_COUNTERS": uint64(control.OpCounters),
	"RXED_ALLOC_PD": uint64(control.OpAllocPD), "RXED_REG_MR": uint64(control.OpRegMR), "RXED_ALLOC_MW": uint64(control.OpAllocMW),
	"RXED_CREATE_CQ": uint64(control.OpCreateCQ), "RXED_CREATE_SRQ": uint64(control.OpCreateSRQ), "RXED_MODIFY_SRQ": uint64(control.OpModifySRQ),
	"RXED_QUERY_SRQ": uint64(control.OpQuerySRQ), "RXED_CREATE_AH": uint64(control.OpCreateAH), "RXED_CREATE_QP": uint64(control.OpCreateQP),
	"RXED_MODIFY_QP": uint64(control.OpModifyQP), "RXED_QUERY_QP": uint64(control.OpQueryQP), "RXED_ATTACH_MCAST": uint64(control.OpAttachMcast),
	"RXED_DETACH_MCAST": uint64(control.OpDetachMcast), "RXED_DESTROY": uint64(control.OpDestroy), "RXED_WAKE": uint64(control.OpWake),
	"RXED_EVENT": uint64(control.OpEvent), "RXED_REPLY": uint64(control.OpReply),
}
