package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/scanner"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// operator is a way to break code.
type operator uint8

const (
	negate operator = iota // a condition says the opposite
	bound                  // an integer or a comparison is off by one
	drop                   // an assignment, a call or a field of a literal is left out
	swap                   // a constant or an operator is exchanged for its neighbour
	operators
)

func (o operator) String() string { return [...]string{"negate", "bound", "drop", "swap"}[o] }

// mutant is one change to one file: octets [start, end) become text.
type mutant struct {
	Pkg  string   `json:"package"` // folder in the module
	File string   `json:"file"`    // with its folder
	Line int      `json:"line"`
	Func string   `json:"func"` // or the name of the variable or constant
	Op   operator `json:"-"`

	// The lines it touches, blanks run together: with file and function its
	// name, which outlives changes elsewhere in the file.
	Before string `json:"before"`
	After  string `json:"after"`
	Nth    int    `json:"nth"` // of those with the same lines in its function, from 1

	start, end int
	text       string
}

// key names a mutant whatever its line.
func (m *mutant) key() string {
	nth := ""
	if m.Nth > 1 {
		nth = fmt.Sprintf(" #%d", m.Nth)
	}
	return m.File + " " + m.Func + nth + "\n- " + m.Before + "\n+ " + m.After
}

// source is a file to be broken.
type source struct {
	pkg, name string
	text      []byte
	file      *ast.File
	tokens    *token.File
	info      *types.Info
	own       *types.Package
}

// collector gathers the mutants of a source.
type collector struct {
	*source
	fn  string
	out []mutant
}

// sites lists every mutant of a file, in the order of its text. Texts for
// people are left alone: String and Error methods, arguments of fmt, errors and
// panic; so are array lengths and capacities, which change no behaviour.
func (s *source) sites() []mutant {
	if ast.IsGenerated(s.file) {
		return nil
	}
	c := &collector{source: s}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if c.fn = funcName(d); !forPeople.MatchString(d.Name.Name) && d.Body != nil {
				c.walk(d.Body)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					c.fn = v.Names[0].Name
					c.walk(v)
				}
			}
		}
	}
	slices.SortStableFunc(c.out, func(a, b mutant) int { return a.start - b.start })
	twins := map[string]int{}
	for i := range c.out {
		m := &c.out[i]
		twins[m.key()]++
		m.Nth = twins[m.key()]
	}
	return c.out
}

var forPeople = regexp.MustCompile(`^(String|Error|GoString)$`)

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	switch t := d.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return "(*" + types.ExprString(t.X) + ")." + d.Name.Name
	default:
		return types.ExprString(t) + "." + d.Name.Name
	}
}

func (c *collector) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return c.call(n)
		case *ast.ArrayType:
			return false
		case *ast.IfStmt:
			c.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				c.condition(n.Cond)
			}
			// Without its step a loop hangs, which proves nothing.
			for _, part := range []ast.Node{n.Init, n.Cond, n.Body} {
				if part != nil {
					c.walk(part)
				}
			}
			return false
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, s := range n.Body.List {
					for _, e := range s.(*ast.CaseClause).List {
						c.condition(e)
					}
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				c.replace(negate, n.Pos(), n.X.Pos(), "")
			}
		case *ast.BinaryExpr:
			c.binary(n)
		case *ast.BasicLit:
			c.literal(n)
		case *ast.SelectorExpr:
			if k, ok := c.info.Uses[n.Sel].(*types.Const); ok {
				c.constant(n, n.Sel, k)
				return false
			}
		case *ast.Ident:
			if k, ok := c.info.Uses[n].(*types.Const); ok {
				c.constant(n, n, k)
			}
		case *ast.AssignStmt:
			c.assignment(n)
		case *ast.IncDecStmt:
			c.replace(drop, n.Pos(), n.End(), "{}")
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && !talks(call) {
				c.replace(drop, n.Pos(), n.End(), "{}")
			}
		case *ast.CompositeLit:
			c.composite(n)
		}
		return true
	})
}

// talks reports whether a call makes a text for people.
func talks(n *ast.CallExpr) bool {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		p, ok := f.X.(*ast.Ident)
		return ok && (p.Name == "fmt" || p.Name == "errors")
	}
	return false
}

func (c *collector) call(n *ast.CallExpr) bool {
	if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "make" {
		if len(n.Args) > 1 {
			c.walk(n.Args[1])
		}
		return false
	}
	return !talks(n)
}

// condition negates what is not a comparison or a negation: those are turned by
// their operator.
func (c *collector) condition(e ast.Expr) {
	switch n := e.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			c.condition(n.X)
			c.condition(n.Y)
		}
	case *ast.ParenExpr:
		c.condition(n.X)
	case *ast.UnaryExpr:
	default:
		c.replace(negate, e.Pos(), e.End(), "!("+c.slice(e.Pos(), e.End())+")")
	}
}

var opposite = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
}

var beside = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

