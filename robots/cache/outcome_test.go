package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

func TestOutcome(t *testing.T) {
	err := errors.New("reset")
	for _, tc := range []struct {
		name   string
		answer fetch.Answer
		want   Outcome
	}{
		{"2.3.1.1: 200", fetch.Answer{Status: 200}, Rules},
		{"2.3.1.1: 204", fetch.Answer{Status: 204}, Rules},
		{"2.3.1.1: 206", fetch.Answer{Status: 206}, Rules},
		{"2.3.1.1: 299", fetch.Answer{Status: 299}, Rules},
		{"2.3.1.2: more than five redirects", fetch.Answer{Status: 302, Lost: true, Redirects: 5}, NoFile},
		{"2.3.1.3: 400", fetch.Answer{Status: 400}, NoFile},
		{"2.3.1.3: 401", fetch.Answer{Status: 401}, NoFile},
		{"2.3.1.3: 403", fetch.Answer{Status: 403}, NoFile},
		{"2.3.1.3: 404", fetch.Answer{Status: 404}, NoFile},
		{"2.3.1.3: 410", fetch.Answer{Status: 410}, NoFile},
		{"2.3.1.3: 499", fetch.Answer{Status: 499}, NoFile},
		{"too busy: 429", fetch.Answer{Status: 429}, Unreachable},
		{"2.3.1.4: 500", fetch.Answer{Status: 500}, Unreachable},
		{"2.3.1.4: 503", fetch.Answer{Status: 503}, Unreachable},
		{"2.3.1.4: 599", fetch.Answer{Status: 599}, Unreachable},
		{"2.3.1.4: reset", fetch.Answer{Connected: true, Err: err}, Unreachable},
		{"2.3.1.4: a body that breaks off", fetch.Answer{Status: 200, Connected: true, Err: err}, Unreachable},
		{"a 404 of bad HTTP", fetch.Answer{Status: 404, Connected: true, Err: err}, Unreachable},
		{"no meaning: 300", fetch.Answer{Status: 300}, Unreachable},
		{"no meaning: 304", fetch.Answer{Status: 304}, Unreachable},
		{"no meaning: 600", fetch.Answer{Status: 600}, Unreachable},
		{"no connection", fetch.Answer{Err: err}, NoConnection},
		{"nothing at all", fetch.Answer{}, NoConnection},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEntry(robots.Origin{}, "", &tc.answer, nil, time.Now(), usual)
			r := e.Under(robots.Standard())
			if r.Outcome != tc.want || r.Stale || r.Answer != &tc.answer {
				t.Errorf("ruling %+v, want %v", r, tc.want)
			}
			if (r.File != nil) != (tc.want == Rules) {
				t.Errorf("File = %v with %v", r.File, r.Outcome)
			}
			refuses := tc.want == Unreachable || tc.want == NoConnection
			if (r.Err != nil) != refuses || r.Retry.IsZero() == refuses {
				t.Errorf("Err %v, Retry %v with %v", r.Err, r.Retry, r.Outcome)
			}
			if unknown := e.Under(robots.Dialect{}); unknown.Outcome != Unreachable || unknown.File != nil {
				t.Errorf("an unknown dialect does not refuse: %+v", unknown)
			}
		})
	}
}

func TestZeroRefuses(t *testing.T) {
	if (Ruling{}).Outcome != Unreachable || (*Entry)(nil).Under(robots.Standard()) != (Ruling{}) {
		t.Error("the zero Ruling does not refuse")
	}
	if outcome(success, robots.Dialect{Name: "nobody's"}) != Unreachable {
		t.Error("an unknown dialect does not refuse")
	}
	for o, want := range map[Outcome]string{
		Unreachable: "unreachable", NoConnection: "no connection", NoFile: "no file", Rules: "rules", 9: "Outcome(9)",
	} {
		if got := fmt.Sprint(o); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
