package linktest

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"

	"github.com/gorxe/gorxe/internal/testbed"
)

// marker marks every fourth packet that arrives by an interface, before it is
// forwarded, by the same function of the kernel as the queueing disciplines do
// (INET_ECN_set_ce), and returns what counts how many. It skips the test where the
// kernel or the privileges do not allow it.
func marker(t testing.TB, h *testbed.Host, dev string) (marks func() int) {
	t.Helper()
	refused := func(what string, err error) {
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, os.ErrPermission) {
			t.Skipf("needs tcx programs: %s: %v", what, err)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2}) // marked, seen
	refused("make a BPF map", err)
	t.Cleanup(func() { count.Close() })
	const next = -1
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 1, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.And.Imm(asm.R1, 3),
		asm.JNE.Imm(asm.R1, 0, "next"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnSkbEcnSetCe.Call(),
		asm.JNE.Imm(asm.R0, 1, "next"), // it is no ECT
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, next).WithSymbol("next"),
		asm.Return(),
	}})
	refused("load a BPF program", err)
	t.Cleanup(func() { prog.Close() })
	h.Do(func() {
		at, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: h.Index(dev), Program: prog, Attach: ebpf.AttachTCXIngress})
		refused("attach a BPF program", err)
		t.Cleanup(func() { at.Close() })
	})
	return func() int {
		var n [8]byte
		if err := count.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return int(binary.NativeEndian.Uint64(n[:]))
	}
}
