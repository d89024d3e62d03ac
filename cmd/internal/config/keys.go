package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// key is one key of the table: a field of a section, and its value in a Config.
type key struct {
	// path names the key in messages: "pace.max_wait", "hosts entry 1: match".
	path string

	// name is the key in its section: "max_wait".
	name string

	// field is the names of the struct and the field: "Pace.MaxWait".
	field string
	tag   reflect.StructTag

	// value is settable if the Config is addressable.
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

// off is the value by which a section is switched off whose off tag names a key: it is short for 0 of that key.
const off = "off"

// switchOff switches the section off if n says so, and reports whether it does.
func (k key) switchOff(n *yaml.Node) bool {
	name, ok := k.tag.Lookup("off")
	if !ok || n.Kind != yaml.ScalarNode || n.Value != off {
		return false
	}
	for _, inside := range fields(k.value, k.path) {
		if inside.name == name {
			inside.value.SetZero()
		}
	}
	return true
}

// isSection reports whether t is a struct that no kind reads.
func isSection(t reflect.Type) bool {
	_, isKind := kinds[t.String()]
	return t.Kind() == reflect.Struct && !isKind
}

func (k key) list() bool { return k.value.Kind() == reflect.Slice }

// kind returns the kind of the key's values: that of the names in its oneof tag, else the one that its kind tag names, else
// that of its Go type.
func (k key) kind() kind {
	name := k.kindName()
	found, ok := kinds[name]
	if list := k.tag.Get("oneof"); list != "" {
		found, ok = oneOf(strings.Fields(list)), true
	}
	if !ok {
		panic("config: mistake in the table: no kind " + name + " for " + k.path)
	}
	if found.names != nil {
		found.optional = k.tag.Get("default") == ""
	}
	if found.example == "" {
		// The kind's own example may be out of the key's range.
		found.example = k.tag.Get("default")
	}
	return found
}

// kindName returns the kind tag, else the Go type of the key's values.
func (k key) kindName() string {
	t := k.value.Type()
	if k.list() {
		t = t.Elem()
	}
	return cmp.Or(k.tag.Get("kind"), t.String())
}

// items returns the value, or the items of a list.
func (k key) items() []reflect.Value {
	if !k.list() {
		return []reflect.Value{k.value}
	}
	all := make([]reflect.Value, k.value.Len())
	for i := range all {
		all[i] = k.value.Index(i)
	}
	return all
}

// invalid returns what is wrong with the value by itself, "" for nothing.
func (k key) invalid() string {
	for _, v := range k.items() {
		text := textOf(v.Interface())
		if _, why := k.kind().readText(text, quoted(text)); why != "" {
			return why
		}
	}
	return k.outOfRange()
}

// outOfRange checks the value against the check tag.
func (k key) outOfRange() string {
	if c, ok := k.check(); ok && !c.holds(k.value) {
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
		panic("config: mistake in the table: no check " + name + " for " + k.path)
	}
	return c, true
}

// setDefaults fills a section with the defaults of the table, which it reads as a file's text.
func setDefaults(section reflect.Value) { setTo("default", section) }

// setTo fills a section with the values of a tag. A key without the tag gets its default.
func setTo(tag string, section reflect.Value) {
	keys := leaves(section, "")
	// The values are one text, because every command begins with this, and setting up a parser for each value would take most
	// of the time.
	var list []byte
	for _, k := range keys {
		list = fmt.Appendf(list, "- %s\n", cmp.Or(k.tag.Get(tag), k.defaultText()))
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

// newEntry returns an entry of a list, with the values of a tag as in setTo.
func (k key) newEntry(tag string) reflect.Value {
	entry := reflect.New(k.value.Type().Elem()).Elem()
	setTo(tag, entry)
	return entry
}

// required reports whether an entry must have the key.
func (k key) required() bool { return k.tag.Get("required") == "yes" }

// plainText returns the value without quotes.
func (k key) plainText() string {
	if k.list() {
		return k.text()
	}
	return textOf(k.value.Interface())
}

// defaultText returns the default as a file has it.
func (k key) defaultText() string { return cmp.Or(k.tag.Get("default"), `""`) }

// set stores the value of n, or reports what is wrong with it.
func (k key) set(n *yaml.Node, report func(at *yaml.Node, why string)) {
	kind := k.kind()
	if !k.list() {
		v, why := kind.scalar(n)
		if why == "" {
			k.value.Set(reflect.ValueOf(v))
			why = k.outOfRange()
		}
		if why != "" {
			report(n, why)
		}
		return
	}
	if why := notShaped(yaml.SequenceNode, n, "a list (example: ["+kind.example+"])"); why != "" {
		report(n, why)
		return
	}
	list := reflect.MakeSlice(k.value.Type(), 0, len(n.Content))
	for _, item := range n.Content {
		v, why := kind.scalar(item)
		if why != "" {
			report(item, why)
			continue
		}
		list = reflect.Append(list, reflect.ValueOf(v))
	}
	k.value.Set(list)
	if why := k.outOfRange(); why != "" && list.Len() == len(n.Content) {
		report(n, why)
	}
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
		return nil, k.wanted() + ", got " + shapeOf(n)
	case k.text() && n.ShortTag() != "!!str":
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

// notShaped returns why n is not of the shape that what describes, "" if it is.
func notShaped(shape yaml.Kind, n *yaml.Node, what string) string {
	if why := aliased(n); why != "" || n.Kind == shape {
		return why
	}
	return "must be " + what + ", got " + shapeOf(n)
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
	var items []string
	for _, v := range k.items() {
		items = append(items, k.kind().yaml(v.Interface()))
	}
	if k.list() {
		return "[" + strings.Join(items, ", ") + "]"
	}
	return items[0]
}

func (k kind) yaml(v any) string {
	s := textOf(v)
	if k.bare || plain(s) {
		return s
	}
	// YAML's double quotes know all of Go's escapes.
	return strconv.Quote(s)
}

// noIndicators matches what contains no indicator of YAML's, in a list or outside of one.
var noIndicators = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._:/+-]*[A-Za-z0-9/]$`)

// plain reports whether s needs no quotes. The YAML reader itself decides whether s would be a number, a date or a boolean.
func plain(s string) bool {
	if !noIndicators.MatchString(s) {
		return false
	}
	var v any
	return yaml.Unmarshal([]byte(s), &v) == nil && v == any(s)
}

// The values of the restart tag: every change needs a restart, or only one from or to "".
const (
	restartAlways = "yes"
	restartOnOff  = "on-off"
)
