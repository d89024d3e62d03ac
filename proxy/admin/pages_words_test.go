package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
)

// malformed records a request that nothing could be made of.
func (w *world) malformed(t testing.TB) {
	t.Helper()
	w.record(t, &audit.Record{Time: time.Now(), ID: w.ids.Next(), Target: "http://:0/", Request: policy.Request{Client: "a", Method: "GET"}, Decision: policy.Decision{Reason: policy.ReasonMalformed}})
}

// The overview counts what the other pages count.
func TestTheOverviewAgreesWithItself(t *testing.T) {
	w := newWorld(t, sample)
	w.come(t, cart(1))
	for range 5 {
		w.malformed(t)
	}
	w.page(t, w.ask(t, "POST", "/explain", url.Values{"url": {"https://api.example.org/"}}), http.StatusOK) // known, but not by a request
	doc := w.get(t, "/", http.StatusOK)
	if got := words(one(t, doc, "id", "figures")); !strings.Contains(got, "Hosts known2") || !strings.Contains(got, "Blocked6") {
		t.Errorf("figures: %q", got)
	}
	if got := words(one(t, doc, "id", "blockers")); !strings.Contains(got, "No hostmalformed5") || len(find(doc, "href", "/?decision=block&reason=malformed#decisions")) != 1 {
		t.Errorf("blockers: %q", got)
	}
	if got := words(one(t, w.get(t, "/hosts", http.StatusOK), "id", "hosts-title")); got != "2 hosts known" {
		t.Errorf("hosts: %q", got)
	}
	if got := words(one(t, w.get(t, "/hosts?q=shop", http.StatusOK), "id", "hosts-title")); got != "1 of 2 hosts known" {
		t.Errorf("hosts: %q", got)
	}
}

// A record that is not shown is one that there never was, or that is gone.
func TestARecordThatIsNotThere(t *testing.T) {
	w := newWorld(t, sample)
	if got := words(w.get(t, "/decisions/1", http.StatusNotFound)); !strings.Contains(got, "No record has come since the start.") {
		t.Errorf("%q", got)
	}
	w.malformed(t)
	w.get(t, "/decisions/1", http.StatusOK)
	newest := w.feed.Newest()
	for path, want := range map[string]string{
		fmt.Sprintf("/decisions/%d", newest+5): fmt.Sprintf("No record has this number yet. The last is %d.", newest),
		"/decisions/x":                         "That is no number of a record.",
		"/decisions/0":                         "That is no number of a record.",
	} {
		if got := words(w.get(t, path, http.StatusNotFound)); !strings.Contains(got, want) || strings.Contains(got, "The audit has it") {
			t.Errorf("%s: no %q in %q", path, want, got)
		}
	}
	for range 2100 {
		w.come(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://shop.example.com/x"})
	}
	if got := words(w.get(t, "/decisions/1", http.StatusNotFound)); !strings.Contains(got, "no longer in memory. The audit has it.") {
		t.Errorf("%q", got)
	}
}

// Beside a decision, one step asks about it: where there is something to ask about, and
// not for another's page.
func TestADecisionIsExplainedInOneStep(t *testing.T) {
	w := newWorld(t, sample)
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", method: "PROPFIND", url: "https://www.example.org/private/x"})
	w.malformed(t)
	doc := w.get(t, "/", http.StatusOK)
	asks := find(one(t, doc, "id", "rows"), "data-f", "explain")
	if len(asks) != 1 || attr(asks[0], "method") != "post" {
		t.Fatalf("%d can be asked about", len(asks))
	}
	address := attr(asks[0], "action")
	doc = w.page(t, w.ask(t, "POST", address, url.Values{}), http.StatusOK)
	if got := words(one(t, doc, "id", "answer")); !strings.Contains(got, "PROPFIND") || !strings.Contains(got, "/private/ (line 4)") {
		t.Errorf("%q", got)
	}
	if got := attr(find(doc, "name", "url")[0], "value"); got != "https://www.example.org/private/x" || len(find(doc, "selected", "")) != 1 {
		t.Errorf("the form has %q", got)
	}
	newest := w.feed.Newest()
	if n := len(find(w.get(t, fmt.Sprintf("/decisions/%d", newest), http.StatusOK), "method", "post")); n != 0 {
		t.Errorf("%d forms with a record of no request", n)
	}
	if len(find(w.get(t, fmt.Sprintf("/decisions/%d", newest-1), http.StatusOK), "action", address)) != 1 {
		t.Error("the page of the record asks about another")
	}
	fetched := w.sites.count()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/explain?url=https%3A%2F%2Fapi.example.org%2F", nil)
	check(t, err)
	r.Header.Set("Origin", "https://evil.test")
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || w.sites.count() != fetched {
		t.Errorf("another's page is answered %d, after %d fetches", resp.StatusCode, w.sites.count()-fetched)
	}
	pseudonym := audit.Pseudonym([]byte("key"))("a")
	w.page(t, w.ask(t, "POST", "/explain?client="+pseudonym+"&url=https%3A%2F%2Fwww.example.org%2F", url.Values{}), http.StatusOK)
	doc = w.page(t, w.ask(t, "POST", "/explain?client=nobody&url=https%3A%2F%2Fwww.example.org%2F", url.Values{}), http.StatusBadRequest)
	if got := words(one(t, doc, "id", "wrong")); !strings.Contains(got, "client is none of the configuration's") {
		t.Errorf("%q", got)
	}
}

func TestOriginsOfOneHostAreToldApart(t *testing.T) {
	f := newFixture(t)
	for _, origin := range []string{"http://a.test", "http://a.test:8000", "https://a.test:8443", "https://[2001:db8::1]:444"} {
		f.know(t, origin, "User-agent: *\n")
	}
	page := f.ask("GET", "/hosts", "").Body.String()
	for _, want := range []string{"http, 0 rules", "http, port 8000, 0 rules", "https, port 8443, 0 rules", "https, port 444, 0 rules"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

// What nobody has asked for is not said to be under way.
func TestNothingIsSaidToHappenByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.know(t, "https://a.test", "User-agent: *\n")
		slot, err := f.pacer.Wait(t.Context(), "lab", pace.Limits{Key: "a.test", PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute})
		check(t, err)
		slot.Sent()
		slot.Release()
		if got := f.ask("GET", "/hosts/a.test", "").Body.String(); !strings.Contains(got, "in 1 s") || !strings.Contains(got, "in 1 d") {
			t.Errorf("before: %s", got)
		}
		if got := decode[wholeHost](t, f.ask("GET", "/api/v1/hosts/a.test", ""), 200); got.Pace.NextSlot.IsZero() {
			t.Error("no next slot, while there is one")
		}
		<-time.After(25 * time.Hour)
		got := f.ask("GET", "/hosts/a.test", "").Body.String()
		if !strings.Contains(got, "<dt>Fetched anew</dt><dd><bdi>when next asked</bdi>") {
			t.Errorf("after: %s", got)
		}
		if w := f.ask("GET", "/api/v1/hosts/a.test", ""); strings.Contains(w.Body.String(), "next_slot") {
			t.Errorf("%s", w.Body)
		}
	})
	for in, want := range map[time.Duration]string{-time.Hour: "when next asked", 0: "when next asked", time.Minute: "in 1 min"} {
		at := time.Now()
		if got := nextFetchText(at, at.Add(in)); got != want {
			t.Errorf("%v: %q", in, got)
		}
	}
	if got := nextSlotText(newPaceState(pace.HostState{NextSlot: time.Now()}), time.Now().Add(-time.Millisecond)); got != "now" {
		t.Errorf("an idle host's next slot is %q", got)
	}
}
