package cli

import (
	"fmt"
	"strings"

	"robotsproxy/policy/explain"
)

// Details is the answer for one address in several lines.
type Details struct {
	Text    strings.Builder
	Colours bool
}

// The colours of a terminal (ECMA-48, SGR).
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Dim    = "2"
)

// Paint returns text in a colour, or unchanged without colours.
func (d *Details) Paint(colour, text string) string {
	if !d.Colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Row adds a label and its values, one below the other, and skips empty values. The values must be safe for a terminal.
func (d *Details) Row(label string, values ...string) {
	for i, value := range values {
		if value == "" {
			continue
		}
		label += ":"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&d.Text, "  %s %s\n", d.Paint(Dim, fmt.Sprintf("%-15s", label)), value)
	}
}

// Facts adds a row for each fact.
func (d *Details) Facts(facts []explain.Fact) {
	for _, f := range facts {
		d.Row(f.Name, f.Value)
	}
}
