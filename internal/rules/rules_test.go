package rules

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/script"
)

var update = flag.Bool("update", false, "write docs/rules.md")

const (
	top      = "../.."
	scripts  = "script/testdata"
	document = "docs/rules.md"
)

// proofs are the scripts that name a rule or a report, by that.
type proofs map[string][]string

func (p proofs) add(id, script string) { p[id] = append(p[id], script) }

// readScripts returns the scripts by rule and by report, and the reports of each
// rule's scripts.
func readScripts(t *testing.T) (byRule, byReport, reports proofs) {
	t.Helper()
	byRule, byReport, reports = proofs{}, proofs{}, proofs{}
	files, err := filepath.Glob(filepath.Join(top, scripts, "*.pkt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := script.Parse(f, string(text))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(f), ".pkt")
		for _, id := range s.Rules {
			byRule.add(id, name)
			for _, r := range s.Reports {
				if !slices.Contains(reports[id], r) {
					reports.add(id, r)
				}
			}
		}
		for _, r := range s.Reports {
			byReport.add(r, name)
		}
	}
	return byRule, byReport, reports
}

// functions caches the names of functions and methods by file.
var functions = map[string]map[string]bool{}

// exists fails the test unless a reference names a function that there is.
func exists(t *testing.T, of, ref string) {
	t.Helper()
	file, name, ok := strings.Cut(ref, " ")
	if !ok {
		t.Errorf("%s: %q is not a file and a function", of, ref)
		return
	}
	if functions[file] == nil {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", of, err)
			return
		}
		functions[file] = map[string]bool{}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				functions[file][fn.Name.Name] = true
			}
		}
	}
	if !functions[file][name] {
		t.Errorf("%s: %s has no function %s", of, file, name)
	}
}

// Every rule has code and a proof, or says what is missing; what it names is
// there; and scripts name rules that there are.
func TestRules(t *testing.T) {
	byRule, _, _ := readScripts(t)
	seen := map[string]bool{}
	for _, r := range All {
		if seen[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		seen[r.ID] = true
		if !slices.Contains(Groups, r.Group) {
			t.Errorf("%s: no group %s", r.ID, r.Group)
		}
		if !strings.HasSuffix(r.Text, ".") {
			t.Errorf("%s: %q is no sentence", r.ID, r.Text)
		}
		if r.Gap == "" && len(r.Code) == 0 {
			t.Errorf("%s has neither code nor a gap", r.ID)
		}
		if len(r.Code) > 0 && len(byRule[r.ID])+len(r.Tests) == 0 {
			t.Errorf("%s has no script and no test", r.ID)
		}
		for _, ref := range r.Code {
			exists(t, r.ID, ref)
		}
		for _, ref := range r.Tests {
			exists(t, r.ID, ref)
			if !strings.Contains(ref, "_test.go Test") {
				t.Errorf("%s: %s is no test", r.ID, ref)
			}
		}
	}
	for id, s := range byRule {
		if !seen[id] {
			t.Errorf("scripts %v name the rule %s, which is not in the list", s, id)
		}
	}
}

// wanted are the public reports that touch connections: each has a script, a
// test or a gap.
const wanted = `B01 B02 B03 B04 B05 B07 B08 B09 B10 B11 B12 B14 B20 B21 B22 B23 B25 B26 B28 B29 B32 B33 B34 B35 B37 B38 B40 B41 B42 B43 B44 B46
	B47 B48 B50 B52 B54 B55 B57 B58 B59 B60 B61 B70 B72 B73 B75 B77 B78 B79 B82 B91 B92 B98`

func TestReports(t *testing.T) {
	_, byReport, _ := readScripts(t)
	listed := map[string]bool{}
	for _, r := range Reports {
		listed[r.ID] = true
		if len(r.Tests) == 0 && r.Gap == "" {
			t.Errorf("%s has neither a test nor a gap", r.ID)
		}
		for _, ref := range r.Tests {
			exists(t, r.ID, ref)
		}
		if len(byReport[r.ID]) > 0 {
			t.Errorf("%s has scripts, so it need not be listed", r.ID)
		}
	}
	for _, id := range strings.Fields(wanted) {
		if !listed[id] && len(byReport[id]) == 0 {
			t.Errorf("report %s has no script, and is not listed", id)
		}
	}
}

// The document says what the list says.
func TestDocument(t *testing.T) {
	want := write(readScripts(t))
	file := filepath.Join(top, document)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what the rules and scripts say: make rules", document)
	}
}

