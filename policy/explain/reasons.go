package explain

import (
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// Reason says what a reason means, for allowed and blocked requests alike, as a sentence without its full stop; "" for a
// reason that is not known.
func Reason(r string) string { return policy.Reason(r).Info().Text }

// Label returns a reason in a few words. It returns an unknown reason as records contain it. The result is printable.
func Label(reason string) string {
	if label := policy.Reason(reason).Info().Label; label != "" {
		return label
	}
	return humanize.Brief(reason)
}

// ByRobots reports whether robots.txt decided, and nothing took the place of its answer.
func ByRobots(r policy.Reason) bool { return r.Info().ByRobots }

// Outcome returns what became of the request of a record, in the words by which people count; of a record that was not
// enforced, what would have become of it.
func Outcome(e *trail.Entry) policy.Outcome { return policy.RecordedOutcome(e.Decision, e.Reason) }
