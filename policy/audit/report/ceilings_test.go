package report

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// crawl adds records of which each is of another host, client and rule, whose names
// are as long as they are let be.
func crawl(s *Builder, records int) {
	var p tape
	var body []byte
	for i := range records {
		body = fmt.Appendf(body[:0], `{"time":%q,"client":"c%d-%[3]s","host":"h%[2]d-%[3]s","decision":"block","reason":"rule","enforced":true,`+
			`"rule":"/%[2]d-%[3]s","line":%[2]d,"group":"*","robots_sha256":"%064[2]d","x_robots_tag":"noindex","wait_ms":10,"bytes":1`,
			start.Add(time.Duration(i)*time.Second).Format(time.RFC3339), i, padding)
		s.add(p.sealed(body), nil)
	}
}

var padding = strings.Repeat("x", 200)

func TestCeilings(t *testing.T) {
	testkit.Long(t, "volume")
	const records = maxHosts + 500
	s := New(Options{})
	crawl(s, records)
	r := s.Report(start, "")
	for _, c := range []struct {
		name         string
		rows, most   int
		beyond, want int64
	}{
		{"hosts", len(r.Hosts.Rows), maxHosts, r.Hosts.Others.Blocked, 500},
		{"clients", len(r.Clients.Rows), maxClients, r.Clients.Others.Blocked, 500},
		{"rules", len(r.Rules.Rows), maxRules, r.Rules.Others.Blocked, 500},
		{"signals", len(r.Signals.Rows), maxSignals, r.Signals.Others, records - maxSignals},
	} {
		if c.rows != c.most || c.beyond != c.want {
			t.Errorf("%s: %d rows and %d beyond, want %d and %d", c.name, c.rows, c.beyond, c.most, c.want)
		}
	}
	if r.Totals.Blocked != records || r.Hosts.Others.Waited != 0 {
		t.Errorf("totals %+v", r.Totals)
	}
	var text strings.Builder
	if err := r.Text(&text, 20); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{
		"(others) is the sum of 9,980 further rows. (others) includes 500 requests that came when the table was full (10,000 rows).",
		"10,480 further rows or requests are not shown.",
	} {
		if !strings.Contains(text.String(), said) {
			t.Errorf("the text does not say %q", said)
		}
	}
	var page strings.Builder
	if err := r.HTML(&page, 100); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 400<<10 {
		t.Errorf("the page has %d bytes", page.Len())
	}
}

func TestOutagesAndEventsHaveCeilings(t *testing.T) {
	s, p := New(Options{}), tape{}
	for i := range maxOutages + 5 {
		host := record{"host": fmt.Sprintf("%d.test", i%20)}
		s.add(p.line(t, rec(3*i, with(silent, host))), nil)
		s.add(p.line(t, rec(3*i+1, host)), nil)
		s.add(p.line(t, record{"time": at(3*i + 2), "event": "lost", "count": 2}), nil)
	}
	r := s.Report(start, "")
	if len(r.Unreachable.Rows) != maxOutages || r.Unreachable.Others != 5 || len(r.Events.Rows) != maxEvents || r.Events.Others != 5 || r.Source.Lost != 2*(maxOutages+5) {
		t.Errorf("%d and %d times, %d and %d events, %d lost", len(r.Unreachable.Rows), r.Unreachable.Others, len(r.Events.Rows), r.Events.Others, r.Source.Lost)
	}
}

func BenchmarkAdd(b *testing.B) {
	var p tape
	line := p.sealed([]byte(`{"time":"2026-11-21T09:00:00.000000005Z","id":"a1b2c3d4e5f6-1","client":"127.0.0.1","method":"GET",` +
		`"url":"https://site.test/a/page/of/something?q=1&r=2","host":"site.test","user_agent":"Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example)",` +
		`"agent":"FooBot","decision":"allow","reason":"rule","enforced":true,"rule":"/p","line":3,"group":"foobot",` +
		`"robots_url":"https://site.test/robots.txt","robots_fetched":"2026-11-21T08:00:00.000000000Z",` +
		`"robots_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","dialect":"standard",` +
		`"crawl_delay_s":10,"crawl_delay_asked_s":100,"wait_ms":1.5,"status":200,"bytes":12,"duration_ms":2000`))
	b.SetBytes(int64(len(line.Text)))
	b.ReportAllocs()
	s := New(Options{})
	for b.Loop() {
		s.add(line, nil)
	}
}

func BenchmarkHTML(b *testing.B) {
	s := New(Options{})
	crawl(s, 2*maxHosts)
	r := s.Report(start, "")
	b.ReportAllocs()
	for b.Loop() {
		if err := r.HTML(io.Discard, 100); err != nil {
			b.Fatal(err)
		}
	}
}
