package explain

import "robotsproxy/policy/explain/humanize"

// A Fact is one line of an explanation. Its Value is printable and not longer than people read.
type Fact struct {
	Name, Value string

	// Quoted says that Value is from a request, a robots.txt or the configuration.
	Quoted bool
}

// facts collects those that have a value.
type facts []Fact

func (f *facts) add(name, value string) { f.addIf(value != "", name, value) }

// addIf adds a fact if it is known.
func (f *facts) addIf(known bool, name, value string) {
	if known {
		*f = append(*f, Fact{Name: name, Value: value})
	}
}

func (f *facts) quote(name, value string) {
	if value != "" {
		*f = append(*f, Fact{name, humanize.Brief(value), true})
	}
}
