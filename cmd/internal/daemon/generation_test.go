package daemon

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// TestAGenerationThatEndsTakesNoMore: a late activation has no partial effect and leaves
// nothing open.
func TestAGenerationThatEndsTakesNoMore(t *testing.T) {
	site := newSite(t, siteRobots)
	file := t.TempDir() + "/config.yaml"
	base := keys{"listen": "127.0.0.1:0", "state_dir": t.TempDir(), "admin.listen": "", "egress.allow_private": []string{"127.0.0.0/8"}}
	load := func(own keys) config.Config {
		base.with(own).file(t, file)
		cfg, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	h, err := New(load(nil), Resources{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	before := h.Active.Load()
	if err := h.handler.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	late, err := h.newGeneration(load(keys{"identity.user_agent": "Late/1", "robots.unreachable_retry": "7s"}), before)
	if err != nil {
		t.Fatal(err)
	}
	if late.rules.Egress == before.rules.Egress {
		t.Fatal("it uses the same egress client")
	}
	if _, err := h.activate(late, before); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("said: %v", err)
	}
	o, err := robots.ParseOrigin("http", strings.TrimPrefix(site.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.robotsCache.Lookup(t.Context(), cache.Query{Origin: o}, robots.Standard()); err != nil {
		t.Fatal(err)
	}
	if got := site.seen[0].UserAgent(); got == "Late/1" || h.Active.Load() != before {
		t.Errorf("it is in force: robots.txt is fetched as %s", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL+"/page", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.rules.Egress.RoundTrip(r); !errors.Is(err, net.ErrClosed) {
		t.Errorf("its egress client is open: %v", err)
	}
}
