package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// key is one line of the table: a field of a section, and its place in a Config.
type key struct {
	path  string // "pace.max_wait"
	name  string // "max_wait"
	tag   reflect.StructTag
	value reflect.Value // settable where the Config was
}

// fields are the keys of one section, in the table's order.
func fields(section reflect.Value, path string) []key {
	keys := make([]key, 0, section.NumField())
	for f, v := range section.Fields() {
		name := f.Tag.Get("key")
		k := key{path: name, name: name, tag: f.Tag, value: v}
		if path != "" {
			k.path = path + "." + name
		}
		keys = append(keys, k)
	}
	return keys
}

// leaves are the keys of a section and of all sections in it that hold a value.
func leaves(section reflect.Value, path string) []key {
	var all []key
	for _, k := range fields(section, path) {
		switch {
		case k.section():
			all = append(all, leaves(k.value, k.path)...)
		case k.entries():
			for i := range k.value.Len() {
				all = append(all, leaves(k.value.Index(i), entryPath(k.path, i))...)
			}
		default:
			all = append(all, k)
		}
	}
	return all
}

func entryPath(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// section says whether the key holds keys rather than a value.
func (k key) section() bool { return isSection(k.value.Type()) }

// entries says whether the key holds a list of sections.
func (k key) entries() bool { return k.list() && isSection(k.value.Type().Elem()) }

// isSection says whether a type is a struct that no kind reads.
func isSection(t reflect.Type) bool {
	_, isKind := kinds[t.String()]
	return t.Kind() == reflect.Struct && !isKind
}

func (k key) list() bool { return k.value.Kind() == reflect.Slice }

// kind is how one value of the key is read: by the tag, else by its type.
func (k key) kind() kind {
	name := k.tag.Get("kind")
	if name == "" {
		t := k.value.Type()
		if k.list() {
			t = t.Elem()
		}
		name = t.String()
	}
	found, ok := kinds[name]
	if !ok {
		panic("config: no kind " + name + " for " + k.path) // a row of the table without a reader: our own fault
	}
	if found.example == "" {
		found.example = k.tag.Get("default") // another value may be out of the key's range
	}
	return found
}

// wrong is what the value itself breaks, "" where it is in order.
func (k key) wrong() string {
	values := []reflect.Value{k.value}
	if k.list() {
		values = nil
		for _, v := range k.value.Seq2() {
			values = append(values, v)
		}
	}
	for _, v := range values {
		text := k.kind().write(v.Interface())
		if _, why := k.kind().readText(text, quoted(text)); why != "" {
			return why
		}
	}
	return k.outOfRange()
}

// outOfRange is what the value breaks of oneof and check.
func (k key) outOfRange() string {
	if names, ok := k.tag.Lookup("oneof"); ok {
		unset := k.value.String() == "" && k.tag.Get("default") == ""
		if !unset && !slices.Contains(strings.Fields(names), k.value.String()) {
			return notOneOf(quoted(k.value.String()), names)
		}
	}
	name, ok := k.tag.Lookup("check")
	if !ok {
		return ""
	}
	check, ok := checks[name]
	if !ok {
		panic("config: no check " + name + " for " + k.path)
	}
	return check(k.value.Interface())
}

func notOneOf(shown, names string) string {
	return shown + " is not one of: " + strings.Join(strings.Fields(names), ", ")
}

// setDefaults fills a section with the table's defaults, read as if they stood in a file.
func setDefaults(section reflect.Value) { setTo("default", section) }

// setTo is setDefaults by a tag; a key without it takes its default.
func setTo(tag string, section reflect.Value) {
	for _, k := range leaves(section, "") {
		text, ok := k.tag.Lookup(tag)
		if !ok {
			text = k.tag.Get("default")
		}
		if text == "" {
			text = `""`
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			panic("config: " + tag + " of " + k.path + ": " + err.Error())
		}
		k.set(doc.Content[0], func(_ *yaml.Node, why string) {
			panic("config: " + tag + " of " + k.path + ": " + why)
		})
	}
}
