// Package daemon is rxed without its command line: the configuration, and the life
// of a process that opens NICs and serves them to others.
//
//	        Load            Start                    Serve
//	file ---------> Config -------> devices open ---------------> ready
//	flags -^          ^             sockets listen                  |  SIGHUP, POST /v1/reload
//	                  |             rights given up                 |
//	                  +-----------------------------<---------------+
//	                                                                |  SIGTERM, SIGINT
//	                     clients are told, sockets removed <--------+
//
// A file is checked key by key against a table (schema.go) that says what each
// takes, so that all its errors are found at once, each with the line it is on.
// What a reload can change while clients are attached, and what it cannot, is in
// reload.go.
//
// The package imports the root package, nic, control/server, control/admin,
// internal/metrics, internal/hostnet and internal/sys. Linux only.
package daemon
