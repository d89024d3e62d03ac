package config

import (
	"fmt"
	"reflect"
)

// A Change is a key whose value differs between two configurations.
type Change struct {
	// Key is "pace.burst" or "clients entry 1: name", or the key of the list if the number of entries differs.
	Key string

	// From and To are the values as in a file. Long values are cut, secrets are hidden.
	From, To string

	// Restart says that the change takes effect only after a restart.
	Restart bool
}

// String describes the change in one line.
func (c Change) String() string {
	s := fmt.Sprintf("%s: changed from %s to %s", c.Key, c.From, c.To)
	if c.Restart {
		s += ": needs a restart"
	}
	return s
}

// Changes returns the keys whose values differ, in the order of the table.
func Changes(from, to Config) []Change {
	return changes(reflect.ValueOf(&from).Elem(), reflect.ValueOf(&to).Elem(), "")
}

// WithoutRestart returns to with the values of from for the keys whose change needs a restart, and these changes.
func WithoutRestart(from, to Config) (applied Config, left []Change) {
	before := make(map[string]key)
	for _, k := range leaves(reflect.ValueOf(&from).Elem(), "") {
		before[k.path] = k
	}
	// Lists are shared with to. No key of an entry needs a restart.
	applied = to
	for _, k := range leaves(reflect.ValueOf(&applied).Elem(), "") {
		was, known := before[k.path]
		if text := k.text(); known && k.needsRestart(was.text(), text) && was.text() != text {
			left = append(left, Change{k.path, k.display(was.text()), k.display(text), true})
			k.value.Set(was.value)
		}
	}
	return applied, left
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
				all = append(all, Change{k.path, k.display(was), k.display(is), k.needsRestart(was, is)})
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

// display returns the text of a value for people.
func (k key) display(text string) string {
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

// needsRestart reports whether a change of the value from was to is needs a restart.
func (k key) needsRestart(was, is string) bool {
	switch k.tag.Get("restart") {
	case restartAlways:
		return true
	case restartOnOff:
		return (was == `""`) != (is == `""`)
	}
	return false
}
