package e2e

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Operator returns a client that does not use the proxy.
func Operator(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: tr, Timeout: testkit.Patience, CheckRedirect: stay}
}

// API sends a request to the admin API and decodes its JSON response.
func API[T any](t testing.TB, p *Proxy, method, path, body string, status int, header ...string) (v T) {
	t.Helper()
	got := Do(t, Operator(t), method, "http://"+p.Admin+"/api/v1/"+path, strings.NewReader(body), header...)
	if got.Status != status {
		t.Fatalf("%s %s: %d, want %d\n%s", method, path, got.Status, status, got.Body)
	}
	if err := json.Unmarshal(got.Body, &v); err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, got.Body)
	}
	return v
}

// Fetches counts the requests for the origin's robots.txt.
func (o *Origin) Fetches(scheme string) int {
	return len(o.Arrivals(scheme)) - len(o.Pages(scheme))
}

// An APIHost holds the members of an admin API host that the tests check.
type APIHost struct {
	Host             string
	Allowed, Blocked int64
	Origins          []struct {
		Origin, Outcome, SHA256, Text string
		Rules                         int
	}
	Pace *struct {
		Queue       int
		PausedUntil time.Time `json:"paused_until"`
	}
	Causes []struct{ Reason string }
}

// Readyz returns the body of /readyz.
func (p *Proxy) Readyz(t testing.TB) string {
	t.Helper()
	got := Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/readyz")
	if got.Status != http.StatusOK {
		t.Errorf("/readyz answers %d", got.Status)
	}
	return string(got.Body)
}

// Healthy reports whether /healthz answers 200.
func (p *Proxy) Healthy(t *testing.T) bool {
	t.Helper()
	resp, err := http.Get("http://" + p.Admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Metrics scrapes the proxy and returns the value of each series. A key is the series name
// followed by its label values, as in `robotsproxy_decisions_total allow rule`. The value of
// a histogram is its number of observations.
func (p *Proxy) Metrics(t testing.TB) map[string]float64 {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
	got := Get(t, client, "http://"+p.Admin+"/metrics")
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

// AwaitMetric scrapes until a series has the wanted value.
func (p *Proxy) AwaitMetric(t testing.TB, name string, want float64) {
	t.Helper()
	testkit.Eventually(t, name+" is "+strconv.Itoa(int(want)), func() bool { return p.Metrics(t)[name] == want })
}

// Waiting and UnderWay are the series that show how far requests have come.
const (
	Waiting  = "robotsproxy_pace_waiting_requests"
	UnderWay = "robotsproxy_pace_inflight_requests"
)
