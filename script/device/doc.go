// Package device runs packet scripts against a whole device: a queue pair of a
// nic.NIC, driven through verbs as a program would, with the script at the
// other end of its link. What an engine does not see is then under test as well:
// ICRC, addresses, partition and queue keys, completion queues, timers, posting.
//
//	script --> verbs --> nic --> engine
//	       \--> link --> /
//
// The device moves only when the script lets it. Its timers run on a wheel: up
// to Slack late.
package device
