package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// Outcomes in the form of the test tables.
const (
	rules   = Rules // short names for the tables
	none    = NoFile
	refused = Unreachable
	nowhere = NoConnection
)

// columns are the dialects in the order of the tables.
var columns = [...]robots.Dialect{
	named("standard"), named("rfc9309"), named("google"), named("google-2022"), named("google-2019"), named("coccoc"),
}

func named(name string) robots.Dialect {
	d, err := robots.DialectByName(name)
	if err != nil {
		panic(err)
	}
	return d
}

// under is a row of a table: an outcome for each of columns.
type under [len(columns)]Outcome

func TestColumnsAreAllDialects(t *testing.T) {
	for _, d := range robots.Dialects() {
		found := false
		for _, c := range columns {
			found = found || c == d
		}
		if !found {
			t.Errorf("%s has no column", d.Name)
		}
	}
}

func TestOutcome(t *testing.T) {
	err := errors.New("reset")
	for _, tc := range []struct {
		name   string
		answer fetch.Result
		want   under // standard, rfc9309, google, google-2022, google-2019, coccoc
	}{
		{"2.3.1.1: 200", fetch.Result{Status: 200}, under{rules, rules, rules, rules, rules, rules}},
		{"2.3.1.1: 201", fetch.Result{Status: 201}, under{rules, rules, rules, rules, rules, none}},
		{"2.3.1.1: 204", fetch.Result{Status: 204}, under{rules, rules, rules, rules, rules, none}},
		{"2.3.1.1: 206", fetch.Result{Status: 206}, under{rules, rules, rules, rules, rules, none}},
		{"2.3.1.1: 299", fetch.Result{Status: 299}, under{rules, rules, rules, rules, rules, none}},
		{"2.3.1.2: more than five redirects", fetch.Result{Status: 302, TooManyRedirects: true, Redirects: 5}, under{none, none, none, none, none, none}},
		{"a hop that is disallowed where it leads", fetch.Result{Status: 302, RedirectDisallowed: true, Connected: true, Err: fetch.ErrDisallowed}, under{refused, refused, none, none, refused, refused}},
		{"2.3.1.3: 400", fetch.Result{Status: 400}, under{none, none, none, none, none, none}},
		{"2.3.1.3: 401", fetch.Result{Status: 401}, under{none, none, none, none, none, none}},
		{"2.3.1.3: 403", fetch.Result{Status: 403}, under{none, none, none, none, none, none}},
		{"2.3.1.3: 404", fetch.Result{Status: 404}, under{none, none, none, none, none, none}},
		{"2.3.1.3: 410", fetch.Result{Status: 410}, under{none, none, none, none, none, none}},
		{"2.3.1.3: 499", fetch.Result{Status: 499}, under{none, none, none, none, none, none}},
		{"2.3.1.3, or too busy: 429", fetch.Result{Status: 429}, under{refused, none, refused, none, none, none}},
		{"2.3.1.4: 500", fetch.Result{Status: 500}, under{refused, refused, refused, refused, refused, none}},
		{"2.3.1.4: 503", fetch.Result{Status: 503}, under{refused, refused, refused, refused, refused, none}},
		{"2.3.1.4: 599", fetch.Result{Status: 599}, under{refused, refused, refused, refused, refused, none}},
		{"2.3.1.4: reset", fetch.Result{Connected: true, Err: err}, under{}},
		{"2.3.1.4: a body that breaks off", fetch.Result{Status: 200, Connected: true, Err: err}, under{}},
		{"a 404 of bad HTTP", fetch.Result{Status: 404, Connected: true, Err: err}, under{}},
		{"gzip that breaks off", fetch.Result{Status: 200, Connected: true, Body: []byte("\x1F\x8B\x08")}, under{refused, rules, rules, rules, rules, rules}},
		{"a 3xx that cannot be followed", fetch.Result{Status: 304, DeadRedirect: true, Connected: true, Err: err}, under{refused, refused, none, none, none, none}},
		{"no meaning: 600", fetch.Result{Status: 600}, under{refused, refused, refused, refused, refused, none}},
		{"no connection", fetch.Result{Err: err}, under{nowhere, nowhere, nowhere, nowhere, nowhere, nowhere}},
		{"no way out to ask by", fetch.Result{Connected: true, OwnFailure: true, Err: err}, under{nowhere, nowhere, nowhere, nowhere, nowhere, nowhere}},
		{"nothing at all", fetch.Result{}, under{nowhere, nowhere, nowhere, nowhere, nowhere, nowhere}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.answer.Fetched = time.Now()
			e := newEntry(key{}, &tc.answer, nil, time.Now(), usual)
			for i, d := range columns {
				r, want := e.Under(d), tc.want[i]
				if r.Outcome != want || r.Stale || r.Result != &tc.answer {
					t.Errorf("%s: ruling %+v, want %v", d.Name, r, want)
				}
				if (r.File != nil) != (want == Rules) {
					t.Errorf("%s: File = %v with %v", d.Name, r.File, r.Outcome)
				}
				refuses := want == Unreachable || want == NoConnection
				if (r.Err != nil) != refuses || r.Retry.IsZero() == refuses || r.Fetched().IsZero() != refuses {
					t.Errorf("%s: Err %v, Retry %v, Fetched %v with %v", d.Name, r.Err, r.Retry, r.Fetched(), r.Outcome)
				}
			}
		})
	}
}

// TestNoName: a dialect without a name allows nothing, whatever its other fields.
func TestNoName(t *testing.T) {
	for _, d := range columns {
		d.Name = ""
		for _, a := range []fetch.Result{file(-1), status(204), status(404), status(429), status(503), unconnected(), {}} {
			old := newEntry(key{}, &a, nil, time.Now(), usual)
			for _, e := range []*Entry{old, newEntry(key{}, &a, old, time.Now().Add(31*day), usual)} {
				if r := e.Under(d); r.Outcome != Unreachable || r.File != nil || r.Err == nil || !r.Fetched().IsZero() {
					t.Errorf("%d: %+v", a.Status, r)
				}
			}
		}
	}
}

// TestOwnDialect: a program may make its own dialect.
func TestOwnDialect(t *testing.T) {
	a := file(-1)
	e := newEntry(key{}, &a, nil, time.Now(), usual)
	if r := e.Under(robots.Dialect{Name: "mine"}); r.Outcome != Rules || r.File.For("FooBot").Match("/x").Allow {
		t.Errorf("%+v", r)
	}
}

func TestZeroRefuses(t *testing.T) {
	if (Ruling{}).Outcome != Unreachable || (*Entry)(nil).Under(robots.Standard()) != (Ruling{}) {
		t.Error("the zero Ruling does not refuse")
	}
	if outcome(success, robots.Dialect{}) != Unreachable || outcome(99, named("coccoc")) != Unreachable {
		t.Error("what nobody knows does not refuse")
	}
	for o, want := range map[Outcome]string{
		Unreachable: "unreachable", NoConnection: "no connection", NoFile: "no file", Rules: "rules", 9: "Outcome(9)",
	} {
		if got := fmt.Sprint(o); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
		if o.refuses() != (o != Rules && o != NoFile) {
			t.Errorf("%v: refuses is %v", o, o.refuses())
		}
	}
}
