package config

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"sync"
)

// table is the source of the table of keys.
//
//go:embed table.go
var table string

// comments returns the comments above the fields of the structs in table.go, under "Pace.MaxWait". A comment is the
// documentation of the key, in whole sentences. It is one paragraph: each line end becomes a space, so it can hold
// neither lists nor a second paragraph. Commands that print no documentation do not pay for parsing it.
var comments = sync.OnceValue(func() map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", table, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		panic("config: the compiler accepted this file: " + err.Error())
	}
	all := map[string]string{}
	for n := range ast.Preorder(file) {
		spec, _ := n.(*ast.TypeSpec)
		if spec == nil {
			continue
		}
		if section, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range section.Fields.List {
				all[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
	}
	return all
})

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
