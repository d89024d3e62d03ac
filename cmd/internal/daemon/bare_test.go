//go:build bare

package daemon

import (
	"os"
	"testing"

	"robotsproxy/policy"
)

// TestBare: what BARE names is left out, and nothing else.
func TestBare(t *testing.T) {
	for _, c := range []struct {
		bare    string
		verdict policy.Verdict
		monitor bool
		sinks   int
	}{
		{"unset", policy.Allow, true, 0},
		{"", policy.Refuse, false, 3},
		{"audit", policy.Refuse, false, 2},
		{"metrics", policy.Refuse, false, 1},
		{"robots,pace", policy.Allow, true, 3},
	} {
		t.Run(c.bare, func(t *testing.T) {
			if t.Setenv("BARE", c.bare); c.bare == "unset" {
				os.Unsetenv("BARE")
			}
			s := newShare(t)
			s.ask.PathQuery = "/private"
			rules := &s.daemon.Active.Load().rules
			all, err := s.daemon.sinks(nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := rules.Engine.Decide(t.Context(), s.ask); d.Verdict != c.verdict || rules.Monitor != c.monitor || len(all) != c.sinks {
				t.Errorf("%v, monitor %v, %d sinks", d.Verdict, rules.Monitor, len(all))
			}
		})
	}
}
