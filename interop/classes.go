package main

import "github.com/gorxe/gorxe/verbs"

// class is a way for something to end badly: a status, a NAK or an event. Each has
// a place where it is seen at our end, and one where it is seen at rxe's, or the
// reason why it is not.
type class struct{ ours, rxe place }

// place is an item of a procedure's table, or why there is none.
type place struct {
	procedure string
	item      string // of that procedure, if it has a table
	never     string // why not
}

func at(procedure, item string) place { return place{procedure: procedure, item: item} }
func never(why string) place          { return place{never: why} }

// Reasons that several have.
const (
	dropsWrong  = "a wrong answer is dropped and counted, and the request sent again: anybody may have made it"
	raisesNone  = "rxe raises no event for an error"
	noWindows   = "a bind fails when posted, or completes with this status: the cases of memory windows have it"
	rxeFlushes  = "rxe flushes what it cannot send, and gives the status of no response"
	lengthIsOp  = "rxe takes whatever a receive request cannot bear for a local QP operation error"
	checkedPost = "a receive request that is malformed is refused when posted"
	notRoCE     = "reliable datagrams, which RoCE has not"
)

// requesterClasses are what a send request may complete with. IBA 11.6.2.
var requesterClasses = map[verbs.WCStatus]class{
	verbs.WCLocLenErr:      {ours: at("replies", "READ response too short"), rxe: never(rxeFlushes)},
	verbs.WCLocQPOpErr:     {ours: at("refused-own", "READ with no READs allowed"), rxe: never("rxe waits for a READ to be allowed")},
	verbs.WCLocProtErr:     {ours: at("refused-own", "READ to a region that may not be written"), rxe: at("refused-own", "READ to a region that may not be written")},
	verbs.WCWRFlushErr:     {ours: at("replies", "a request"), rxe: at("refused-own", "SEND from a wrong local key")},
	verbs.WCMWBindErr:      {ours: never(noWindows), rxe: never(noWindows)},
	verbs.WCBadRespErr:     {ours: never(dropsWrong), rxe: never("rxe has other statuses for wrong answers: fatal, remote operation, success")},
	verbs.WCLocAccessErr:   {ours: never("no operation of RC, UC or UD has it"), rxe: never("no operation of RC, UC or UD has it")},
	verbs.WCRemInvReqErr:   {ours: at("refused", "READ, queue pair without"), rxe: at("refused", "READ, queue pair without")},
	verbs.WCRemAccessErr:   {ours: at("refused", "WRITE beyond"), rxe: at("refused", "WRITE beyond")},
	verbs.WCRemOpErr:       {ours: at("refused", "SEND to a wrong local key"), rxe: at("refused", "SEND to a wrong local key")},
	verbs.WCRetryExcErr:    {ours: at("silent", ""), rxe: at("silent", "")},
	verbs.WCRNRRetryExcErr: {ours: at("late", ""), rxe: at("late", "")},
	verbs.WCFatalErr:       {ours: never(dropsWrong), rxe: at("replies", "READ response to a SEND")},
	verbs.WCGeneralErr:     {ours: never("nothing ends with it"), rxe: never("nothing ends with it")},
}

// nakClasses are what a responder may answer, by the words of bth.Syndrome. IBA
// 9.7.5.2.
var nakClasses = map[string]class{
	"NAK sequence error":           {ours: at("answers", "a PSN ahead"), rxe: at("answers", "a PSN ahead")},
	"NAK invalid request":          {ours: at("answers", "SEND_MIDDLE first"), rxe: at("answers", "SEND_MIDDLE first")},
	"NAK remote access error":      {ours: at("answers", "WRITE, wrong key"), rxe: at("answers", "WRITE, wrong key")},
	"NAK remote operational error": {ours: at("refused", "SEND to a wrong local key"), rxe: at("answers", "SEND_ONLY longer than its receive request")},
	"NAK invalid RD request":       {ours: never(notRoCE), rxe: never(notRoCE)},
	"RNR NAK":                      {ours: at("answers", "no receive request"), rxe: at("answers", "no receive request")},
}

// responderClasses are what a receive request may complete with.
var responderClasses = map[verbs.WCStatus]class{
	verbs.WCLocLenErr:    {ours: at("refused", "SEND too long, one packet"), rxe: never(lengthIsOp)},
	verbs.WCLocQPOpErr:   {ours: never(checkedPost), rxe: at("refused", "SEND too long, one packet")},
	verbs.WCLocProtErr:   {ours: at("refused", "SEND to a region of another domain"), rxe: never(lengthIsOp)},
	verbs.WCRemInvReqErr: {ours: never("a receive request tells of local errors only"), rxe: at("answers", "SEND_FIRST, WRITE_LAST")},
	verbs.WCWRFlushErr:   {ours: at("refused", "WRITE beyond"), rxe: at("refused", "WRITE beyond")},
}

// eventClasses are the asynchronous events. IBA 11.6.3.
var eventClasses = map[verbs.EventType]class{
	verbs.EventCQErr:       {ours: at("events", "completion queue overrun"), rxe: at("events", "completion queue overrun")},
	verbs.EventQPFatal:     {ours: at("refused", "SEND to a wrong local key"), rxe: never(raisesNone)},
	verbs.EventQPReqErr:    {ours: at("refused", "READ, queue pair without"), rxe: never(raisesNone)},
	verbs.EventQPAccessErr: {ours: at("refused", "WRITE beyond"), rxe: never(raisesNone)},
	verbs.EventCommEst:     {ours: at("events", "first message in RTR"), rxe: never("rxe does not raise it")},
	verbs.EventSQDrained:   {ours: at("events", "send queue drained"), rxe: at("events", "send queue drained")},
	verbs.EventDeviceFatal: {ours: never("no peer can make a device fail"), rxe: never("no peer can make a device fail")},
	verbs.EventPortActive:  {ours: never("no peer's doing: the interface goes up or down; the tests of nic have it"), rxe: never("it is about the guest's interface, and no peer's doing")},
	verbs.EventPortErr:     {ours: never("no peer's doing: the interface goes up or down; the tests of nic have it"), rxe: never("it is about the guest's interface, and no peer's doing")},
	verbs.EventGIDChange:   {ours: never("no peer's doing: the interface's addresses change; the tests of nic have it"), rxe: never("it is about the guest's addresses, and no peer's doing")},
	verbs.EventSRQErr:      {ours: never("a shared receive queue that the program has broken; the tests of nic have it"), rxe: never("not raised")},
	verbs.EventSRQLimit:    {ours: at("events", "shared receive queue below its limit"), rxe: at("events", "shared receive queue below its limit")},
	verbs.EventLastWQE:     {ours: at("events", "error with a shared receive queue"), rxe: at("events", "error with a shared receive queue")},
}
