// Package inspect shows a device as control/admin wants to see it: it is an
// admin.Device over a nic.NIC, and adds what only the program around the device
// knows, such as which processes use it.
package inspect
