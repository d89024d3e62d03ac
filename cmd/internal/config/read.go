package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// reader takes one file in and collects what is wrong with it.
type reader struct {
	problems []problem
	bad      map[string]bool // keys with a problem of their own
	lines    map[string]int  // where the file gives a key
}

type problem struct {
	line int    // 0: the file as a whole
	text string // with its key
}

func (r *reader) problem(line int, key, text string) {
	if key != "" {
		r.bad[key] = true
		if list, _, inList := strings.Cut(key, "["); inList {
			r.bad[list] = true
		}
		text = key + ": " + text
	}
	r.problems = append(r.problems, problem{line, text})
}

// maxProblems are said of one file; whoever made more of them reads no further.
const maxProblems = 20

// err is all problems, a line each, in file order.
func (r *reader) err(name string) error {
	slices.SortStableFunc(r.problems, func(a, b problem) int { return a.line - b.line })
	var errs []error
	for i, p := range r.problems {
		if i == maxProblems {
			errs = append(errs, fmt.Errorf("%s: and %d more", printable(name), len(r.problems)-i))
			break
		}
		where := printable(name)
		if p.line > 0 {
			where += ":" + strconv.Itoa(p.line)
		}
		errs = append(errs, errors.New(where+": "+p.text))
	}
	return errors.Join(errs...)
}

// document is the root of the one document in b; nil where there is none, or one that cannot be read.
func (r *reader) document(b []byte) *yaml.Node {
	if len(b) > MaxBytes {
		r.problem(0, "", fmt.Sprintf("more than %d KiB: not a configuration", MaxBytes>>10))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		r.syntax(err, b)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		r.problem(second.Line, "", "a second document (---): a configuration is one")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err, b)
		return nil
	}
	return doc.Content[0]
}

var (
	yamlError     = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxHints say what yaml's commonest messages come from.
var syntaxHints = map[string]string{
	"did not find expected alphabetic or numeric character": "a value that begins with * or & wants quotes",
	"found character that cannot start any token":           "lines are set in with blanks, not tabs; a value that begins with @, ` or % wants quotes",
}

// syntax turns yaml's own message into one of ours. An empty file is no error.
func (r *reader) syntax(err error, file []byte) {
	if errors.Is(err, io.EOF) {
		return
	}
	line, text := 0, err.Error()
	if m := yamlError.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // "" where yaml names none: the file as a whole
		text = m[2]
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil { // tunnel: [*.example.com], and yaml names no line
		before, _, _ := bytes.Cut(file, []byte("*"+m[1]))
		r.problem(1+bytes.Count(before, []byte("\n")), "", "a value with * wants quotes: "+quoted("*"+m[1]))
		return
	}
	if hint, ok := syntaxHints[text]; ok {
		text += " (" + hint + ")"
	}
	r.problem(line, "", "not YAML: "+printable(text))
}

// section reads the keys of n into the struct section.
func (r *reader) section(n *yaml.Node, path string, section reflect.Value) {
	if isNull(n) {
		return // "pace:" with nothing below it: all defaults
	}
	if why := aliased(n); why != "" {
		r.problem(n.Line, path, why)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, path, "keys and their values belong here, not "+shapeOf(n))
		return
	}
	known := fields(section, path)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(known, func(k key) bool {
			return name.Kind == yaml.ScalarNode && k.name == name.Value
		})
		if at < 0 {
			r.unknown(name, path, known)
			continue
		}
		k := known[at]
		if first, twice := r.lines[k.path]; twice {
			r.problem(name.Line, k.path, fmt.Sprintf("given twice, first on line %d", first))
			continue
		}
		r.lines[k.path] = name.Line
		if k.section() {
			r.section(value, k.path, k.value)
			continue
		}
		if k.entries() {
			r.entries(value, k)
			continue
		}
		k.set(value, func(at *yaml.Node, why string) { r.problem(at.Line, k.path, why) })
	}
}

