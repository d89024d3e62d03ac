package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// key is one key of the table: a field of a section, and its value in a Config.
type key struct {
	// "pace.max_wait".
	path string

	// "max_wait".
	name string

	// "Pace.MaxWait": the names of the struct and the field.
	field string
	tag   reflect.StructTag

	// Settable if the Config is addressable.
	value reflect.Value
}

// fields returns the keys of one section, in the order of the table.
func fields(section reflect.Value, path string) []key {
	keys := make([]key, 0, section.NumField())
	for f, v := range section.Fields() {
		name := f.Tag.Get("key")
		field := section.Type().Name() + "." + f.Name
		keys = append(keys, key{path: join(path, name), name: name, field: field, tag: f.Tag, value: v})
	}
	return keys
}

// leaves returns the keys that hold a value, of a section and of all sections in it.
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

// entryMark follows the name of a list in the path of an entry.
const entryMark = " entry "

// entryPath returns the path of an entry: "hosts entry 1:" for the first.
func entryPath(path string, i int) string { return fmt.Sprint(path, entryMark, i+1, ":") }

// join returns the path of a key in a section or an entry ("": in the file).
func join(section, name string) string {
	switch {
	case section == "":
		return name
	case strings.HasSuffix(section, ":"):
		return section + " " + name
	}
	return section + "." + name
}

// section reports whether the key holds keys rather than a value.
func (k key) section() bool { return isSection(k.value.Type()) }

// entries reports whether the key holds a list of sections.
func (k key) entries() bool { return k.list() && isSection(k.value.Type().Elem()) }

// isSection reports whether t is a struct that no kind reads.
func isSection(t reflect.Type) bool {
	_, isKind := kinds[t.String()]
	return t.Kind() == reflect.Struct && !isKind
}

func (k key) list() bool { return k.value.Kind() == reflect.Slice }

// kind returns the kind of the key's values: the one that the tag names, else that of the Go type.
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
		// A mistake in the table.
		panic("config: no kind " + name + " for " + k.path)
	}
	if found.example == "" {
		// The kind's own example may be out of the key's range.
		found.example = k.tag.Get("default")
	}
	return found
}

