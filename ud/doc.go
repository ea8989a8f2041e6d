// Package ud is the engine of unreliable datagrams: SENDs of one packet each
// from one queue pair to any number of others, multicast groups among them. IBA
// 9.8.4, Annex A17.
//
// A receive finds 40 octets before its payload, the GRH area (bth.Packet.GRH);
// WC.ByteLen includes them. A datagram that finds no receive request, or one
// too small, is dropped and counted, and the request is used for the next; but
// one of a shared receive queue cannot go back there and others wait for it, so
// it completes with WCLocLenErr, and the queue pair lives on (as in rxe, whose
// status is REM_INV_REQ_ERR). Any PSN is taken, and AckReq is never set nor
// heeded.
//
// A datagram longer than the path MTU completes well and is not sent, as IBA
// C10-93.1.1 demands and rxe does; package verbs refuses it when it is posted.
//
// What it shares with other services, among it the send queue, is in package
// transport. Sans-IO, like all engines.
package ud
