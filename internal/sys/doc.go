// Package sys is the only home of raw system calls for links: batches of
// messages in and out (recvmmsg, sendmmsg), waiting, socket options, and
// probes that say why something is not there.
//
// Calls that cannot block go through RawSyscall, which does not tell the Go
// scheduler: 75 ns less for an empty poll. All memory that the kernel reads or
// writes is allocated once. Descriptors are plain integers; a Gate keeps them
// from being used after they were closed.
//
// It is written for Linux; elsewhere only the Gate exists. It imports nothing
// of the project.
package sys
