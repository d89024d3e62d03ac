package config

import (
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// unknown reports a key that is not in the table, with the one that was probably meant.
func (r *reader) unknown(name *yaml.Node, section string, known []key) {
	if name.Kind != yaml.ScalarNode {
		r.problem(name.Line, section, "a key is one word, not "+shapeOf(name))
		return
	}
	path := cut(printable(name.Value))
	if section != "" {
		path = section + "." + path
	}
	why := "unknown key"
	if meant := nearest(name.Value, known); meant != "" {
		why += " (did you mean " + meant + "?)"
	} else {
		why += " (known here: " + strings.Join(names(known), ", ") + ")"
	}
	r.problem(name.Line, path, why)
}

func names(keys []key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return all
}

// nearest is the path of the key that name is a slip of: of the same section,
// else one of that very name below it, or elsewhere.
func nearest(name string, known []key) string {
	slips := max(2, len(name)/3)
	if len(name) < 4 {
		slips = 1 // else any short key is near
	}
	best, least := "", slips+1
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

// distance is Levenshtein's, in octets; names whose lengths differ by most or more are not compared.
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
