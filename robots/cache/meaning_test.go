package cache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// columns says of each dialect in which cases of this package's tables it departs from RFC 9309 to the
// letter, and what they mean instead. A case has the name that follows its clause.
var columns = map[string]map[Meaning][]string{
	"standard": {
		Unreachable: {"429", "gzip that breaks off", "429 for long", "429 for 30 days after a file"},
		Rules:       {"429 after a file"},
	},
	"rfc9309": {},
	"google": {
		Unreachable: {"429"},
		NoFile: {
			"a redirect that is disallowed where it leads", "a 3xx that cannot be followed",
			"503 for long", "reset for long", "no connection, then 503 for long",
		},
		Rules: {
			"429 after a file", "503 for 30 days after a file", "429 for 30 days after a file", "reset for 30 days after a file",
			"no connection for 30 days after a file",
		},
	},
	"google-2022": {
		NoFile: {
			"a redirect that is disallowed where it leads", "a 3xx that cannot be followed",
			"503 for long", "reset for long", "no connection, then 503 for long",
		},
		Rules: {"503 for 30 days after a file", "reset for 30 days after a file", "no connection for 30 days after a file"},
	},
	"google-2019": {
		NoFile: {
			"a 3xx that cannot be followed", "503 for long", "reset for long", "no connection, then 503 for long",
		},
		Rules: {"503 for 30 days after a file", "reset for 30 days after a file", "no connection for 30 days after a file"},
	},
	"coccoc": {
		Unreachable:  {"reset after a file"},
		NoConnection: {"no connection after a file"},
		NoFile: {
			"201", "204", "206", "299", "500", "503", "599", "600", "a 3xx that cannot be followed",
			"503, then no connection", "503 for long", "no connection, then 503 for long",
			"503 after a file", "503 for 30 days after a file",
		},
	},
}

// wanted returns what a case means under a dialect. letter is its meaning by RFC 9309 to the letter.
func wanted(d robots.Dialect, name string, letter Meaning) Meaning {
	if _, rest, found := strings.Cut(name, ": "); found {
		name = rest
	}
	for o, cases := range columns[d.Name] {
		if slices.Contains(cases, name) {
			return o
		}
	}
	return letter
}

func named(name string) robots.Dialect {
	d, err := robots.DialectByName(name)
	if err != nil {
		panic(err)
	}
	return d
}

func TestColumnsAreAllDialects(t *testing.T) {
	for _, d := range robots.Dialects() {
		if columns[d.Name] == nil {
			t.Errorf("columns has no column for %s", d.Name)
		}
	}
}

