// Package rig runs the guests that the interoperation cases talk to: Debian
// under qemu, whose kernel's Soft-RoCE is the peer. The work is done by the
// script rig beside it, which is good by hand too and is carried in the binary:
//
//	namespace gxrig                                  namespace of our side
//	+---------------------------------------+        +---------------------+
//	| guest 2 ==== tap2 --+                 |        |                     |
//	| 192.0.2.2           |                 |  veth  |  eth0 192.0.2.100   |
//	| fd00::2            br0 192.0.2.1 --- v100 ======     fd00::100       |
//	| guest 3 ==== tap3 --+                 |        |                     |
//	+---------------------------------------+        +---------------------+
//
// Guests are of one of two suites, Debian 12 and 13, which may share a bridge.
// Guests are emulated, so that no machine is too small or too nested for them;
// one takes about ten seconds to boot. Everything needs root. Linux only.
package rig
