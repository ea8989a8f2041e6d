package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/gorxe/gorxe"

// load parses and type-checks the code of a package, a folder of the module.
// Types of what it imports come from the compiler's cache.
func load(root, pkg string) ([]*source, error) {
	list := func(args ...string) (string, error) {
		c := exec.Command("go", append([]string{"list"}, args...)...)
		c.Dir = root
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("go list %s: %w: %s", pkg, err, stderr.String())
		}
		return string(out), nil
	}
	files, err := list("-f", `{{join .GoFiles "\n"}}`, "./"+pkg)
	if err != nil {
		return nil, err
	}
	deps, err := list("-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+pkg)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for line := range strings.Lines(deps) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}

	fset := token.NewFileSet()
	var all []*source
	var trees []*ast.File
	for _, name := range strings.Fields(files) {
		s := &source{pkg: pkg, name: pkg + "/" + name}
		if s.text, err = os.ReadFile(filepath.Join(root, pkg, name)); err != nil {
			return nil, err
		}
		if s.file, err = parser.ParseFile(fset, s.name, s.text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		s.tokens = fset.File(s.file.FileStart)
		all, trees = append(all, s), append(trees, s.file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	own, err := conf.Check(module+"/"+pkg, fset, trees, info)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		s.info, s.own = info, own
	}
	return all, nil
}
