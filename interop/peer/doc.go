// Package peer drives verbs_peer.py, which runs in a guest of interop/rig and
// does on the kernel's Soft-RoCE exactly what it is told: register, connect,
// post, poll, look at memory. A request is a line of JSON over TCP, an answer
// another one.
//
// An Endpoint is one connection: a device, a protection domain, a completion
// queue, and any number of regions and queue pairs. When it is closed, or its
// connection breaks, the guest destroys them. Its methods may be called from
// one goroutine at a time. Values and names are those of package verbs.
package peer
