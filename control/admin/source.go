package admin

import (
	"context"
	"errors"
	"io"
)

// Errors that a Source returns, wrapped in one that says more.
var (
	ErrNotFound     = errors.New("not found")     // 404
	ErrInvalid      = errors.New("invalid")       // 400
	ErrBusy         = errors.New("busy")          // 503
	ErrNotSupported = errors.New("not supported") // 501
)

// Source is what is administered. Its methods are called by many goroutines.
type Source interface {
	// Daemon describes the program; Devices and API are filled in.
	Daemon() Daemon
	// Devices are those there are now, in the order to list them.
	Devices() []Device
	// Reload reads the configuration again. An error leaves all as it was.
	Reload(ctx context.Context) (ReloadResult, error)
}

// Device is one device.
type Device interface {
	Name() string
	Info() (DeviceInfo, error)
	// Counters returns all counters, also those that are 0.
	Counters() (map[string]uint64, error)
	DescribeCounter(name string) CounterInfo
	QPs() ([]QP, error)
	QP(qpn uint32) (QPDetail, error)
	// Trace returns at most the last limit events, of one queue pair if qpn is
	// not 0.
	Trace(qpn uint32, limit int) ([]Event, error)
	Clients() ([]ClientInfo, error)
	Limits() (Limits, error)
	SetLimits(Limits) error
	CC() (CC, error)
	// SetCC changes parameters of congestion control, by their names, from now on
	// and for all queue pairs: all of them, or none and an error that names the
	// parameter, its range and its unit. A profile goes before the others.
	SetCC(change map[string]string) error
	// Capture writes pcapng to w until ctx is done, w fails, or as many frames
	// as asked for are written. Started is called once it has begun, before
	// anything is written.
	Capture(ctx context.Context, w io.Writer, o CaptureOptions, started func()) (CaptureSummary, error)
}
