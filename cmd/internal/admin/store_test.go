package admin

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis"
)

// withStore sets Options.Store to a value that the test may change.
func withStore(s *Store) func(*Options) {
	return func(o *Options) { o.Store = func() Store { return *s } }
}

func TestReadyzWithoutStore(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		store Store
		want  string
	}{
		{"shared", Store{Times: 1, Members: 3, Expected: 3}, "ok\n"},
		{"away", Store{StoreAway: true, Why: "no reply within 1 s", Since: at, Times: 3},
			"ok\nThe shared store is unavailable: no reply within 1 s. This replica paces alone since 2026-11-22 10:00:00 UTC, 3 times slower than permitted.\n"},
		{"away from the beginning", Store{StoreAway: true, Why: "not asked yet", Times: 1},
			"ok\nThe shared store is unavailable: not asked yet. This replica paces alone, at the permitted rate.\n"},
		{"back", Store{StoreAway: true, Returning: true, Why: "no reply within 1 s", Since: at, Times: 3},
			"ok\nThe shared store answers. This replica still paces alone (since 2026-11-22 10:00:00 UTC), and will soon share the pace.\n"},
		{"untrusted text", Store{StoreAway: true, Why: hostileText, Times: 3}, ""},
	} {
		resp := newFixture(t, withStore(&c.store)).do("GET", "/readyz", "")
		text := resp.Body.String()
		if resp.Code != http.StatusOK || c.want != "" && text != c.want {
			t.Errorf("%s: %d %q, want %q", c.name, resp.Code, text, c.want)
		}
		if strings.ContainsAny(text, "\x1b\r\x00\u202e") {
			t.Errorf("%s: %q", c.name, text)
		}
	}
	if text := newFixture(t).do("GET", "/readyz", "").Body.String(); text != "ok\n" {
		t.Errorf("on its own: %q", text)
	}
}

func TestStatusStore(t *testing.T) {
	store := Store{Replica: "proxy-1", Times: 1, Members: 2, Expected: 3, Since: time.Unix(1_800_000_000, 0), Guard: time.Second, Replicas: []redis.Member{{Name: "proxy-2", Version: "v1"}}}
	f := newFixture(t, withStore(&store))
	type response struct{ Store *storeStatus }
	got := decode[response](t, f.do("GET", "/api/v1/status", ""), 200)
	if want := (storeStatus{"proxy-1", true, "", "2027-01-15T08:00:00Z", 1, 2, 3, 1000, []redis.Member{{Name: "proxy-2", Version: "v1"}}}); got.Store == nil || !reflect.DeepEqual(*got.Store, want) {
		t.Errorf("%+v, want %+v", got.Store, want)
	}
	store.StoreAway, store.Why, store.Times = true, "the server's memory is full", 3
	got = decode[response](t, f.do("GET", "/api/v1/status", ""), 200)
	if got.Store == nil || got.Store.Shared || got.Store.Times != 3 || !strings.Contains(got.Store.Detail, "is unavailable: the server's memory is full.") {
		t.Errorf("%+v", got.Store)
	}
	if got := decode[response](t, newFixture(t).do("GET", "/api/v1/status", ""), 200); got.Store != nil {
		t.Errorf("on its own: %+v", got.Store)
	}
}

// All pages say that a replica paces alone, and no longer say so when it has recovered.
func TestPagesShowStore(t *testing.T) {
	store := Store{Replica: "proxy-1", StoreAway: true, Why: "the password is wrong or missing", Times: 3, Members: 2, Expected: 3, Since: time.Now().Add(-time.Minute)}
	w := newTestProxy(t, sampleFiles, withStore(&store))
	store.Replicas = []redis.Member{
		{Name: "proxy-1", Self: true, Version: "v1.1", Config: "aaaa", LastHour: map[string]int64{"allowed": 3}},
		{Name: hostileText, Version: "v1.2", Config: "bbbb", Dashboard: "https://two.example/", Problems: []string{hostileText}, LastHour: map[string]int64{"allowed": 4}},
		{Name: "proxy-3", Dashboard: "javascript:alert(1)"},
	}
	for _, page := range []string{"/", "/hosts", "/explain", "/about"} {
		doc := w.get(t, page, http.StatusOK)
		if got := textOf(findOne(t, doc, "id", "warnings")); !strings.Contains(got, "is unavailable: the password is wrong or missing. This replica paces alone") {
			t.Errorf("%s: %q", page, got)
		}
		if got := textOf(findOne(t, doc, "id", "health")); got != "Serving; shared store unavailable" {
			t.Errorf("%s: %q", page, got)
		}
	}
	about := textOf(findOne(t, w.get(t, "/about", http.StatusOK), "id", "conditions"))
	for _, want := range []string{"Shares the pace", "No", "This replica", "proxy-1", "2 of 3 seen", "3 times slower than permitted", "Alone since", "1 min ago"} {
		if !strings.Contains(about, want) {
			t.Errorf("About lacks %q: %s", want, about)
		}
	}
	fleet := findOne(t, w.get(t, "/about", http.StatusOK), "id", "fleet")
	for _, want := range []string{"proxy-1 this page", "v1.1aaaaYes", "v1.2bbbbNo", "All, in the last hour7"} {
		if got := strings.Join(strings.Fields(textOf(fleet)), " "); !strings.Contains(got, want) {
			t.Errorf("the replicas lack %q: %s", want, got)
		}
	}
	if links := findAll(fleet, "rel", "noreferrer"); len(links) != 1 || attr(links[0], "href") != "https://two.example/" {
		t.Errorf("%d links, want one to proxy-2", len(links))
	}
	store.StoreAway, store.Times = false, 1
	if got := textOf(findOne(t, w.get(t, "/", http.StatusOK), "id", "warnings")); got != "" {
		t.Errorf("%q", got)
	}
	if about := textOf(findOne(t, w.get(t, "/about", http.StatusOK), "id", "conditions")); !strings.Contains(about, "Shared since") || !strings.Contains(about, "at the permitted rate") {
		t.Errorf("About: %s", about)
	}
}
