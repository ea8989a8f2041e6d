// Package report prints what perftest prints, to the column, so that what
// reads perftest's output reads ours: the header of parameters, the addresses,
// the tables of bandwidth and latency, histograms, and the JSON file. It adds
// percentiles from an HDR histogram, after the table where no reader of tables
// looks, and under keys of their own in JSON.
//
// Units are perftest's: MB/sec is 2^20 octets a second, Gb/sec is 10^9 bits a
// second, MsgRate is 10^6 messages a second, times are microseconds. The layout
// is that of 6.24 where it differs from 6.06.
package report
