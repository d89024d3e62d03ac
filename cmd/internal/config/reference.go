package config

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"strings"
)

// referenceHead is the part of the reference that is not in the table of keys.
//
//go:embed reference.md
var referenceHead string

// Reference returns a page in Markdown that describes every key.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString(referenceHead)
	c := Default()
	all := fields(reflect.ValueOf(&c).Elem(), "")
	b.WriteString("\n## General\n")
	writeTable(&b, all)
	for _, k := range all {
		switch {
		case k.section():
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", k.name, k.doc())
			writeTables(&b, fields(k.value, ""), k.name)
		case k.entries():
			entry := k.newEntry("default")
			fmt.Fprintf(&b, "\n## %s\n\n%s The keys of each entry are:\n", k.name, k.doc())
			writeTables(&b, fields(entry, ""), "entry of "+k.name)
		}
	}
	return b.Bytes()
}

// writeTables writes a table for the keys of a section, and one for each section in it.
func writeTables(b *bytes.Buffer, keys []key, of string) {
	writeTable(b, keys)
	for _, k := range keys {
		if k.section() {
			fmt.Fprintf(b, "\n### %s, %s\n\n%s\n", k.path, of, k.doc())
			writeTables(b, fields(k.value, k.path), of)
		}
	}
}

// writeTable writes a row for each key that has a value.
func writeTable(b *bytes.Buffer, keys []key) {
	b.WriteString("\n| key | value | default | what it does |\n|---|---|---|---|\n")
	for _, k := range keys {
		if k.section() || k.entries() {
			continue
		}
		byDefault := code(k.defaultText())
		if k.required() {
			byDefault = "none"
		}
		cells := []string{code(k.name), k.values(), byDefault, k.doc()}
		for i, cell := range cells {
			cells[i] = strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(cell)
			if strings.HasPrefix(cell, "`") {
				cells[i] = strings.ReplaceAll(cell, "|", `\|`)
			}
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
}

func code(s string) string { return "`" + s + "`" }

// values returns the type, the unit and the allowed values of a key.
func (k key) values() string {
	kind := k.kind()
	if kind.names != nil {
		text := "`" + strings.Join(kind.names, "`, `") + "`"
		if kind.optional {
			text = "`\"\"`, " + text
		}
		return text
	}
	text := strings.TrimPrefix(strings.TrimPrefix(kind.what, "a "), "an ")
	if k.list() {
		text = "list, each item " + kind.what
	}
	if unit := k.tag.Get("unit"); unit != "" {
		text = strings.Replace(text, "number", "number of "+unit, 1)
	}
	if c, ok := k.check(); ok {
		text += ", " + c.allowed
	}
	return text
}
