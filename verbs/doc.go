// Package verbs is the vocabulary of RDMA as libibverbs has it, the rings that
// a program and a NIC share, and the objects a program holds: Context, PD, MR,
// CQ, QP, SRQ and AH, over a small Provider interface. A program written against
// it runs the same over a NIC embedded in its own process and one in another.
//
// A program begins with gorxe.Open, which returns a Context; docs/api.md goes on
// from there:
//
//	pd, _ := ctx.AllocPD()
//	mr, _ := pd.RegMR(buf, verbs.AccessAll)
//	cq, _ := ctx.CreateCQ(verbs.CQConfig{})
//	qp, _ := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
//	local, _ := qp.Endpoint(peer)            // tell the peer, and hear its own
//	err := qp.Connect(local, remote, verbs.ConnectOptions{})
//	qp.PostSend(...)
//	n, err := cq.Wait(ctx, wc)
//
// The layout of the rings is fixed and little-endian: see docs/rings.md. The
// package is a leaf: engines and programs both import it, and it imports only
// trace.
//
// Source: IBA Specification Volume 1, chapter 11 (verbs); rdma-core's
// libibverbs for names and numeric values.
package verbs
