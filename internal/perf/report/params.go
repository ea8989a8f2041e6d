package report

import "time"

const (
	maxSample = 10 * time.Minute // of the histogram; longer ones count as this
	digits    = 3                // of the histogram: percentiles are right to 0.1 %
	tail      = 2                // samples that perftest leaves out, the largest (print_report_lat)

	progressAfter = 2 * time.Second        // of a run, before which nobody wonders
	progressEvery = 200 * time.Millisecond // is the line rewritten
)
