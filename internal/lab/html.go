package lab

import "io"

// WriteHTML writes the report as a page.
func (p *Report) WriteHTML(w io.Writer) error { return nil }
