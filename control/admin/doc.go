// Package admin is how an operator looks into a running rxed and changes what
// may change: HTTP and JSON over a unix socket, so that curl works as well as
// rxe does.
//
//	GET  /v1                                  the daemon and its devices
//	GET  /v1/devices                          their attributes
//	GET  /v1/devices/NAME
//	GET  /v1/devices/NAME/counters            by name; ?explain=1 says what each counts
//	GET  /v1/devices/NAME/qps                 queue pairs
//	GET  /v1/devices/NAME/qps/QPN             one of them; 0x1a2b or decimal
//	GET  /v1/devices/NAME/trace?qpn=N&max=N   last events, of all or one queue pair
//	GET  /v1/devices/NAME/clients             the processes that use it
//	GET  /v1/devices/NAME/limits              what they may have
//	PUT  /v1/devices/NAME/limits
//	GET  /v1/devices/NAME/cc                  congestion control, with what each parameter may be
//	PUT  /v1/devices/NAME/cc                  {"rp_ai_rate": 10} or "dcqcn,rp_ai_rate=10": all of it or nothing
//	GET  /v1/devices/NAME/capture             pcapng until the reader goes; ?snaplen=N&count=N
//	DELETE /v1/captures/NAME                  end a capture; its answer has the name as Gorxe-Capture
//	POST /v1/reload                           the configuration file
//
//	curl --unix-socket /run/rxed/admin.sock http://rxed/v1/devices
//
// What is wrong comes as {"error": "..."} with a status of 4xx or 5xx. Within /v1
// members may be added to an object; none is taken away or changed in its meaning.
// Numbers are exact up to 64 bits, which some readers of JSON are not beyond 2^53.
// Times are RFC 3339, members that end in _ns are nanoseconds.
//
// Who may open the socket may do all of this.
package admin