// invalid returns what is wrong with the value by itself, "" for nothing.
func (k key) invalid() string {
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

// outOfRange checks the value against the tags oneof and check.
func (k key) outOfRange() string {
	if names, ok := k.tag.Lookup("oneof"); ok {
		unset := k.value.String() == "" && k.tag.Get("default") == ""
		if !unset && !slices.Contains(strings.Fields(names), k.value.String()) {
			return notOneOf(quoted(k.value.String()), names)
		}
	}
	if c, ok := k.check(); ok && !c.holds(k.value.Interface()) {
		return "must be " + c.allowed + ", got " + k.plainText()
	}
	return ""
}

// check returns the check of the key's values, false if there is none.
func (k key) check() (check, bool) {
	name, ok := k.tag.Lookup("check")
	if !ok {
		return check{}, false
	}
	c, ok := checks[name]
	if !ok {
		// A mistake in the table.
		panic("config: no check " + name + " for " + k.path)
	}
	return c, true
}

func notOneOf(shown, names string) string {
	return "must be one of " + strings.Join(strings.Fields(names), ", ") + ", got " + shown
}

// setDefaults fills a section with the defaults of the table, which it reads as a file's text.
func setDefaults(section reflect.Value) { setTo("default", section) }

// setTo fills a section with the values of a tag. A key without the tag gets its default.
func setTo(tag string, section reflect.Value) {
	keys := leaves(section, "")
	// The values are one text, because most of the time would be taken by setting up a parser for
	// each: every command begins with this.
	var list []byte
	for _, k := range keys {
		text, ok := k.tag.Lookup(tag)
		if !ok {
			text = k.tag.Get("default")
		}
		if text == "" {
			text = `""`
		}
		list = fmt.Appendf(list, "- %s\n", text)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(list, &doc); err != nil {
		panic("config: " + tag + ": " + err.Error())
	}
	for i, k := range keys {
		k.set(doc.Content[0].Content[i], func(_ *yaml.Node, why string) {
			panic("config: " + tag + " of " + k.path + ": " + why)
		})
	}
}

// required reports whether an entry must have the key.
func (k key) required() bool { return k.tag.Get("required") == "yes" }

// plainText returns the value without quotes.
func (k key) plainText() string {
	if k.list() {
		return k.text()
	}
	return k.kind().write(k.value.Interface())
}

// defaultText returns the default as a file has it, "" for a section.
func (k key) defaultText() string {
	text, ok := k.tag.Lookup("default")
	if ok && text == "" {
		return `""`
	}
	return text
}

// set stores the value of n, or reports what is wrong with it.
func (k key) set(n *yaml.Node, report func(at *yaml.Node, why string)) bool {
	if !k.list() {
		names, ok := k.tag.Lookup("oneof")
		if ok && n.Kind == yaml.ScalarNode && slices.Contains(strings.Fields(names), n.Value) {
			// Without quotes, a version is a number for YAML.
			text := *n
			text.Tag = "!!str"
			n = &text
		}
		v, why := k.kind().scalar(n)
		if ok && n.Kind == yaml.ScalarNode && !isNull(n) && n.ShortTag() != "!!str" {
			// Quotes would not make it valid.
			why = notOneOf(cut(printable(n.Value)), names)
		}
		if why == "" {
			k.value.Set(reflect.ValueOf(v))
			why = k.outOfRange()
		}
		if why != "" {
			report(n, why)
		}
		return why == ""
	}
	if why := aliased(n); why != "" {
		report(n, why)
		return false
	}
	if n.Kind != yaml.SequenceNode {
		report(n, "must be a list (example: ["+k.kind().example+"]), got "+shapeOf(n))
		return false
	}
	list, ok := reflect.MakeSlice(k.value.Type(), 0, len(n.Content)), true
	for _, item := range n.Content {
		v, why := k.kind().scalar(item)
		if why != "" {
			report(item, why)
			ok = false
			continue
		}
		list = reflect.Append(list, reflect.ValueOf(v))
	}
	k.value.Set(list)
	if why := k.outOfRange(); ok && why != "" {
		report(n, why)
		ok = false
	}
	return ok
}

// scalar reads one value of the kind from n.
func (k kind) scalar(n *yaml.Node) (value any, why string) {
	if why := aliased(n); why != "" {
		return nil, why
	}
	switch {
	case isNull(n):
		return nil, "no value (example: " + k.example + ")"
	case n.Kind != yaml.ScalarNode:
		return nil, "must be " + k.what + " (example: " + k.example + "), got " + shapeOf(n)
	case k.text && n.ShortTag() != "!!str":
		shown := cut(printable(n.Value))
		return nil, cmp.Or(k.hinted(n.Value, shown), k.shown(shown)+" is not text: put the value in quotes")
	case k.bare && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		if _, ok := k.read(n.Value); ok {
			return nil, quoted(n.Value) + " in quotes is text: must be " + k.what + " without quotes"
		}
	}
	shown := quoted(n.Value)
	if n.ShortTag() != "!!str" {
		// A number without quotes is shown without them.
		shown = cut(printable(n.Value))
	}
	return k.readText(n.Value, shown)
}

// aliased refuses YAML's anchors and aliases: no key needs them, and nested aliases grow exponentially.
func aliased(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return "YAML anchors and aliases (&, *) are not allowed; put a value that begins with * in quotes"
	}
	return ""
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func shapeOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	default:
		return quoted(n.Value)
	}
}

// text returns the key's value as a file has it.
func (k key) text() string {
	kind := k.kind()
	if !k.list() {
		return kind.yaml(k.value.Interface())
	}
	items := make([]string, k.value.Len())
	for i := range items {
		items[i] = kind.yaml(k.value.Index(i).Interface())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (k kind) yaml(v any) string {
	s := k.write(v)
	if k.bare || plain(s) {
		return s
	}
	// YAML's double quotes know all of Go's escapes.
	return strconv.Quote(s)
}

// plainText matches what contains no indicator of YAML's, in a list or outside of one.
var plainText = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._:/+-]*[A-Za-z0-9/]$`)

// plain reports whether s needs no quotes. The YAML reader itself decides whether s would be a
// number, a date or a boolean.
func plain(s string) bool {
	if !plainText.MatchString(s) {
		return false
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) != 1 {
		return false
	}
	return n.Content[0].Kind == yaml.ScalarNode && n.Content[0].ShortTag() == "!!str" && n.Content[0].Value == s
}

// The values of the restart tag: every change needs a restart, or only one from or to "".
const (
	restartAlways = "yes"
	restartOnOff  = "on-off"
)
