// Command typecheck checks that the packages of this module and their tests compile for other systems:
//
//	typecheck windows/amd64 freebsd/amd64
//
// It checks types from source. go vet would first compile every dependency for each system, which takes minutes.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		found, err := check(system)
		if err != nil {
			found = append(found, err.Error())
		}
		for _, line := range found {
			fmt.Fprintf(os.Stderr, "%s: %s\n", system, line)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns the errors of the packages below the working directory, for a system.
func check(system string) (found []string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	goos, goarch, _ := strings.Cut(system, "/")
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		Tests: true,
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, here+string(os.PathSeparator)) {
				dropBodies(f)
			}
			return f, err
		},
	}, "./...")
	for _, p := range all { // errors of their dependencies are of missing bodies
		if strings.HasSuffix(p.PkgPath, ".test") { // the main function that go test generates
			continue
		}
		for _, e := range p.Errors {
			found = append(found, e.Error())
		}
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no packages in %s", here)
	}
	return found, err
}

// dropBodies leaves only the declarations of a dependency.
func dropBodies(f *ast.File) {
	for _, d := range f.Decls {
		if function, ok := d.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
}
