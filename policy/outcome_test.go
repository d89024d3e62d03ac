package policy

import "testing"

// TestOutcomes holds the table of refusals: what is not the site's or the operator's will, and does
// not pass by waiting, has failed.
func TestOutcomes(t *testing.T) {
	for reason, want := range map[Reason]Outcome{
		ReasonRule: Disallowed, ReasonCrawlDelay: Disallowed, ReasonDenied: Disallowed, ReasonIdentity: Disallowed,
		ReasonAddress: Disallowed, ReasonPort: Disallowed, ReasonTunnel: Disallowed, ReasonAuth: Disallowed,
		ReasonPace: Deferred, ReasonQuota: Deferred, ReasonHours: Deferred, ReasonCoolDown: Deferred, ReasonBudget: Deferred,
		ReasonPaused: Deferred, ReasonLimit: Deferred, ReasonShutdown: Deferred,
		ReasonUnreachable: Failed, ReasonOrigin: Failed, ReasonParent: Failed, ReasonTooComplex: Failed,
		ReasonMalformed: Failed, ReasonLoop: Failed, ReasonAudit: Failed, ReasonClient: Failed,
		ReasonInternal: Failed, "of a later version": Failed,
	} {
		if got := OutcomeOf(Refuse, reason); got != want {
			t.Errorf("refused for %q: %v, want %v", reason, got, want)
		}
		if got := OutcomeOf(Allow, reason); got != Allowed {
			t.Errorf("allowed for %q: %v", reason, got)
		}
	}
}