// maxEntries is how long a list of sections may be.
const maxEntries = 10_000

// entries reads a list of sections.
func (r *reader) entries(n *yaml.Node, k key) {
	if isNull(n) {
		return
	}
	if why := aliased(n); why != "" {
		r.problem(n.Line, k.path, why)
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.problem(n.Line, k.path, "a list of entries belongs here, each begun with a dash, not "+shapeOf(n))
		return
	}
	if len(n.Content) > maxEntries {
		r.problem(n.Line, k.path, fmt.Sprintf("%d entries: at most %d are taken", len(n.Content), maxEntries))
		return
	}
	if len(n.Content) == 0 {
		return
	}
	k.value.Set(reflect.MakeSlice(k.value.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		path := entryPath(k.path, i)
		r.lines[path] = item.Line
		setDefaults(k.value.Index(i))
		r.section(item, path, k.value.Index(i))
		if e, ok := k.value.Index(i).Interface().(entry); ok {
			keys, why := e.wrong()
			bad := slices.ContainsFunc(keys, func(key string) bool { return r.bad[path+"."+key] })
			if why != "" && !bad && !r.bad[path] {
				r.problem(item.Line, path+"."+keys[0], why)
			}
		}
	}
}

// An entry of a list may say what is wrong with it as a whole, and of which
// keys that is said, the one to blame first.
type entry interface {
	wrong() (keys []string, why string)
}

// set puts what n says into the key's place, or reports why not.
func (k key) set(n *yaml.Node, report func(at *yaml.Node, why string)) bool {
	if !k.list() {
		v, why := k.kind().scalar(n)
		if names, ok := k.tag.Lookup("oneof"); ok && n.Kind == yaml.ScalarNode && !isNull(n) && n.ShortTag() != "!!str" {
			why = notOneOf(cut(printable(n.Value)), names) // quotes would not mend it
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
		report(n, "a list belongs here, not "+shapeOf(n)+" (example: ["+k.kind().example+"])")
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

// scalar reads one value of the kind.
func (k kind) scalar(n *yaml.Node) (value any, why string) {
	if why := aliased(n); why != "" {
		return nil, why
	}
	switch {
	case isNull(n):
		return nil, "no value (example: " + k.example + ")"
	case n.Kind != yaml.ScalarNode:
		return nil, shapeOf(n) + " is not " + k.what + " (example: " + k.example + ")"
	case k.text && n.ShortTag() != "!!str":
		return nil, k.shown(cut(printable(n.Value))) + " is not text: put it in quotes"
	case k.bare && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		if _, ok := k.read(n.Value); ok {
			return nil, quoted(n.Value) + " in quotes is text, not " + k.what
		}
	}
	shown := quoted(n.Value)
	if n.ShortTag() != "!!str" {
		shown = cut(printable(n.Value)) // a number without quotes is shown without them
	}
	return k.readText(n.Value, shown)
}

// aliased refuses YAML's anchors: nothing here needs them, and they can be made to multiply.
func aliased(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return "YAML's anchors and aliases (&, *) are not taken here; a value with * wants quotes"
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

// together asks the rules, and blames the first of a rule's keys that the file gives.
func (r *reader) together(c Config) {
	for _, rule := range rules {
		if slices.ContainsFunc(rule.keys, func(k string) bool { return r.bad[k] }) {
			continue
		}
		if why := rule.broken(c); why != "" {
			at := slices.IndexFunc(rule.keys, func(k string) bool { return r.lines[k] > 0 })
			r.problem(r.lines[rule.keys[max(at, 0)]], rule.keys[0], why)
		}
	}
}

const maxShown = 60 // runes of a file's own text in a message

// quoted is text of the file in quotes, on one line, cut where it is long.
func quoted(s string) string { return strconv.Quote(cut(s)) }

// printable is the same without the quotes.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func cut(s string) string {
	if runes := []rune(s); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return s
}
