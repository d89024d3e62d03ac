package config

import (
	"fmt"
	"reflect"
)

// A Change is a key that two configurations differ in.
type Change struct {
	Key      string // "pace.burst", "clients[0].name"; the list's own where entries came or went
	From, To string // the values, as they would stand in a file but cut where they are long; no secrets
	Restart  bool   // only another process can go by it
}

// String says all of it in a line.
func (c Change) String() string {
	s := fmt.Sprintf("%s: changed from %s to %s", c.Key, c.From, c.To)
	if c.Restart {
		s += ": needs a restart"
	}
	return s
}

// Changes are the keys that two configurations differ in, in the table's order.
func Changes(from, to Config) []Change {
	return changes(reflect.ValueOf(&from).Elem(), reflect.ValueOf(&to).Elem(), "")
}

func changes(from, to reflect.Value, path string) (all []Change) {
	after := fields(to, path)
	for i, k := range fields(from, path) {
		other := after[i]
		switch {
		case k.section():
			all = append(all, changes(k.value, other.value, k.path)...)
		case !k.entries():
			if was, is := k.text(), other.text(); was != is {
				all = append(all, Change{k.path, k.told(was), k.told(is), k.takesRestart(was, is)})
			}
		case k.value.Len() != other.value.Len():
			all = append(all, Change{Key: k.path, From: entriesIn(k.value), To: entriesIn(other.value)})
		default:
			for i := range k.value.Len() {
				all = append(all, changes(k.value.Index(i), other.value.Index(i), entryPath(k.path, i))...)
			}
		}
	}
	return all
}

// told is a value's text for people.
func (k key) told(text string) string {
	if k.kind().secret && text != `""` {
		return "(hidden)"
	}
	return cut(text)
}

func entriesIn(list reflect.Value) string {
	if list.Len() == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", list.Len())
}

// What a field's restart tag may say: a change of any kind takes one, or that from
// nothing to something and back.
const (
	restartAlways = "yes"
	restartOnOff  = "on-off"
)

// takesRestart says whether the change of a value from one text to another does.
func (k key) takesRestart(was, is string) bool {
	switch k.tag.Get("restart") {
	case restartAlways:
		return true
	case restartOnOff:
		return (was == `""`) != (is == `""`)
	}
	return false
}

// doc is the key's comment.
func (k key) doc() string {
	doc := k.tag.Get("doc")
	switch k.tag.Get("restart") {
	case restartAlways:
		doc += "; restart to change"
	case restartOnOff:
		doc += "; restart to turn on or off"
	}
	return doc
}
