package operations

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// entries are the settings of entries of hosts.
func entries(all ...e2e.Entry) e2e.Settings { return e2e.Unpaced.With(e2e.Settings{"hosts": all}) }

// TestEntriesForPaths: an exception for a path is one for no other, also if a server may take another path for it.
func TestEntriesForPaths(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "paths", "User-agent: *\nDisallow: /\n")
	for _, path := range []string{"/data/1", "/api/export"} {
		o.Handle(path, e2e.TextPage("text/plain", "a"))
	}
	p := e2e.StartProxy(t, entries(
		e2e.Entry{"match": o.Name, "paths": []string{"/closed"}, "robots": "deny", "reason": "closed"},
		e2e.Entry{"match": o.Name, "paths": []string{"/data/", "/api/export$"}, "robots": "ignore", "reason": "permitted"},
	))
	for _, scheme := range e2e.Schemes {
		client := p.Client(t, true)
		for _, c := range []struct {
			path   string
			status int
			entry  string
		}{
			{"/data/1", 200, o.Name + "/data/"}, {"/api/export", 200, o.Name + "/api/export$"}, {"/api/export?all", 403, ""}, {"/other", 403, ""},
			{"/data/../secret", 403, ""}, {"/data/%2e%2e/secret", 403, ""}, {"//data/1", 403, ""}, {"/data/..%2fsecret", 403, ""},
			{"//closed/1", 403, o.Name + "/closed"}, {"/data/../closed", 403, o.Name + "/closed"},
		} {
			got := e2e.Get(t, client, o.URL(scheme, c.path))
			if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, c.path)); got.Status != c.status || r.Entry != c.entry {
				t.Errorf("%s: status %d, entry %q, want %d, %q", c.path, got.Status, r.Entry, c.status, c.entry)
			}
		}
		if pages := o.Pages(scheme); len(pages) != 2 {
			t.Errorf("%s: %d pages arrived", scheme, len(pages))
		}
	}
}

// TestHours: outside its hours a host gets neither a request nor a connection.
func TestHours(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "hours", "")
	closed := entries(e2e.Entry{"match": o.Name, "hours": []string{time.Now().UTC().AddDate(0, 0, 3).Format("Mon") + " 22:00-05:00"}})
	p := e2e.StartProxy(t, closed)
	for _, scheme := range e2e.Schemes {
		got := e2e.Get(t, p.Client(t, true), o.URL(scheme, "/page"))
		r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/page"))
		if got.Status != http.StatusTooManyRequests || r.Reason != "hours" || r.NotBefore.Before(time.Now().Add(24*time.Hour)) || r.Entry != o.Name {
			t.Errorf("%s: %d, %+v", scheme, got.Status, r)
		}
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

// TestCoolDownOutlastsAStop: a client that a host refuses in a row is stopped there, also after the proxy was stopped or killed.
func TestCoolDownOutlastsAStop(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "cool", "")
	o.Handle("/page", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for _, killed := range []bool{false, true} {
		p := e2e.StartProxy(t, e2e.Unpaced)
		before, statuses := len(o.Pages("http")), []int(nil)
		ask := func(n int) {
			for range n {
				url := o.URL("http", fmt.Sprintf("/page?%d-%v", len(statuses), killed))
				statuses = append(statuses, e2e.Get(t, p.Client(t, false), url).Status)
				e2e.AwaitRecord(t, p.Audit, url)
			}
		}
		ask(22)
		if killed {
			// It is saved before its event is written.
			e2e.AwaitEvent(t, p.Audit, "cool-down")
			p = p.KillAgain(t)
		} else {
			p = p.EndAgain(t)
		}
		ask(2)
		if want := slices.Concat(slices.Repeat([]int{403}, 20), slices.Repeat([]int{429}, 4)); !slices.Equal(statuses, want) {
			t.Errorf("killed %v: %d", killed, statuses)
		}
		if n := len(o.Pages("http")) - before; n != 20 {
			t.Errorf("killed %v: %d pages arrived", killed, n)
		}
		p.End(t)
	}
}
