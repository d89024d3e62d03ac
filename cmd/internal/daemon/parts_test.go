//go:build !bare

package daemon

import (
	"testing"

	"robotsproxy/policy"
)

// TestNothingIsLeftOut: the variables of the benchmark build have no effect on this one.
func TestNothingIsLeftOut(t *testing.T) {
	t.Setenv("BARE", "robots,pace,audit,metrics")
	s := newShare(t)
	s.ask.PathQuery = "/private"
	rules := &s.daemon.Active.Load().rules
	if d := rules.Engine.Decide(t.Context(), s.ask); d.Verdict != policy.Refuse || d.Reason != policy.ReasonRule {
		t.Errorf("%v %q", d.Verdict, d.Reason)
	}
	if all, err := s.daemon.sinks(nil); rules.Monitor || len(all) != 3 || err != nil || s.daemon.tap() == nil {
		t.Errorf("monitor %v, sinks %v, %v", rules.Monitor, all, err)
	}
}
