package e2e

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics scrapes the proxy as Prometheus does: each series by its name, with its
// labels behind it as in `robotsproxy_decisions_total allow rule`. Of a histogram
// there is how many it has counted.
func (p *proxy) metrics(t testing.TB) map[string]float64 {
	t.Helper()
	got := get(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}, "http://"+p.admin+"/metrics")
	if got.Status != http.StatusOK {
		t.Fatalf("/metrics: %v", got)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(got.Body)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// awaitMetric scrapes until a series has a value.
func (p *proxy) awaitMetric(t testing.TB, name string, want float64) {
	t.Helper()
	eventually(t, patience, name+" is "+itoa(int(want)), func() bool { return p.metrics(t)[name] == want })
}

// What an operator sees of requests, and of a site that has had enough.
func TestMetrics(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "metrics", "User-agent: *\nDisallow: /private\nAllow: /a\n")
	o.handle("/a", textPage("text/plain", "a"))
	o.handle("/b", textPage("text/plain", "b"))
	o.handle("/enough", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "enough\n")
	})
	p := startProxy(t, outOfTheWay.with(settings{"pace.max_wait": "1s"}))
	client := p.client(t, false)
	for _, path := range []string{"/a", "/private/x", "/a?2", "/b", "/private/y", "/robots.txt"} {
		get(t, client, o.url("http", path))
	}
	wantMetrics(t, p, map[string]float64{
		"robotsproxy_decisions_total allow rule":       2,
		"robotsproxy_decisions_total allow no-rule":    1,
		"robotsproxy_decisions_total allow robots-txt": 1,
		"robotsproxy_decisions_total block rule":       2,
		"robotsproxy_wait_seconds":                     3,
		"robotsproxy_pace_hosts":                       1,
	})

	if got := get(t, client, o.url("http", "/enough")); got.Status != http.StatusTooManyRequests || string(got.Body) != "enough\n" {
		t.Errorf("the origin's own 429: %v", got)
	}
	wantOwn(t, get(t, client, o.url("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	wantMetrics(t, p, map[string]float64{
		"robotsproxy_decisions_total allow rule":       2,
		"robotsproxy_decisions_total allow no-rule":    2,
		"robotsproxy_decisions_total allow robots-txt": 1,
		"robotsproxy_decisions_total block rule":       2,
		"robotsproxy_decisions_total block pace":       1,
		"robotsproxy_wait_seconds":                     4,
		"robotsproxy_pace_hosts":                       1,
		"robotsproxy_pace_paused_hosts":                1,
		"robotsproxy_pace_back_offs_total":             1,
	})
	if n := len(o.pages("http")); n != 4 {
		t.Errorf("%d pages arrived, want 4", n)
	}
}

// wantMetrics holds all that is counted of requests and of their pace against what
// has happened; what is not named is 0. An allowed request is counted when it has
// ended, which its client may see first.
func wantMetrics(t testing.TB, p *proxy, want map[string]float64) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Logf("metrics (-want +got):\n%s", diff)
		}
	}()
	eventually(t, patience/3, "the metrics say what has happened", func() bool {
		got := p.metrics(t)
		maps.DeleteFunc(got, func(name string, n float64) bool {
			of := func(prefix string) bool { return strings.HasPrefix(name, "robotsproxy_"+prefix) }
			return n == 0 || !of("decisions_total") && !of("wait_seconds") && !of("pace_")
		})
		diff = cmp.Diff(want, got)
		return diff == ""
	})
}
