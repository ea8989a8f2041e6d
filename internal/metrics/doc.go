// Package metrics shows devices to Prometheus: by the names and labels of
// node_exporter's infiniband collector what that reads of a NIC in sysfs, so that
// dashboards for hardware work, and beside it all counters by names of our own
// (gorxe_...). docs/counters.md says what each counts.
package metrics
