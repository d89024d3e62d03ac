package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"robotsproxy/robots/testkit"
)

const (
	// A tab counts as 4 columns.
	maxColumns = 140

	maxFunctionLines = 60

	// One trailing comment is allowed for so many lines of code.
	codeLinesPerTrailing = 100
)

// TestStyle: the source of the program can be read without scrolling sideways, and function by function.
func TestStyle(t *testing.T) {
	t.Parallel()
	code, trailing := 0, []string(nil)
	eachSource(t, func(path string, text []byte) {
		s, err := readSource(path, text)
		testkit.Must(t, err)
		for _, fault := range s.faults() {
			t.Error(fault)
		}
		code += s.codeLines()
		trailing = append(trailing, s.trailing()...)
	})
	if len(trailing)*codeLinesPerTrailing > code {
		t.Errorf("%d of %d lines of code have a comment after the code; at most one in %d may, in a column of constants:\n%s",
			len(trailing), code, codeLinesPerTrailing, strings.Join(trailing, "\n"))
	}
	if code < 1000 {
		t.Errorf("only %d lines of code were found", code)
	}
}

// eachSource calls visit with each file of the program's source but tests, and with its path in the module.
func eachSource(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	const root = "../.."
	testkit.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(name, text)
		return nil
	}))
}

// source is a file of Go.
type source struct {
	lines []string
	file  *ast.File
	set   *token.FileSet
}

func readSource(path string, text []byte) (source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{strings.Split(string(text), "\n"), file, set}, err
}

func (s source) codeLines() int {
	n := 0
	for _, line := range s.lines {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "//") {
			n++
		}
	}
	return n
}

// trailing returns the places of the comments that follow code on their line.
func (s source) trailing() (places []string) {
	for _, group := range s.file.Comments {
		at := s.set.Position(group.Pos())
		if strings.TrimSpace(s.lines[at.Line-1][:at.Column-1]) != "" {
			places = append(places, at.String())
		}
	}
	return places
}

// faults returns what is wrong with lines, functions and receivers, each with its place.
func (s source) faults() (all []string) {
	inRaw := s.rawLines()
	for i, line := range s.lines {
		columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if columns > maxColumns && !inRaw[i+1] {
			all = append(all, fmt.Sprintf("%s:%d: %d columns, at most %d", s.set.File(s.file.Pos()).Name(), i+1, columns, maxColumns))
		}
	}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		at := s.set.Position(fn.Pos())
		if n := s.set.Position(fn.End()).Line - at.Line + 1; n > maxFunctionLines {
			all = append(all, fmt.Sprintf("%s: %s has %d lines, at most %d", at, fn.Name.Name, n, maxFunctionLines))
		}
		if name, of := receiver(fn); name != "" && !beginsWord(name, of) {
			all = append(all, fmt.Sprintf("%s: the receiver %s does not begin a word of %s", at, name, of))
		}
	}
	return all
}

// rawLines returns the lines of raw strings that have several.
func (s source) rawLines() map[int]bool {
	lines := map[int]bool{}
	for n := range ast.Preorder(s.file) {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || !strings.Contains(literal.Value, "\n") {
			continue
		}
		for i := range strings.Count(literal.Value, "\n") + 1 {
			lines[s.set.Position(literal.Pos()).Line+i] = true
		}
	}
	return lines
}

// receiver returns the names of a method's receiver and of its type, "" for a function and for a receiver without a name.
func receiver(fn *ast.FuncDecl) (name, of string) {
	if fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
		return "", ""
	}
	for n := range ast.Preorder(fn.Recv.List[0].Type) {
		if id, ok := n.(*ast.Ident); ok {
			return fn.Recv.List[0].Names[0].Name, id.Name
		}
	}
	return "", ""
}

// beginsWord reports whether the first letter of name begins a word of the name of a type: a, r or R of auditRecord.
func beginsWord(name, of string) bool {
	for i, r := range of {
		if (i == 0 || unicode.IsUpper(r)) && strings.EqualFold(of[i:i+1], name[:1]) {
			return true
		}
	}
	return false
}

// TestStyleFaults: each fault of the style is found.
func TestStyleFaults(t *testing.T) {
	t.Parallel()
	long := "var x = \"" + strings.Repeat("x", maxColumns) + "\"\n"
	body := func(lines int) string { return "func f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n" }
	for text, want := range map[string]string{
		long:                              "style.go:3: 150 columns, at most 140",
		"var x = `\n" + long + "`\n":      "",
		body(maxFunctionLines):            "",
		body(maxFunctionLines + 1):        "style.go:3:1: f has 61 lines, at most 60",
		"type a struct{}\nfunc (b a) f()": "style.go:4:1: the receiver b does not begin a word of a",
		"type aB[T any] int\nfunc (b *aB[T]) f()\nfunc (a aB[T]) g()\nfunc (aB[T]) h()": "",
	} {
		s, err := readSource("style.go", []byte("package p\n\n"+text))
		testkit.Must(t, err)
		if got := strings.Join(s.faults(), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	s, err := readSource("style.go", []byte("package p\n// x is a comment.\nvar x = 1 // a comment\n\t// another\n"))
	testkit.Must(t, err)
	if got := strings.Join(s.trailing(), " "); got != "style.go:3:11" || s.codeLines() != 2 {
		t.Errorf("trailing comments at %q, %d lines of code", got, s.codeLines())
	}
}
