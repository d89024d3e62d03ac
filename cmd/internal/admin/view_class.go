package admin

import (
	"strings"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
)

// classOrder is the order in which pages show the classes of requests.
var classOrder = []live.Class{live.Allowed, live.Disallowed, live.Deferred, live.Failed, live.NotEnforced}

// classBadges has the colour, the icon and the word of each class.
var classBadges = [...]badge{
	live.Allowed:     {Kind: "allow", Icon: "allow", Word: "Allowed"},
	live.Disallowed:  {Kind: "block", Icon: "block", Word: "Disallowed"},
	live.Deferred:    {Kind: "wait", Icon: "wait", Word: "Deferred"},
	live.Failed:      {Kind: "fail", Icon: "fail", Word: "Failed"},
	live.NotEnforced: {Kind: "would", Icon: "block", Word: "Would be disallowed"},
}

// classOf returns the class of a request from the members of its record.
func classOf(decision, reason string, enforced bool) live.Class {
	return live.ClassOf(policy.RecordedOutcome(decision, reason), enforced)
}

// classWords returns the words of the API for all classes.
func classWords() (all []string) {
	for _, c := range classOrder {
		all = append(all, c.String())
	}
	return all
}

// shownClasses returns the classes that a page has to show beside counts: NotEnforced only if there
// are such requests, or the proxy only monitors.
func shownClasses(counts *live.Counts, monitor bool) []live.Class {
	if monitor || counts[live.NotEnforced] > 0 {
		return classOrder
	}
	return classOrder[:len(classOrder)-1]
}

// countsText lists the numbers of requests of some classes: "3 allowed, 1 disallowed".
func countsText(counts *live.Counts, classes []live.Class) string {
	var parts []string
	for _, c := range classes {
		parts = append(parts, humanize.Number(counts[c])+" "+strings.ToLower(classBadges[c].Word))
	}
	return strings.Join(parts, ", ")
}

// classHref returns the URL of the decisions of one class, with other parameters as name and value.
func classHref(c live.Class, params ...string) string {
	return decisionsHref(append([]string{"outcome", c.String()}, params...)...)
}
