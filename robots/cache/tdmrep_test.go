package cache

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/tdmrep"
)

const reserved = `[{"location":"/private","tdm-reservation":1}]`

// tdmrepAnswers are answers for tdmrep.json, named after the clauses of RFC 9309 for robots.txt.
var tdmrepAnswers = []struct {
	name    string
	handler http.HandlerFunc
	asked   int32
	want    Meaning
	err     string
}{
	{"2.3.1.1: 200", says(200, reserved), 1, rules, ""},
	{"2.3.1.1: 206", says(206, reserved), 1, rules, ""},
	{"2.3.1.2: redirects lead to the file", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tdmrep.Path {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		io.WriteString(w, reserved)
	}, 2, rules, ""},
	{"2.3.1.2: six redirects", redirects(6), 6, none, ""},
	{"2.3.1.3: 404", says(404, reserved), 1, none, ""},
	{"2.3.1.3: 401", says(401, reserved), 1, none, ""},
	{"a busy server: 429", says(429, reserved), 1, refused, "status 429"},
	{"2.3.1.4: 503", says(503, reserved), 1, refused, "status 503"},
	{"2.3.1.4: reset after the request", breaks(""), 1, refused, "reset by peer"},
	{"2.3.1.4: timeout", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, refused, "timed out after 1 s"},
	{"broken JSON", says(200, reserved[1:]), 1, refused, "parse tdmrep.json: invalid character"},
	{"no array", says(200, reserved[1:len(reserved)-1]), 1, refused, "parse tdmrep.json: it must be an array of rules"},
	{"no JSON", says(200, ""), 1, refused, "parse tdmrep.json: unexpected end of JSON input"},
	{"an HTML page", says(200, page), 1, refused, "parse tdmrep.json: it is an HTML page"},
	{"a cut file", says(200, reserved+strings.Repeat(" ", robots.MaxBytes)), 1, refused, "parse tdmrep.json: it has 512000 bytes or more"},
}

// TestTDMRepAnswers fetches a tdmrep.json from a real server, once for many callers. The clauses are
// those of RFC 9309 for a robots.txt, and the report on the TDM Reservation Protocol.
func TestTDMRepAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range tdmrepAnswers {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			asked := new(atomic.Int32)
			origin := serve(t, tc.handler, asked)
			c := newCache(t, Options{Fetcher: overHTTP(t, TDMRep(), patience)})
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					e, err := c.Lookup(t.Context(), Query{Origin: origin}, tdmrep.Dialect())
					if err != nil {
						t.Error(err)
						return
					}
					r := e.Under(tdmrep.Dialect())
					if r.Meaning != tc.want || r.Stale || r.File != nil || (r.TDMRep != nil) != (tc.want == Rules) {
						t.Errorf("%+v", r)
					}
					if tc.err != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), tc.err) || r.Retry.IsZero()) || tc.err == "" && r.Err != nil {
						t.Errorf("Err %v, next try %v", r.Err, r.Retry)
					}
					if rule, ok := r.TDMRep.Match("/private/1"); ok != (tc.want == Rules) || ok && rule.Reservation != tdmrep.Reserved {
						t.Errorf("%+v, %t", rule, ok)
					}
				})
			}
			wg.Wait()
			if n := asked.Load(); n != tc.asked {
				t.Errorf("%d requests arrived, want %d", n, tc.asked)
			}
		})
	}
}

// ruleTDM looks site up in a cache of tdmrep.json.
func ruleTDM(t *testing.T, c *Cache) Ruling {
	t.Helper()
	e, err := c.Lookup(t.Context(), Query{Origin: site}, tdmrep.Dialect())
	if err != nil {
		t.Fatal(err)
	}
	return e.Under(tdmrep.Dialect())
}

// TestBrokenTDMRep: while a tdmrep.json cannot be read, that from before is used for 30 days, also by
// the next process, and the origin is tried again as one whose robots.txt fails.
func TestBrokenTDMRep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := fetch.Result{Status: 200, Connected: true, Body: []byte(reserved), SHA256: "ab", MaxAge: 0}
		broken := fetch.Result{Status: 200, Connected: true, MaxAge: -1, Err: errDown}
		r := newRestartable(good, broken)
		c := r.cache(t)
		ruleTDM(t, c)
		began := time.Now()
		wait(time.Minute)
		for range 2 { // the second time in another process
			if got := ruleTDM(t, c); got.Meaning != Rules || !got.Stale || got.TDMRep == nil || got.Err == nil {
				t.Errorf("while it fails: %+v", got)
			}
			c = r.cache(t)
		}
		if r.count() != 2 {
			t.Errorf("%d fetches before the first retry", r.count())
		}
		wait(usual.retry)
		if ruleTDM(t, c); r.count() != 3 {
			t.Errorf("%d fetches after the first retry", r.count())
		}
		wait(time.Until(began.Add(maxStale)) - time.Second)
		if got := ruleTDM(t, c); got.Meaning != Rules || !got.Stale {
			t.Errorf("on the last day: %+v", got)
		}
		wait(time.Second)
		if got := ruleTDM(t, c); got.Meaning != Unreachable || got.TDMRep != nil {
			t.Errorf("after 30 days: %+v", got)
		}
	})
}

// TestUnreadTDMRep: a text that the fetch let pass and that cannot be read, as after another version
// has stored it, is no file without rules.
func TestUnreadTDMRep(t *testing.T) {
	c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{{Status: 200, Connected: true, Body: []byte("{}"), SHA256: "ab", MaxAge: -1}}}})
	if got := ruleTDM(t, c); got.Meaning != Unreachable || got.TDMRep != nil || got.Err == nil {
		t.Errorf("%+v", got)
	}
}

// TestTDMRepIsCompiledOnce: and its memory counts.
func TestTDMRepIsCompiledOnce(t *testing.T) {
	c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{{Status: 200, Connected: true, Body: []byte(reserved), SHA256: "ab", MaxAge: -1}}}})
	first, again := ruleTDM(t, c), ruleTDM(t, c)
	if first.TDMRep == nil || first.TDMRep != again.TDMRep {
		t.Errorf("compiled twice: %p, %p", first.TDMRep, again.TDMRep)
	}
	if got, least := c.Stats().Bytes, int64(entryOverhead+len(reserved)+first.TDMRep.Size()); got < least {
		t.Errorf("%d bytes, want at least %d", got, least)
	}
	if first.Shrink(); first.TDMRep != nil {
		t.Error("Shrink keeps the file")
	}
}
