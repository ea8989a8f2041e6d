// Package testbed gives tests a small network of their own: two network
// namespaces joined by a veth pair.
//
//	+-- A -------------------+        +-------------------- B --+
//	|  veth0  192.0.2.1/24   |  MTU   |  veth0  192.0.2.2/24    |
//	|         fd00:2::1/64   +========+         fd00:2::2/64    |
//	|         02:00:00:00:00:0a       |         02:..:0b        |
//	+------------------------+        +-------------------------+
//
// The namespaces have no name and vanish with the test: what keeps one alive
// is only descriptors and processes that the test closes. Code runs inside one
// with Host.Do, programs with Host.Command, and the test binary itself, as any
// user, with Host.Helper. Sockets opened inside Do stay in their namespace,
// whichever goroutine uses them later.
//
// Where the machine does not allow namespaces, tests skip and say which
// capability is missing. Linux only.
//
// Tests that do without a namespace take loopback addresses of their own
// process from Loopback.
package testbed
