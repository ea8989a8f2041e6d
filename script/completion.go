package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorxe/gorxe/verbs"
)

// statuses are the completion statuses by verbs' names, without IBV_WC_.
var statuses = map[string]verbs.WCStatus{
	"SUCCESS": verbs.WCSuccess, "LOC_LEN_ERR": verbs.WCLocLenErr, "LOC_QP_OP_ERR": verbs.WCLocQPOpErr, "LOC_PROT_ERR": verbs.WCLocProtErr,
	"WR_FLUSH_ERR": verbs.WCWRFlushErr, "MW_BIND_ERR": verbs.WCMWBindErr, "BAD_RESP_ERR": verbs.WCBadRespErr, "LOC_ACCESS_ERR": verbs.WCLocAccessErr,
	"REM_INV_REQ_ERR": verbs.WCRemInvReqErr, "REM_ACCESS_ERR": verbs.WCRemAccessErr, "REM_OP_ERR": verbs.WCRemOpErr,
	"RETRY_EXC_ERR": verbs.WCRetryExcErr, "RNR_RETRY_EXC_ERR": verbs.WCRNRRetryExcErr, "FATAL_ERR": verbs.WCFatalErr, "GENERAL_ERR": verbs.WCGeneralErr,
}

var completionOps = map[string]verbs.WCOpcode{
	"send": verbs.WCSend, "write": verbs.WCWrite, "read": verbs.WCRead, "cmp_swap": verbs.WCCmpSwap, "fetch_add": verbs.WCFetchAdd, "bind": verbs.WCBindMW, "local_inv": verbs.WCLocalInv,
	"recv": verbs.WCRecv, "recv_write_imm": verbs.WCRecvWriteImm,
}

// nameOf returns the name of a value.
func nameOf[V comparable](names map[string]V, v V) string {
	for n, x := range names {
		if x == v {
			return n
		}
	}
	return fmt.Sprint(v)
}

func (c *parser) completion(a *args) action {
	queue := a.next("send or recv")
	if queue != "send" && queue != "recv" {
		a.fail("cq send or cq recv, not cq %s", queue)
	}
	status, checks := verbs.WCSuccess, []func(w *Completion) string{}
	for name, s := range statuses {
		if a.flag(name) {
			status = s
		}
	}
	a.asked = nil // sixteen names in another order each time help nobody
	number := func(key string, bits int, get func(w *Completion) uint64) {
		if n, ok := a.num(key, bits); ok {
			checks = append(checks, func(w *Completion) string {
				if g := get(w); g != n {
					return fmt.Sprintf("%s is %#x, not %#x", key, g, n)
				}
				return ""
			})
		}
	}
	number("id", 64, func(w *Completion) uint64 { return w.ID })
	number("len", 32, func(w *Completion) uint64 { return uint64(w.ByteLen) })
	number("vendor", 32, func(w *Completion) uint64 { return uint64(w.VendorErr) })
	number("srcqp", 24, func(w *Completion) uint64 { return uint64(w.SrcQP) })
	imm, hasImm := a.num("imm", 32)
	inv := c.place(a, "inv", c.needKey)
	if name, ok := a.str("op"); ok {
		op, known := completionOps[name]
		if !known {
			a.fail("op=%s: there are %s", name, strings.Join(slices.Sorted(maps.Keys(completionOps)), " "))
		}
		checks = append(checks, func(w *Completion) string {
			if w.Opcode != op {
				return "op is " + nameOf(completionOps, w.Opcode)
			}
			return ""
		})
	}
	if name, ok := a.str("reason"); ok {
		why, known := reasonNamed(name)
		if !known {
			a.fail("reason=%s: no reason of package trace has this name", name)
		}
		checks = append(checks, func(w *Completion) string {
			if w.Reason != why {
				return "reason is " + w.Reason.String()
			}
			return ""
		})
	}
	solicited := a.flag("solicited")
	return func(r *runner) error {
		w, err := r.nextCompletion(queue)
		if err != nil {
			return err
		}
		var bad []string
		if w.Status != status {
			bad = append(bad, "status is "+nameOf(statuses, w.Status))
		}
		for _, f := range checks {
			if s := f(&w); s != "" {
				bad = append(bad, s)
			}
		}
		if w.Status == verbs.WCSuccess && queue == "recv" {
			if got := w.Flags&verbs.WCWithImm != 0; got != hasImm || got && uint64(w.Imm) != imm {
				bad = append(bad, fmt.Sprintf("immediate data: %v, %#x", got, w.Imm))
			}
			if got := w.Flags&verbs.WCWithInv != 0; got != (inv != place{}) || got && w.Imm != r.key(inv) {
				bad = append(bad, fmt.Sprintf("key invalidated: %v, %#x", got, w.Imm))
			}
			if !w.Polled && w.Solicited != solicited {
				bad = append(bad, fmt.Sprintf("solicited is %v", w.Solicited))
			}
		}
		if len(bad) > 0 {
			return fmt.Errorf("got %s\n\t%s", completionText(queue, &w), strings.Join(bad, ", "))
		}
		return nil
	}
}

func completionText(queue string, w *Completion) string {
	s := fmt.Sprintf("cq %s %s id=%d op=%s", queue, nameOf(statuses, w.Status), w.ID, nameOf(completionOps, w.Opcode))
	if w.Status == verbs.WCSuccess {
		s += fmt.Sprintf(" len=%d", w.ByteLen)
	} else {
		s += " reason=" + w.Reason.String()
	}
	return s
}
