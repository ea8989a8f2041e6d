package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Report is what -json writes.
type Report struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Guests  []string  `json:"guests"`
	Seed    uint64    `json:"seed,omitempty"` // of the smoke form
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Results []Result  `json:"results"`
}

// header and row print the table, a line for each case as it ends.
func header(w io.Writer) {
	fmt.Fprintf(w, "%-36s %-4s %-5s %-7s %-11s %-9s %-6s %7s  %s\n", "CASE", "IP", "MTU", "ROLE", "LINK", "GUEST", "RESULT", "SECONDS", "NOTE")
}

func row(w io.Writer, r *Result) {
	c, verdict, note := &r.Case, "ok", r.Note
	if !r.OK {
		verdict, note = "FAILED", r.Error
		if r.Note != "" {
			note += " (" + r.Note + ")"
		}
	}
	fmt.Fprintf(w, "%-36s IPv%d %-5d %-7s %-11s %-9s %-6s %7.1f  %s\n", c.What(), c.Family, c.MTU, c.Role, c.over(), c.Suite, verdict, r.Seconds, note)
}

// add takes a result into the report.
func (p *Report) add(r Result) {
	if r.OK {
		p.Passed++
	} else {
		p.Failed++
	}
	p.Results = append(p.Results, r)
}

// summary prints the last line, and the failures again, so that they need not
// be searched for.
func (p *Report) summary(w io.Writer) {
	if p.Failed > 0 {
		fmt.Fprintln(w, "\nFailed:")
		for i := range p.Results {
			if r := &p.Results[i]; !r.OK {
				fmt.Fprintf(w, "  -run '^%s$'\n      %s\n", r.Name, r.Error)
			}
		}
	}
	fmt.Fprintln(w)
	for _, g := range p.Guests {
		fmt.Fprintln(w, g)
	}
	fmt.Fprintf(w, "%d passed, %d failed, in %.0f seconds\n", p.Passed, p.Failed, p.Seconds)
}

// write puts the report into a file.
func (p *Report) write(file string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
