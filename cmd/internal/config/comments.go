package config

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"sync"
)

// These are the sources of the table of keys.
var (
	//go:embed table.go
	table string

	//go:embed entries.go
	entries string
)

// comments returns the comments above the fields of the table, under names such as "Pace.MaxWait". A comment is the documentation
// of the key, in whole sentences. It is one paragraph: each line end becomes a space, so it can hold neither lists nor a second
// paragraph. Commands that print no documentation do not pay for parsing it.
var comments = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, source := range []string{table, entries} {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic("config: the compiler accepted the table: " + err.Error())
		}
		for n := range ast.Preorder(file) {
			if spec, ok := n.(*ast.TypeSpec); ok {
				addComments(all, spec)
			}
		}
	}
	return all
})

func addComments(all map[string]string, spec *ast.TypeSpec) {
	section, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range section.Fields.List {
		all[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
	}
}

// doc returns what the key is for, what its zero value means, and whether a change needs a restart, in whole sentences.
func (k key) doc() string {
	doc := comments()[k.field]
	if k.required() {
		doc += " Required."
	}
	switch k.tag.Get("restart") {
	case restartAlways:
		doc += " A change needs a restart."
	case restartOnOff:
		doc += " Turning TLS on or off needs a restart."
	}
	return doc
}
