package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// TestQuotas: what counts are requests that were sent, by the UTC day on which they arrived, and the day with the most is shown.
func TestQuotas(t *testing.T) {
	const day = 24 * 60 * 60
	sent := func(second int) record { return rec(second, record{"v": 2, "sent": at(second)}) }
	r := sum(t, Options{Quotas: map[string]policy.Quota{"lab": {Requests: 2, Bytes: 1 << 20}, "idle": {Requests: 1}}},
		sent(0), sent(1), rec(2, record{"v": 2, "decision": "block"}), rec(3, nil), rec(4, record{"decision": "block"}),
		sent(day), rec(day+1, record{"v": 2, "sent": at(day + 1), "client": "other"}), sent(day+2),
	)
	want := []quotaUse{
		{Client: "lab", Of: "requests", Quota: 2, Day: "2026-11-21", Used: 3, Reached: 2},
		{Client: "lab", Of: "bytes", Quota: 1 << 20, Day: "2026-11-21", Used: 30},
	}
	if diff := cmp.Diff(want, r.Quotas.Rows); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	var text bytes.Buffer
	testkit.Must(t, r.Text(&text, 10))
	if !strings.Contains(text.String(), "lab         2 requests  3 requests  2026-11-21             2") {
		t.Errorf("%s", &text)
	}
}
