// Package mr is memory as the NIC sees it: protection domains, regions with
// keys and permissions, and the one check that stands between a packet or a
// work request and an octet of memory.
//
// A region is {iova, base, length, key}; a request names {address, length,
// key}. A window is a key of its own to a part of a region, for peers alone. Only offsets into the region are computed: an address is never
// dereferenced. Sans-IO: registering and deregistering are the caller's to
// serialise; lookups are lock-free and may run beside them.
//
// Source: IBA Specification Volume 1, clauses 10.6 (memory management) and
// 9.4.1, 9.7.4.1.5 (R_Key validation).
package mr