func TestMeaning(t *testing.T) {
	err := errors.New("reset")
	for _, tc := range []struct {
		name   string
		answer fetch.Result
		letter Meaning // by RFC 9309 to the letter
	}{
		{"2.3.1.1: 200", fetch.Result{Status: 200}, rules},
		{"2.3.1.1: 201", fetch.Result{Status: 201}, rules},
		{"2.3.1.1: 204", fetch.Result{Status: 204}, rules},
		{"2.3.1.1: 206", fetch.Result{Status: 206}, rules},
		{"2.3.1.1: 299", fetch.Result{Status: 299}, rules},
		{"2.3.1.2: more than five redirects", fetch.Result{Status: 302, TooManyRedirects: true, Redirects: 5}, none},
		{"a redirect that is disallowed where it leads", fetch.Result{Status: 302, RedirectDisallowed: true, Connected: true, Err: fetch.ErrDisallowed}, refused},
		{"2.3.1.3: 400", fetch.Result{Status: 400}, none},
		{"2.3.1.3: 401", fetch.Result{Status: 401}, none},
		{"2.3.1.3: 403", fetch.Result{Status: 403}, none},
		{"2.3.1.3: 404", fetch.Result{Status: 404}, none},
		{"2.3.1.3: 410", fetch.Result{Status: 410}, none},
		{"2.3.1.3: 499", fetch.Result{Status: 499}, none},
		{"2.3.1.3, or too busy: 429", fetch.Result{Status: 429}, none},
		{"2.3.1.4: 500", fetch.Result{Status: 500}, refused},
		{"2.3.1.4: 503", fetch.Result{Status: 503}, refused},
		{"2.3.1.4: 599", fetch.Result{Status: 599}, refused},
		{"2.3.1.4: reset", fetch.Result{Connected: true, Err: err}, refused},
		{"2.3.1.4: a body that breaks off", fetch.Result{Status: 200, Connected: true, Err: err}, refused},
		{"a 404 of bad HTTP", fetch.Result{Status: 404, Connected: true, Err: err}, refused},
		{"gzip that breaks off", fetch.Result{Status: 200, Connected: true, Body: []byte("\x1F\x8B\x08")}, rules},
		{"a 3xx that cannot be followed", fetch.Result{Status: 304, DeadRedirect: true, Connected: true, Err: err}, refused},
		{"no meaning: 600", fetch.Result{Status: 600}, refused},
		{"no connection", fetch.Result{Err: err}, nowhere},
		{"no way out to ask by", fetch.Result{Connected: true, OwnFailure: true, Err: err}, nowhere},
		{"nothing at all", fetch.Result{}, nowhere},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.answer.Fetched = time.Now()
			e := newEntry(key{}, &tc.answer, nil, time.Now(), usual)
			for _, d := range robots.Dialects() {
				r, want := e.Under(d), wanted(d, tc.name, tc.letter)
				if r.Meaning != want || r.Stale || r.Result != &tc.answer {
					t.Errorf("%s: ruling %+v, want %v", d.Name, r, want)
				}
				if (r.File != nil) != (want == Rules) {
					t.Errorf("%s: File = %v with %v", d.Name, r.File, r.Meaning)
				}
				refuses := want == Unreachable || want == NoConnection
				if (r.Err != nil) != refuses || r.Retry.IsZero() == refuses || r.Fetched().IsZero() != refuses {
					t.Errorf("%s: Err %v, Retry %v, Fetched %v with %v", d.Name, r.Err, r.Retry, r.Fetched(), r.Meaning)
				}
			}
		})
	}
}

// TestNoName: a dialect without a name allows nothing, whatever its other fields.
func TestNoName(t *testing.T) {
	for _, d := range robots.Dialects() {
		d.Name = ""
		for _, a := range []fetch.Result{file(-1), status(204), status(404), status(429), status(503), unconnected(), {}} {
			old := newEntry(key{}, &a, nil, time.Now(), usual)
			for _, e := range []*Entry{old, newEntry(key{}, &a, old, time.Now().Add(31*day), usual)} {
				if r := e.Under(d); r.Meaning != Unreachable || r.File != nil || r.Err == nil || !r.Fetched().IsZero() {
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
	if r := e.Under(robots.Dialect{Name: "mine"}); r.Meaning != Rules || r.File.For("FooBot").Match("/x").Allow {
		t.Errorf("%+v", r)
	}
}

func TestZeroRefuses(t *testing.T) {
	if (Ruling{}).Meaning != Unreachable || (*Entry)(nil).Under(robots.Standard()) != (Ruling{}) {
		t.Error("the zero Ruling does not refuse")
	}
	if outcome(success, robots.Dialect{}) != Unreachable || outcome(99, named("coccoc")) != Unreachable {
		t.Error("what nobody knows does not refuse")
	}
	for o, want := range map[Meaning]string{
		Unreachable: "unreachable", NoConnection: "no connection", NoFile: "no file", Rules: "rules", 9: "Meaning(9)",
	} {
		if got := fmt.Sprint(o); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
		if o.refuses() != (o != Rules && o != NoFile) {
			t.Errorf("%v: refuses is %v", o, o.refuses())
		}
	}
}
