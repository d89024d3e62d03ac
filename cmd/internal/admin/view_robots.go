package admin

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
)

const (
	linesPerPage = 3000 // of a robots.txt
	maxLineBytes = 2000 // bytes of a line that are shown
	maxGroups    = 60   // groups that are listed
)

// A fileListing is a robots.txt, or a part of it, as a page shows it.
type fileListing struct {
	Lines  []textLine
	Groups []groupView
	Range  string
	Pages  []pageLink

	// prefix begins the anchors of its lines.
	prefix string

	// from is the first line that is shown.
	from int

	// last is the last line of the file.
	last int
}

// A textLine is one line of a file.
type textLine struct {
	// ID is the anchor; "": the line has none.
	ID     string
	Href   string
	Number int
	Class  string
	Text   string

	// Effect is nil if the line has decided nothing.
	Effect *ruleEffect
}

// A ruleEffect says what a rule has decided.
type ruleEffect struct{ Icon, Text string }

// A groupView is a group of a file: its user agents and its first line.
type groupView struct {
	Name string
	Href string
	Line int
}

// ruleCounts counts the decisions of a rule.
type ruleCounts struct {
	rule   string
	counts live.Counts
}

// countByLine returns the decisions of the rules of one file, by line number.
func countByLine(causes []live.Cause, robotsURL string) map[int]*ruleCounts {
	all := make(map[int]*ruleCounts)
	for _, c := range causes {
		if c.Line == 0 || c.Robots != live.Clip(robotsURL) {
			continue
		}
		f := all[c.Line]
		if f == nil {
			f = &ruleCounts{rule: c.Rule}
			all[c.Line] = f
		}
		if f.rule != c.Rule {
			// The line had another rule in another version of the file.
			continue
		}
		f.counts[c.Class] += c.Count
	}
	return all
}

// newFileListing lists a file as a dialect reads it, with the decisions of its rules.
func newFileListing(text string, d robots.Dialect, prefix string, from int, counts map[int]*ruleCounts) fileListing {
	l := fileListing{prefix: prefix, from: max(1, from)}
	var names []string
	// group is the current group, and begins its first line.
	begins, group := 0, 0
	for line := range robots.Outline(text, d) {
		l.last = line.Number
		if line.Group != group {
			l.addGroup(begins, names)
			group, begins, names = line.Group, line.Number, nil
		}
		if line.Kind == robots.KindAgent {
			names = append(names, clipPrintable(line.Value, 60))
		}
		if line.Number < l.from || line.Number >= l.from+linesPerPage {
			continue
		}
		id := prefix + strconv.Itoa(line.Number)
		shown := textLine{
			ID: id, Href: "#" + id, Number: line.Number, Class: cmp.Or(lineClasses[line.Kind], "other"),
			Text: clipPrintable(line.Text, maxLineBytes),
		}
		if line.Number == begins && group > 0 {
			shown.Class += " begins"
		}
		if f := counts[line.Number]; f != nil && f.rule == live.Clip(line.Value) {
			shown.Class, shown.Effect = f.annotate(shown.Class)
		}
		l.Lines = append(l.Lines, shown)
	}
	l.addGroup(begins, names)
	l.paginate()
	return l
}

func (l *fileListing) addGroup(line int, names []string) {
	if line == 0 || len(names) == 0 || len(l.Groups) == maxGroups {
		return
	}
	const maxNames = 3
	name := strings.Join(names[:min(maxNames, len(names))], ", ")
	if more := len(names) - maxNames; more > 0 {
		name = fmt.Sprintf("%s and %d more", name, more)
	}
	l.Groups = append(l.Groups, groupView{name, l.lineHref(line), line})
}

// lineHref returns the link to a line, which may be on another page of the file.
func (l *fileListing) lineHref(line int) string {
	to := "#" + l.prefix + strconv.Itoa(line)
	if first := (line-1)/linesPerPage*linesPerPage + 1; line < l.from || line >= l.from+linesPerPage {
		return "?from=" + strconv.Itoa(first) + to
	}
	return to
}

// paginate sets the range of lines that the page shows, and the links to the pages before and
// after it.
func (l *fileListing) paginate() {
	if l.last <= linesPerPage && l.from == 1 {
		return
	}
	end := min(l.from+linesPerPage-1, l.last)
	l.Range = fmt.Sprintf("Lines %s to %s of %s", humanize.Number(l.from), humanize.Number(end), humanize.Number(l.last))
	if l.from > 1 {
		l.Pages = append(l.Pages, pageLink{"Lines before", "?from=" + strconv.Itoa(max(1, l.from-linesPerPage)), "prev"})
	}
	if l.from+linesPerPage <= l.last {
		l.Pages = append(l.Pages, pageLink{"Lines after", "?from=" + strconv.Itoa(l.from+linesPerPage), "next"})
	}
}

// annotate returns the CSS class and the effect of a line that has decided requests.
func (r *ruleCounts) annotate(class string) (string, *ruleEffect) {
	var parts []string
	icon := "allow"
	for _, c := range []live.Class{live.Disallowed, live.Deferred, live.Failed, live.NotEnforced, live.Allowed} {
		if n := r.counts[c]; n > 0 {
			parts = append(parts, strings.ToLower(classBadges[c].Word)+" "+humanize.Number(n))
		}
	}
	if r.counts.Blocked() > 0 {
		icon = "block"
	}
	return class + " " + icon, &ruleEffect{icon, strings.Join(parts, ", ")}
}

// lineClasses are the CSS classes of lines; all other lines have the class "other".
var lineClasses = map[robots.Kind]string{
	robots.KindAgent: "agent", robots.KindExtra: "extra",
	robots.KindAllow: "rule", robots.KindDisallow: "rule", robots.KindDelay: "rule",
}
