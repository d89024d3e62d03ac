package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// TestReasons names all that a reason still lacks: its row in the table, fields of the row, and its rows in the documentation.
func TestReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	testkit.Must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(s.Names[0].Name, "Reason") {
			name, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			testkit.Must(t, err)
			if policy.Reason(name).Info().Text == "" {
				t.Errorf("policy/reasons.go: %s has no row with a Text in the table", s.Names[0].Name)
			}
		}
		return true
	})
	for _, r := range policy.Reasons() {
		lacks := func(missing bool, what string) {
			if missing {
				t.Errorf("%s: %s", r.Name, what)
			}
		}
		lacks(r.Label == "" || r.Text == "", "policy/reasons.go: Label and Text are required")
		lacks(strings.HasSuffix(r.Text, "."), "policy/reasons.go: Text must not end in a full stop")
		lacks(r.Status == 0 && !r.Allows, "policy/reasons.go: no request is allowed or refused for it: Allows or Status is required")
		lacks((r.Status == 429 || r.Status == 503) != (r.RetryAfter > 0), "policy/reasons.go: RetryAfter is required with Status 429 and 503 alone")
		lacks(r.Status > 0 && r.Error == "" && r.Status != 407, "policy/reasons.go: Error is required with a Status other than 407")
		lacks(r.Status > 0 && r.Outcome == policy.Allowed, "policy/reasons.go: the Outcome of a refusal is not Allowed")
		lacks(r.Cheap && r.ByProxy, "policy/reasons.go: no client can cause what is ByProxy, so it is not Cheap")
	}
	t.Run("docs", docsHaveReasons)
}

// docsHaveReasons holds the documentation against the table of reasons.
func docsHaveReasons(t *testing.T) {
	page := func(name string) string {
		text, err := os.ReadFile("../docs/" + name)
		testkit.Must(t, err)
		return string(text)
	}
	failures, records := page("failures.md"), page("audit-records.md")
	allowed := regexp.MustCompile(`Allowed requests have [^.]*\.`).FindString(failures)
	byOutcome := map[policy.Outcome][]string{}
	for _, r := range policy.Reasons() {
		name := "`" + string(r.Name) + "`"
		if r.Allows && !strings.Contains(allowed, name) {
			t.Errorf("docs/failures.md: the sentence about the reasons of allowed requests lacks %s", name)
		}
		if r.Status == 0 {
			continue
		}
		byOutcome[r.Outcome] = append(byOutcome[r.Outcome], string(r.Name))
		counts := r.Outcome.String()
		if r.Cheap {
			counts += ", cheap"
		}
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \| (.+) \| .+ \| ` + counts + ` \|$`).FindStringSubmatch(failures)
		if row == nil || !strings.Contains(row[1], strconv.Itoa(r.Status)) && !strings.HasPrefix(row[1], "none") {
			t.Errorf("docs/failures.md: the table of reasons lacks | %s | %d | why | %s |", name, r.Status, counts)
		}
		if !regexp.MustCompile(`(?m)^\| ` + r.Outcome.String() + ` \|.*` + name).MatchString(records) {
			t.Errorf("docs/audit-records.md: the outcome %s lacks %s", r.Outcome, name)
		}
	}
	for _, name := range []string{"metrics.md", "grafana/robotsproxy.json"} {
		for _, list := range regexp.MustCompile(`decision=\\?"block\\?",reason[=!]~\\?"([a-z|-]+)`).FindAllStringSubmatch(page(name), -1) {
			listed := strings.Split(list[1], "|")
			for outcome, all := range byOutcome {
				has := func(r string) bool { return slices.Contains(listed, r) }
				if lacking := slices.DeleteFunc(slices.Clone(all), has); len(lacking) > 0 && len(lacking) < len(all) {
					t.Errorf("docs/%s: %s lacks %s, which count as %s", name, list[0], lacking, outcome)
				}
			}
		}
	}
}
