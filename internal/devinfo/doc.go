// Package devinfo tells what RDMA devices this host's interfaces carry: the
// programs rxe devinfo and rxe gids.
//
//	gorxe.Probe --> attributes, GIDs --+
//	hostnet --> interface, port owner -+--> Info --> text as ibv_devinfo's, as show_gids', or JSON
//
// Layout and names of the text are those of rdma-core's ibv_devinfo and of
// show_gids, so that what reads those reads this. What ibv_devinfo has no line
// for comes after it: the link, the strength of its ICRC check, who has UDP port
// 4791, and what the device does without, each in a sentence with the reason,
// the consequence and the remedy.
//
// Nothing here takes the port, sends a packet, or needs a privilege.
package devinfo
