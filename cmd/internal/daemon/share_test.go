package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// A share is what the daemon does of its own for a request, as the handler drives it,
// and nothing of HTTP.
type share struct {
	t      testing.TB
	daemon *Daemon
	sinks  map[string]audit.Sink
	ask    policy.Request
	head   http.Header
}

// newShare builds a daemon as serve does, with every feature on its default and the
// pace out of the way.
func newShare(t testing.TB) *share {
	t.Helper()
	site := newSite(t, siteRobots)
	file := filepath.Join(t.TempDir(), "config.yaml")
	keys{
		"listen": "127.0.0.1:0", "state_dir": t.TempDir(), "admin.listen": "127.0.0.1:0", "egress.allow_private": []string{"127.0.0.0/8"},
		"pace.requests_per_second": 1e6, "pace.burst": 1_000_000, "pace.max_concurrent": 10_000,
	}.file(t, file)
	cfg, err := config.Load(file)
	if err == nil {
		err = cfg.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(cfg, Resources{}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s := &share{
		t: t, daemon: h,
		sinks: map[string]audit.Sink{"audit": h.evidence, "metrics": h.metrics, "live": h.feed},
		ask:   policy.Request{Client: "127.0.0.1", Method: http.MethodGet, Target: robots.Target{PathQuery: "/some/page/of/the/site?q=1"}, UserAgent: "Mozilla/5.0 (compatible; OtherBot/2.1; +https://other.example)"},
		head:  http.Header{"Content-Type": {"text/html"}, "Content-Length": {"1024"}, "Date": {"Sun, 22 Nov 2026 10:39:33 GMT"}, "Server": {"origin"}},
	}
	if s.ask.Origin, err = robots.ParseOrigin("http", strings.TrimPrefix(site.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *share) decide() policy.Decision {
	d := s.daemon.Active.Load().rules.Engine.Decide(s.t.Context(), s.ask)
	if d.Verdict != policy.Allow {
		s.t.Fatalf("%+v", d)
	}
	return d
}

// pace is what an exchange calls of its slot: several ask whether it was used.
func (s *share) pace(r *audit.Record) {
	slot, err := s.daemon.Pacer.Wait(s.t.Context(), s.ask.Client, r.Decision.Pace)
	if err == nil {
		slot.Redial()
		err = slot.Ready(s.t.Context())
	}
	if err != nil || !slot.Timely() {
		s.t.Fatal(err)
	}
	slot.Written()
	slot.Written()
	slot.Answered("/", true)
	held := slot.Held()
	for range 2 {
		slot.Written()
		slot.Release()
	}
	r.Slot, r.Waited = true, held.Waited
}

func (s *share) record(d policy.Decision) *audit.Record {
	return &audit.Record{
		Time: time.Now(), Request: s.ask, Target: "http://" + s.ask.Origin.Host + s.ask.PathQuery, Remote: "127.0.0.1:40000",
		Decision: d, Slot: true, Status: http.StatusOK, Bytes: 1024, Took: 312 * time.Microsecond,
	}
}

// BenchmarkShare is what decision, pace, record and metrics cost a request: cpu-ns/op
// with what other goroutines do for it, the writing of the file too.
func BenchmarkShare(b *testing.B) {
	s := newShare(b)
	r := s.record(s.decide())
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := testkit.ProcessorTime(b)
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(testkit.ProcessorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
	sink := func(name string) func() {
		return func() {
			if err := s.sinks[name].Write(r); err != nil {
				b.Fatal(err)
			}
		}
	}
	run("id", func() { r.ID = audit.NewID() })
	run("decide", func() { s.decide() })
	run("pace", func() { s.pace(r) })
	run("preferences", func() { r.Preferences = audit.PreferencesOf(s.head) })
	run("audit", sink("audit"))
	run("metrics", sink("metrics"))
	run("live", sink("live"))
	run("all", func() {
		r.ID, r.Decision = audit.NewID(), s.decide()
		s.pace(r)
		r.Preferences = audit.PreferencesOf(s.head)
		for _, sink := range s.sinks {
			if err := sink.Write(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
