package explain

import (
	"slices"
	"strings"

	"robotsproxy/policy"
	"robotsproxy/robots"
)

const (
	// around is how many lines are shown before, and after, the one that decided.
	around = 3
	// maxAgents is how many User-agent lines of a group are shown.
	maxAgents = 20
)

// A Line is a line of robots.txt.
type Line struct {
	Number  int    `json:"line"`
	Text    string `json:"text"`
	Decides bool   `json:"decides,omitempty"`
}

// An Excerpt is a part of the robots.txt that a decision is based on.
type Excerpt struct {
	// Lines are the line that decided, and those around it.
	Lines []Line

	// Agents are the User-agent lines of its group.
	Agents []Line
	group  string
}

// Excerpt finds the line that decided in text, which is the robots.txt; nil where no line decided.
func (e *Explanation) Excerpt(text string) *Excerpt {
	line := e.Line
	if e.Reason == policy.ReasonUsage {
		u, _ := forbids(e.Usage)
		line = u.Line
	}
	dialect, err := robots.DialectByName(e.Dialect)
	if err != nil || line <= 0 {
		return nil
	}
	near, agents := robots.Excerpt(text, dialect, line, around)
	return &Excerpt{Lines: linesOf(near, line), Agents: linesOf(agents, 0), group: e.Group}
}

func linesOf(lines []robots.Line, decides int) []Line {
	all := make([]Line, 0, len(lines))
	for _, l := range lines {
		all = append(all, Line{l.Number, l.Text, l.Number == decides})
	}
	return all
}

// Named returns at most 20 of the User-agent lines in the order of the file, preferring those
// that name the group. It also returns how many are left out.
func (e *Excerpt) Named() (shown []Line, more int) {
	if len(e.Agents) <= maxAgents {
		return e.Agents, 0
	}
	names := func(l Line) bool { return strings.Contains(strings.ToLower(l.Text), e.group) }
	for _, named := range []bool{true, false} {
		for _, l := range e.Agents {
			if names(l) == named && len(shown) < maxAgents {
				shown = append(shown, l)
			}
		}
	}
	slices.SortFunc(shown, func(a, b Line) int { return a.Number - b.Number })
	return shown, len(e.Agents) - len(shown)
}

// Shown returns the lines to display: the User-agent lines, then the lines around the one that
// decided.
func (e *Excerpt) Shown() (agents []Line, more int, lines []Line) {
	agents, more = e.Named()
	if len(e.Lines) > 0 {
		agents = slices.DeleteFunc(slices.Clone(agents), func(l Line) bool { return l.Number >= e.Lines[0].Number })
	}
	return agents, more, e.Lines
}