// write returns the document.
func write(byRule, byReport, reports proofs) string {
	var b strings.Builder
	p := func(format string, v ...any) { fmt.Fprintf(&b, format, v...) }
	var gaps, both, tests int
	for _, r := range All {
		switch {
		case r.Gap != "":
			gaps++
		case len(byRule[r.ID]) > 0:
			both++
		default:
			tests++
		}
	}
	all := map[string]bool{}
	for _, s := range byRule {
		for _, n := range s {
			all[n] = true
		}
	}
	p(`# Rules

<!-- Written by make rules from internal/rules and %[1]s. Do not edit. -->

What gorxe keeps of the protocol, where, and what proves it. A script is a text in [%[1]s](../%[1]s) that says which packets one queue
pair receives and must send (package script; `+"`rxe script FILE`"+`). All run against the engine alone and against a whole device, but for those that
are about one of the two, and from several first PSNs, so that the PSN wraps in them (B33). Clauses are those of the IBA
Specification, Volume 1, as far as they are known here; where none is given, peers behave so.

%[2]d rules: %[3]d with scripts, %[4]d with tests of another kind alone, %[5]d with something missing. %[6]d scripts.

## Gaps

`, scripts, len(All), both, tests, gaps, len(all))
	for _, r := range All {
		if r.Gap != "" {
			p("- `%s`: %s\n", r.ID, r.Gap)
		}
	}
	first := "\n"
	for _, g := range Groups {
		p("%s## %s\n\n", first, g)
		first = ""
		for _, r := range All {
			if r.Group != g {
				continue
			}
			p("### %s\n\n%s", r.ID, r.Text)
			if r.Clause != "" {
				p(" (%s)", r.Clause)
			}
			p("\n\n")
			if len(r.Code) > 0 {
				p("- code: %s\n", links(r.Code))
			}
			if s := byRule[r.ID]; len(s) > 0 {
				p("- scripts: %s\n", scriptLinks(s))
			}
			if len(r.Tests) > 0 {
				p("- tests: %s\n", links(r.Tests))
			}
			if s := reports[r.ID]; len(s) > 0 {
				slices.Sort(s)
				p("- reports: %s\n", strings.Join(s, ", "))
			}
			if r.Gap != "" {
				p("- missing: %s\n", r.Gap)
			}
			p("\n")
		}
	}
	p("## Reports\n\nPublic bug reports of other implementations, by their number in the project's list, and what reproduces them here.\n\n")
	lines := map[string]string{}
	for id, s := range byReport {
		lines[id] = "scripts " + scriptLinks(s)
	}
	for _, r := range Reports {
		lines[r.ID] = r.Text + ": " + r.Gap
		if len(r.Tests) > 0 {
			lines[r.ID] = r.Text + ": tests " + links(r.Tests)
		}
	}
	var ids []string
	for id := range lines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		p("- %s: %s\n", id, lines[id])
	}
	return b.String()
}

// links are functions as links to their files.
func links(refs []string) string {
	var out []string
	for _, r := range refs {
		file, name, _ := strings.Cut(r, " ")
		out = append(out, fmt.Sprintf("[%s](../%s) `%s`", file, file, name))
	}
	return strings.Join(out, ", ")
}

func scriptLinks(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("[%s](../%s/%s.pkt)", n, scripts, n))
	}
	return strings.Join(out, ", ")
}
