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

	"gopkg.in/yaml.v3"
)

// reader reads one file and collects its errors.
type reader struct {
	problems []problem

	// bad holds the keys that have a problem of their own.
	bad map[string]bool

	// lines holds the line of each key that the file gives.
	lines map[string]int
}

// problem is a mistake in the file. Its line is 0 if it is about the whole file.
type problem struct {
	line int
	text string
}

func (r *reader) problem(line int, key, text string) {
	if key != "" {
		r.bad[key] = true
		if list, _, inList := strings.Cut(key, entryMark); inList {
			r.bad[list] = true
		}
		text = strings.TrimSuffix(key, ":") + ": " + text
	}
	r.problems = append(r.problems, problem{line, text})
}

// maxProblems bounds the problems that are reported of one file.
const maxProblems = 20

// err returns all problems, one per line, in the order of the file.
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

// document returns the root of the one document in b; nil if b is empty or has a problem.
func (r *reader) document(b []byte) *yaml.Node {
	if len(b) > MaxBytes {
		r.problem(0, "", fmt.Sprintf("must be at most %d KiB", MaxBytes>>10))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		r.syntax(err, b)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		r.problem(second.Line, "", "must be one YAML document, found a second one (---)")
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

// syntaxHints name the usual causes of yaml's most frequent messages.
var syntaxHints = map[string]string{
	"did not find expected alphabetic or numeric character": "put a value that begins with * or & in quotes",
	"found character that cannot start any token": "indent lines with spaces, not tabs; " +
		"put a value that begins with @, ` or % in quotes",
}

// syntax reports an error of the YAML reader. An empty file is not an error.
func (r *reader) syntax(err error, file []byte) {
	if errors.Is(err, io.EOF) {
		return
	}
	line, text := 0, err.Error()
	if m := yamlError.FindStringSubmatch(text); m != nil {
		// An error without a line is about the whole file.
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	// This is the mistake in tunnel: [*.example.com]. The error names no line.
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		r.problem(aliasLine(file, m[1]), "", "put a value that begins with * in quotes: "+quoted("*"+m[1]))
		return
	}
	if hint, ok := syntaxHints[text]; ok {
		text += " (" + hint + ")"
	}
	r.problem(line, "", "not YAML: "+printable(text))
}

// aliasLine returns the line of the first alias of a name, *name, that is in no comment and in no quotes; 0 if there is none.
func aliasLine(file []byte, name string) int {
	alias := regexp.MustCompile(`(?:^|[\s\[{,:-])\*` + regexp.QuoteMeta(name) + `(?:$|[\s\]},:])`)
	n := 0
	for line := range bytes.Lines(file) {
		n++
		if at := comment.FindIndex(line); at != nil {
			line = line[:at[0]]
		}
		if alias.Match(line) {
			return n
		}
	}
	return 0
}

// comment matches the beginning of a comment.
var comment = regexp.MustCompile(`(?:^|\s)#`)

// section reads the mapping n into the struct section.
func (r *reader) section(n *yaml.Node, path string, section reflect.Value) {
	if isNull(n) {
		// A section without keys, as in "pace:", has its defaults.
		return
	}
	if why := notShaped(yaml.MappingNode, n, "keys with values"); why != "" {
		r.problem(n.Line, path, why)
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
			r.problem(name.Line, k.path, fmt.Sprintf("duplicate key, first used on line %d", first))
			continue
		}
		r.lines[k.path] = name.Line
		switch {
		case k.section() && k.switchOff(value):
		case k.section() && k.tag.Get("off") != "" && value.Kind != yaml.MappingNode && !isNull(value):
			r.problem(value.Line, k.path, notShaped(yaml.MappingNode, value, "keys with values, or off"))
		case k.section():
			r.section(value, k.path, k.value)
		case k.entries():
			r.entries(value, k)
		default:
			k.set(value, func(at *yaml.Node, why string) { r.problem(at.Line, k.path, why) })
		}
	}
}

// maxEntries bounds the length of a list of sections.
const maxEntries = 10_000

// entries reads a list of sections.
func (r *reader) entries(n *yaml.Node, k key) {
	if isNull(n) {
		return
	}
	if why := notShaped(yaml.SequenceNode, n, "a list of entries that begin with a dash"); why != "" {
		r.problem(n.Line, k.path, why)
		return
	}
	if len(n.Content) > maxEntries {
		r.problem(n.Line, k.path, fmt.Sprintf("must have at most %d entries, got %d", maxEntries, len(n.Content)))
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
		keys, why := k.value.Index(i).Interface().(entry).invalid()
		bad := slices.ContainsFunc(keys, func(key string) bool { return r.bad[join(path, key)] })
		if why != "" && !bad && !r.bad[path] {
			r.problem(item.Line, join(path, keys[0]), why)
		}
	}
}

// checkRules checks the rules. The error of a rule has the line of the first of its keys that the file gives.
func (r *reader) checkRules(c Config) {
	for _, broken := range c.brokenRules(r.bad) {
		at := slices.IndexFunc(broken.keys, func(k string) bool { return r.lines[k] > 0 })
		r.problem(r.lines[broken.keys[max(at, 0)]], broken.keys[0], broken.why)
	}
}

// MaxBytes bounds a file's size in bytes. A larger file is not read.
const MaxBytes = 1 << 20

// unknown reports a key that is not in the table, and suggests the one that was probably meant.
func (r *reader) unknown(name *yaml.Node, section string, known []key) {
	if name.Kind != yaml.ScalarNode {
		r.problem(name.Line, section, "a key must be one word, got "+shapeOf(name))
		return
	}
	meant := nearest(name.Value, known)
	hint := "did you mean " + meant + "?"
	if meant == "" {
		var names []string
		for _, k := range known {
			names = append(names, k.name)
		}
		hint = "allowed: " + strings.Join(names, ", ")
	}
	r.problem(name.Line, join(section, cut(printable(name.Value))), "unknown key ("+hint+")")
}

// nearest returns the path of the key that name is probably a mistyping of: one of the same section that is spelled like it, else
// one of that name in a section below, else in any section.
func nearest(name string, known []key) string {
	typos := max(2, len(name)/3)
	if len(name) < 4 {
		// With two typos, every short key would match.
		typos = 1
	}
	best, least := "", typos+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), k.name, least); d < least {
			best, least = k.path, d
		}
	}
	if best != "" {
		return best
	}
	var elsewhere []key
	for _, k := range known {
		if k.section() {
			elsewhere = append(elsewhere, leaves(k.value, k.path)...)
		}
	}
	for _, k := range append(elsewhere, leaves(reflect.ValueOf(&Config{}).Elem(), "")...) {
		if k.name == name {
			return k.path
		}
	}
	return ""
}

// distance returns the Levenshtein distance of a and b in bytes, or most if their lengths differ by most or more.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
