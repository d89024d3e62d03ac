package prom

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// reasonsOf returns the reasons of refusals with these outcomes, sorted.
func reasonsOf(outcomes ...policy.Outcome) (all []string) {
	for _, d := range knownDecisions() {
		if d.verdict == policy.Refuse && slices.Contains(outcomes, policy.OutcomeOf(d.verdict, d.reason)) {
			all = append(all, string(d.reason))
		}
	}
	slices.Sort(all)
	return all
}

var decided = regexp.MustCompile(`robotsproxy_decisions_total\{job=~"\$job",instance=~"\$instance",decision="block",reason(=~|!~)"([^"]*)"\}`)

// TestDashboardOutcomes holds the reasons by which the dashboard sums up outcomes against the table of
// package policy. A failure has any other reason.
func TestDashboardOutcomes(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	testkit.Must(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	testkit.Must(t, json.Unmarshal(text, &board))
	type selection struct {
		Operator string
		Reasons  []string
	}
	wanted := map[string]selection{
		policy.Disallowed.String(): {"=~", reasonsOf(policy.Disallowed)},
		policy.Deferred.String():   {"=~", reasonsOf(policy.Deferred)},
		policy.Failed.String():     {"!~", reasonsOf(policy.Disallowed, policy.Deferred)},
	}
	seen := map[string]int{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			want, ok := wanted[target.LegendFormat]
			found := decided.FindStringSubmatch(target.Expr)
			if !ok || found == nil {
				continue
			}
			seen[target.LegendFormat]++
			got := selection{found[1], strings.Split(found[2], "|")}
			slices.Sort(got.Reasons)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", p.Title, target.LegendFormat, diff)
			}
		}
	}
	for outcome := range wanted {
		if seen[outcome] != 2 {
			t.Errorf("%d panels sum up what was %s, want a share and a rate", seen[outcome], outcome)
		}
	}
}

// TestAlertsOfOneOutcome holds that an alert about reasons is about reasons of one outcome, and
// names the outcome.
func TestAlertsOfOneOutcome(t *testing.T) {
	text, err := os.ReadFile(alerts)
	testkit.Must(t, err)
	checked := 0
	for _, rule := range strings.Split(string(text), "- alert: ")[1:] {
		found := regexp.MustCompile(`robotsproxy_decisions_total\{decision="block",reason=~?"([^"]*)"\}`).FindStringSubmatch(rule)
		if found == nil {
			continue
		}
		checked++
		name, _, _ := strings.Cut(rule, "\n")
		_, annotations, _ := strings.Cut(rule, "annotations:")
		for reason := range strings.SplitSeq(found[1], "|") {
			outcome := policy.OutcomeOf(policy.Refuse, policy.Reason(reason)).String()
			if !slices.Contains(reasonsOf(policy.Failed, policy.Disallowed, policy.Deferred), reason) || !strings.Contains(annotations, outcome) {
				t.Errorf("%s: %s is not a reason, or the texts do not say %s", name, reason, outcome)
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d alerts about reasons, want 2", checked)
	}
}