var partner = map[token.Token]token.Token{
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.REM: token.QUO, token.AND: token.OR, token.OR: token.AND, token.AND_NOT: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

func (c *collector) binary(n *ast.BinaryExpr) {
	for op, m := range map[operator]map[token.Token]token.Token{negate: opposite, bound: beside, swap: partner} {
		if to, ok := m[n.Op]; ok {
			c.replace(op, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
		}
	}
}

// literal moves an integer up and down by one.
func (c *collector) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	v, err := strconv.ParseUint(n.Value, 0, 64)
	if err != nil {
		return
	}
	form := "%d"
	if strings.HasPrefix(n.Value, "0x") {
		form = "%#x"
	}
	c.replace(bound, n.Pos(), n.End(), fmt.Sprintf(form, v+1))
	if v > 0 {
		c.replace(bound, n.Pos(), n.End(), fmt.Sprintf(form, v-1))
	}
}

// constant exchanges a constant of an enumeration, or a truth value, for the
// one next to it, and moves a number by one. E is the whole expression, id the
// constant's name in it.
func (c *collector) constant(e ast.Expr, id *ast.Ident, k *types.Const) {
	switch {
	case k.Parent() == types.Universe && (id.Name == "true" || id.Name == "false"):
		c.replace(swap, id.Pos(), id.End(), map[string]string{"true": "false", "false": "true"}[id.Name])
	case k.Pkg() == nil: // iota
	case isNamed(k.Type()):
		if to := c.neighbour(k); to != "" {
			c.replace(swap, id.Pos(), id.End(), to)
		}
	case k.Val().Kind() == constant.Int:
		c.replace(bound, e.Pos(), e.End(), "("+c.slice(e.Pos(), e.End())+"+1)")
	}
}

func isNamed(t types.Type) bool { _, ok := t.(*types.Named); return ok }

// neighbour returns the constant of k's type with the next value, the first
// after the last.
func (c *collector) neighbour(k *types.Const) string {
	var all []*types.Const
	scope := k.Pkg().Scope()
	for _, name := range scope.Names() {
		o, ok := scope.Lookup(name).(*types.Const)
		if !ok || !types.Identical(o.Type(), k.Type()) || o.Pkg() != c.own && !o.Exported() {
			continue
		}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b *types.Const) int {
		if constant.Compare(a.Val(), token.LSS, b.Val()) {
			return -1
		}
		if constant.Compare(a.Val(), token.GTR, b.Val()) {
			return 1
		}
		return 0
	})
	for _, o := range all {
		if constant.Compare(o.Val(), token.GTR, k.Val()) {
			return o.Name()
		}
	}
	if len(all) > 0 && constant.Compare(all[0].Val(), token.NEQ, k.Val()) {
		return all[0].Name()
	}
	return ""
}

// assignment drops each variable of an assignment; the right side is still
// evaluated.
func (c *collector) assignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		return
	}
	if len(n.Lhs) > 1 {
		for _, l := range n.Lhs {
			if id, ok := l.(*ast.Ident); !ok || id.Name != "_" {
				c.replace(drop, l.Pos(), l.End(), "_")
			}
		}
		return
	}
	if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == "_" {
		return
	}
	if r, ok := n.Rhs[0].(*ast.Ident); ok && r.Name == "nil" {
		c.replace(drop, n.Pos(), n.End(), "{}")
		return
	}
	c.replace(drop, n.Pos(), n.Rhs[0].Pos(), "_ = ")
}

// composite drops each field of a struct literal.
func (c *collector) composite(n *ast.CompositeLit) {
	t := c.info.TypeOf(n)
	if t == nil {
		return
	}
	if _, ok := t.Underlying().(*types.Struct); !ok {
		return
	}
	for i, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		from, to := kv.Pos(), kv.End()
		switch {
		case i < len(n.Elts)-1:
			to += token.Pos(strings.IndexByte(c.slice(to, n.Elts[i+1].Pos()), ',') + 1)
		case i > 0:
			from = n.Elts[i-1].End()
		case strings.HasPrefix(c.slice(to, n.End()), ","):
			to++
		}
		c.replace(drop, from, to, "")
	}
}

func (c *collector) slice(from, to token.Pos) string {
	return string(c.text[c.tokens.Offset(from):c.tokens.Offset(to)])
}

func (c *collector) replace(op operator, from, to token.Pos, text string) {
	m := mutant{
		Pkg: c.pkg, File: c.name, Line: c.tokens.Line(from), Func: c.fn, Op: op,
		start: c.tokens.Offset(from), end: c.tokens.Offset(to), text: text,
	}
	a, b := m.start, m.end
	for a > 0 && c.text[a-1] != '\n' {
		a--
	}
	for b < len(c.text) && c.text[b] != '\n' {
		b++
	}
	m.Before = oneLine(string(c.text[a:b]))
	m.After = oneLine(string(c.text[a:m.start]) + text + string(c.text[m.end:b]))
	c.out = append(c.out, m)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// apply returns the broken file.
func (m *mutant) apply(text []byte) []byte {
	return slices.Concat(text[:m.start], []byte(m.text), text[m.end:])
}

// codeLines counts the lines of a file that hold code.
func codeLines(text []byte) int {
	var s scanner.Scanner
	fset := token.NewFileSet()
	f := fset.AddFile("", -1, len(text))
	s.Init(f, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, _ := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		lines[f.Line(pos)] = true
	}
}
