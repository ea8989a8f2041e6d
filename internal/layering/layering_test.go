package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gorxe/gorxe"

// source is one parsed Go file.
type source struct {
	name string // relative to the module
	test bool
	file *ast.File
}

// root finds the module's root.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// load parses every Go file of the module, for whatever platform it is, by
// package folder. Modules inside the module are their own business.
func load(t *testing.T, fset *token.FileSet) map[string][]source {
	t.Helper()
	top := os.DirFS(root(t))
	pkgs := map[string][]source{}
	err := fs.WalkDir(top, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := path.Base(name)
			if name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			if _, err := fs.Stat(top, path.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(top, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		pkgs[dir] = append(pkgs[dir], source{name, strings.HasSuffix(name, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func TestLayering(t *testing.T) {
	fset := token.NewFileSet()
	for dir, files := range load(t, fset) {
		rule, ok := house[dir]
		if !ok {
			t.Errorf("package %s is not in the table: add it to internal/layering/table_test.go, in its layer", dir)
			continue
		}
		for _, s := range files {
			for _, imp := range s.file.Imports {
				name, _ := strconv.Unquote(imp.Path.Value)
				if why := checkImport(dir, name, rule, s.test); why != "" {
					t.Errorf("%s: %s", fset.Position(imp.Pos()), why)
				}
			}
			if rule.engine && !s.test {
				for _, b := range banned(s.file) {
					t.Errorf("%s: an engine package has %s", fset.Position(b.pos), b.what)
				}
			}
		}
	}
}

// checkImport returns what is wrong with an import, or "".
func checkImport(dir, name string, r rule, test bool) string {
	if slices.Contains(needsCgo, name) {
		return name + " needs cgo"
	}
	if rel, ok := strings.CutPrefix(name, module); ok {
		rel = strings.TrimPrefix(rel, "/")
		if rel == "" {
			rel = "."
		}
		if test || allowed(r.imports, rel) {
			return ""
		}
		return fmt.Sprintf("%s may not import %s: see the table in internal/layering", dir, rel)
	}
	if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	if test && under(testOnly, name) {
		return ""
	}
	for mod, who := range thirdParty {
		if under([]string{mod}, name) && allowed(who, dir) {
			return ""
		}
	}
	return fmt.Sprintf("%s may not import %s: see thirdParty in internal/layering", dir, name)
}

// allowed reports whether name is in the list; an entry that ends in a slash
// stands for itself and everything below.
func allowed(list []string, name string) bool {
	for _, e := range list {
		if e == "*" || e == name {
			return true
		}
		if stem, ok := strings.CutSuffix(e, "/"); ok && (name == stem || strings.HasPrefix(name, e)) {
			return true
		}
	}
	return false
}

// under reports whether an import path is one of the modules or inside one.
func under(modules []string, name string) bool {
	for _, m := range modules {
		if name == m || strings.HasPrefix(name, m+"/") {
			return true
		}
	}
	return false
}

// What an engine may not use, by import path: nil is the whole package, a
// list is what alone of it may be used, and "-" first what may not.
var engineBans = map[string][]string{
	"context":     nil,
	"log":         nil,
	"log/slog":    nil,
	"net":         nil, // net/netip is another package
	"net/http":    nil,
	"os":          nil,
	"os/exec":     nil,
	"os/signal":   nil,
	"runtime":     nil,
	"syscall":     nil,
	"math/rand":   nil, // a seeded source of math/rand/v2 is an argument
	"crypto/rand": nil,
	"time":        {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	"sync":        {"-", "Mutex", "RWMutex", "WaitGroup", "Cond"},
	"fmt":         {"-", "Print", "Printf", "Println"},
}

type finding struct {
	pos  token.Pos
	what string
}

// banned finds in an engine's file what rule 1 of the seams forbids:
// goroutines, channels, locks, clocks, sockets and logs.
func banned(f *ast.File) (out []finding) {
	local := map[string]string{} // name in the file -> import path
	for _, imp := range f.Imports {
		name, _ := strconv.Unquote(imp.Path.Value)
		list, ok := engineBans[name]
		if !ok {
			continue
		}
		if list == nil {
			out = append(out, finding{imp.Pos(), "package " + name})
			continue
		}
		as := path.Base(name)
		if imp.Name != nil {
			as = imp.Name.Name
		}
		if as == "." {
			out = append(out, finding{imp.Pos(), "a dot import of " + name})
		}
		local[as] = name
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, finding{n.Pos(), "a go statement"})
		case *ast.ChanType:
			out = append(out, finding{n.Pos(), "a channel"})
		case *ast.SelectStmt:
			out = append(out, finding{n.Pos(), "a select statement"})
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			list := engineBans[local[pkg.Name]]
			if len(list) == 0 {
				break
			}
			listed := slices.Contains(list, n.Sel.Name)
			if listed == (list[0] == "-") {
				out = append(out, finding{n.Pos(), local[pkg.Name] + "." + n.Sel.Name})
			}
		}
		return true
	})
	return out
}

// The table must not contradict itself: what a package may import is in the
// table, and the layers have no cycle.
func TestTable(t *testing.T) {
	state := map[string]int{} // 1 being visited, 2 done
	var visit func(dir string)
	visit = func(dir string) {
		state[dir] = 1
		for _, imp := range house[dir].imports {
			for other := range house {
				if imp == "*" || other == dir || !allowed([]string{imp}, other) {
					continue
				}
				if state[other] == 1 {
					t.Errorf("%s and %s may import each other", dir, other)
				} else if state[other] == 0 {
					visit(other)
				}
			}
			if _, ok := house[strings.TrimSuffix(imp, "/")]; !ok && imp != "*" {
				t.Errorf("%s may import %s, which is not in the table", dir, imp)
			}
		}
		state[dir] = 2
	}
	for dir, r := range house {
		if state[dir] == 0 {
			visit(dir)
		}
		for _, imp := range r.imports {
			if r.engine && !house[imp].engine && imp != "verbs" {
				t.Errorf("engine %s may import %s, which is none", dir, imp)
			}
		}
	}
}

// The checks see what they are for.
func TestChecks(t *testing.T) {
	for code, want := range map[string]string{
		`import "time"; var x = time.Now()`:                  "time.Now",
		`import clock "time"; func f() { clock.Sleep(1) }`:   "time.Sleep",
		`import "time"; const x = 3 * time.Microsecond`:      "",
		`import "time"; type t time.Timer`:                   "time.Timer",
		`import . "time"; var x = Now()`:                     "a dot import of time",
		`import "sync"; var mu sync.Mutex`:                   "sync.Mutex",
		`import "sync"; type t struct { sync.RWMutex }`:      "sync.RWMutex",
		`import "sync"; var f = sync.OnceValue[int](nil)`:    "",
		`import "sync/atomic"; var x atomic.Uint64`:          "",
		`import "net"; var x net.IP`:                         "package net",
		`import "net/netip"; var x netip.Addr`:               "",
		`import "log/slog"; var x slog.Level`:                "package log/slog",
		`import "context"; var x context.Context`:            "package context",
		`import "fmt"; func f() { fmt.Println() }`:           "fmt.Println",
		`import "fmt"; var x = fmt.Sprint()`:                 "",
		`func f() { go f() }`:                                "a go statement",
		`func f(c <-chan int)  {}`:                           "a channel",
		`func f() { select {} }`:                             "a select statement",
		`type time struct { Now int }; var x = (time{}).Now`: "",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(code, err)
		}
		var got []string
		for _, b := range banned(f) {
			got = append(got, b.what)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: found %q, want %q", code, got, want)
		}
	}
	for _, c := range []struct {
		dir, imp string
		test, ok bool
	}{
		{"bth", module + "/trace", false, true},
		{"bth", module + "/wire", false, false},
		{"bth", module + "/wire", true, true},
		{"verbs", module + "/bth", false, false},
		{"rc", module + "/uc", false, false},
		{"rc", module + "/nic", false, false},
		{"link/udp", module + "/link/mem", false, false},
		{"nic", module + "/link/udp", false, true},
		{"trace", module, false, false},
		{"rc", "math/bits", false, true},
		{"rc", "golang.org/x/sys/unix", false, false},
		{"internal/sys", "golang.org/x/sys/unix", false, true},
		{"nic", "github.com/spf13/cobra", false, false},
		{"cmd/rxe", "github.com/spf13/cobra", false, true},
		{"wire", "github.com/google/gopacket", false, false},
		{"wire", "github.com/google/gopacket", true, true},
		{"wire", "github.com/google/gopacket/pcap", true, false},
		{"internal/pcap", "github.com/google/gopacket/pcapgo", false, true},
		{"wire", "pgregory.net/rapid", false, false},
		{"wire", "example.org/surprise", true, false},
	} {
		if why := checkImport(c.dir, c.imp, house[c.dir], c.test); (why == "") != c.ok {
			t.Errorf("%s importing %s: %q, want allowed %v", c.dir, c.imp, why, c.ok)
		}
	}
}
