// Package cc is congestion control: what decides how much a queue pair may
// have in flight. Engines ask a Controller; the algorithms behind it are
// sans-IO like the engines.
package cc
