package verbs

import (
	"fmt"

	"github.com/gorxe/gorxe/trace"
)

// WC is a work completion.
type WC struct {
	ID        uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	VendorErr uint32
	ByteLen   uint32 // received octets, or octets read
	Imm       uint32 // host order; with WCWithInv the invalidated key
	QPN       uint32 // local queue pair
	SrcQP     uint32 // UD: the sender's
	// Reason tells why Status is not success, for Explain and counters.
	Reason trace.Reason

	// cookie is what the program's side of the queue gave the request. It is
	// 0 in what Poll returns.
	cookie uint32
}

// Err returns nil for a successful completion and a *StatusError otherwise.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &StatusError{Status: w.Status, VendorErr: w.VendorErr, QPN: w.QPN, ID: w.ID, Reason: w.Reason}
}

// StatusError is a failed completion as an error.
type StatusError struct {
	Status    WCStatus
	VendorErr uint32
	QPN       uint32
	ID        uint64
	Reason    trace.Reason
}

// Error says what failed, in verbs' words and in plain ones.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("verbs: work request %d on QP %#06x: %v (status %d, vendor_err %d)", e.ID, e.QPN, e.Status, e.Status, e.VendorErr)
	if e.Reason != trace.None {
		s += ": " + e.Reason.Explain()
	}
	return s
}

// Is reports whether target is a StatusError with the same Status.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status
}
