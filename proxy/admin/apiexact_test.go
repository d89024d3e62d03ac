package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy"
)

// What an endpoint does not take is refused, and the answer says what it takes.
func TestWhatIsNotTakenIsRefused(t *testing.T) {
	reloads := 0
	f := newFixture(t, func(o *Options) { o.Reload = func(context.Context) error { reloads++; return nil } })
	f.know(t, "https://a.test", "User-agent: *\n")
	for _, c := range []struct {
		method, target, body string
		status               int
		says                 string
	}{
		{"POST", "/api/v1/reload", `{"x":1}`, 400, `unknown field \"x\"`},
		{"POST", "/api/v1/reload", `{}{}`, 400, "behind the object"},
		{"POST", "/api/v1/reload", `[]`, 400, "not the JSON object"},
		{"POST", "/api/v1/reload", `{"x":"` + strings.Repeat("x", maxBody) + `"}`, 413, "longer than"},
		{"POST", "/api/v1/reload?x=1", "", 400, `There is no parameter \"x\" here; there are: none.`},
		{"GET", "/api/v1/ca.pem?x=1", "", 400, "there are: none."},
		{"POST", "/api/v1/purge", "{}", 400, "origin is required"},
		{"POST", "/api/v1/refetch", "{}", 400, "origin is required"},
		{"POST", "/api/v1/purge", "", 400, "it is empty"},
		{"POST", "/api/v1/purge", `{"origin"`, 400, "it ends before the object does"},
		{"GET", "/api/v1/purge", "", 405, "This is asked for by POST."},
		{"POST", "/api/v1/hosts", "", 405, "This is asked for by GET or HEAD."},
		{"GET", "/api/v1/hosts/a.test?origin=junk", "", 400, "origin"},
		{"GET", "/api/v1/hosts/a.test?origin=https://a.test:8443", "", 404, "Nothing is known of the robots.txt of https://a.test:8443"},
		{"GET", "/api/v1/hosts/a.test?origin=https://b.test", "", 404, "as an origin of a.test"},
		{"POST", "/api/v1/explain", `{"url":"https://a.test/","client":"nobody"}`, 400, "client is none of the configuration's, and no address"},
	} {
		w := f.ask(c.method, c.target, c.body)
		if decode[problemDetails](t, w, c.status); !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %.40s: no %q in %s", c.method, c.target, c.body, c.says, w.Body)
		}
	}
	if reloads != 0 {
		t.Errorf("reloaded %d times", reloads)
	}
	for i, body := range []string{"", "{}", " {}\n"} {
		if decode[map[string]bool](t, f.ask("POST", "/api/v1/reload", body), 200); reloads != i+1 {
			t.Errorf("%q: reloaded %d times", body, reloads)
		}
	}
	if got := decode[wholeHost](t, f.ask("GET", "/api/v1/hosts/a.test?origin=HTTPS://A.test:443", ""), 200); len(got.Origins) != 1 {
		t.Errorf("an origin by another spelling: %+v", got.Origins)
	}
}

// Who is asked about is one of the configuration, or goes by an address.
func TestExplainTakesClientsThatThereAre(t *testing.T) {
	var asked []string
	f := newFixture(t, func(o *Options) {
		o.Explain = func(_ context.Context, r policy.Request) policy.Decision {
			asked = append(asked, r.Client)
			return policy.Decision{}
		}
	})
	want := []string{"", "lab", "192.0.2.7", "2001:db8::1"}
	for _, client := range want {
		decode[explainResponse](t, f.ask("POST", "/api/v1/explain", fmt.Sprintf(`{"url":"https://a.test/","client":%q}`, client)), 200)
	}
	if !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
}
