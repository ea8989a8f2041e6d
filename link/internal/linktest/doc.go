// Package linktest is what tests of links that see frames share: bursts that can
// be told apart, sending, receiving and comparing them between the hosts of a
// testbed, and frames made by hand. Linux only.
package linktest
