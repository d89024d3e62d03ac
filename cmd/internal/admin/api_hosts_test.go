package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

type hostList struct {
	Hosts []hostState
	Total int
	Next  string
}

func hostNames(l hostList) (all []string) {
	for _, h := range l.Hosts {
		all = append(all, h.Host)
	}
	return all
}

func TestHostsJoinSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cacheRobots(t, "https://b.test", "User-agent: *\nDisallow: /\n")
		f.cacheRobots(t, "http://b.test:8080", "")
		for i := range 3 {
			f.record(fmt.Sprintf("%c.test", 'a'+i), "block", "rule", "https://x/", "")
			<-time.After(time.Second)
		}
		f.record("a.test", "allow", "rule", "https://x/", "")
		slot, err := f.pacer.Wait(t.Context(), "lab", pace.Limits{Key: "b.test", PerSecond: 0.1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer slot.Release()

		got := decode[hostList](t, f.do("GET", "/api/v1/hosts", ""), 200)
		if !slices.Equal(hostNames(got), []string{"a.test", "c.test", "b.test"}) || got.Total != 3 || got.Next != "" {
			t.Fatalf("the last one first: %v %+v", hostNames(got), got)
		}
		b := got.Hosts[2]
		if b.Blocked != 1 || b.Pace == nil || b.Pace.UnderWay != 1 || len(b.Origins) != 2 || b.Origins[0].Origin != "http://b.test:8080" || b.Origins[1].Rules != 1 || b.Origins[1].Age != 3 || b.Origins[1].Text != nil {
			t.Errorf("%+v %+v %+v", b, b.Pace, b.Origins)
		}
		if got.Hosts[1].Origins == nil {
			t.Error("no origins are no list")
		}
		for query, want := range map[string][]string{
			"sort=host": {"a.test", "b.test", "c.test"}, "sort=allowed": {"a.test", "b.test", "c.test"}, "sort=blocked": {"a.test", "b.test", "c.test"},
			"q=B": {"b.test"}, "q=nothing": nil, "limit=1": {"a.test"}, "sort=host&after=a.test": {"b.test", "c.test"}, "sort=host&limit=1&after=a.test": {"b.test"},
			"after=c.test": {"b.test"}, "after=b.test": nil, "sort=queue": {"a.test", "b.test", "c.test"}, "sort=paused&q=c": {"c.test"},
		} {
			if got := decode[hostList](t, f.do("GET", "/api/v1/hosts?"+query, ""), 200); !slices.Equal(hostNames(got), want) {
				t.Errorf("%s: %v, want %v", query, hostNames(got), want)
			}
		}
		if got := decode[hostList](t, f.do("GET", "/api/v1/hosts?limit=2", ""), 200); got.Next != "c.test" || got.Total != 3 {
			t.Errorf("%+v", got)
		}
	})
}

type hostDetails struct {
	hostState
	Causes []cause
}

func TestOneHost(t *testing.T) {
	f := newFixture(t)
	decode[problemDetails](t, f.do("GET", "/api/v1/hosts/b.test", ""), 404)
	text := "User-agent: *\nDisallow: /" + hostileText
	f.cacheRobots(t, "https://b.test", text)
	f.cacheRobots(t, "http://b.test:8080", "other")
	f.cacheRobots(t, "https://[2001:db8::1]", "six")
	f.record("b.test", "block", "rule", "https://x/", "")
	got := decode[hostDetails](t, f.do("GET", "/api/v1/hosts/B.test", ""), 200)
	if got.Host != "b.test" || got.Blocked != 1 || len(got.Causes) != 1 || got.Causes[0].Reason != "rule" || len(got.Origins) != 2 {
		t.Fatalf("%+v", got)
	}
	if o := got.Origins[1]; o.Text == nil || *o.Text != strings.ToValidUTF8(text, "\uFFFD") || o.Headers == nil || o.URL != "https://b.test/robots.txt" || o.Status != 200 {
		t.Errorf("%+v", o)
	}
	got = decode[hostDetails](t, f.do("GET", "/api/v1/hosts/b.test?origin=http://b.test:8080", ""), 200)
	if len(got.Origins) != 1 || *got.Origins[0].Text != "other" {
		t.Errorf("%+v", got.Origins)
	}
	for _, host := range []string{"2001:db8::1", "%5B2001:db8::1%5D"} {
		if got := decode[hostDetails](t, f.do("GET", "/api/v1/hosts/"+host, ""), 200); len(got.Origins) != 1 {
			t.Errorf("%s: %+v", host, got)
		}
	}
}

// The response about a host with many origins and long files is bounded.
func TestOneHostIsBounded(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("# a comment\n", 9000)
	for port := range maxOrigins + 10 {
		f.cacheRobots(t, fmt.Sprintf("https://b.test:%d", 1000+port), long)
	}
	w := f.do("GET", "/api/v1/hosts/b.test", "")
	got := decode[hostDetails](t, w, 200)
	texts := 0
	for _, o := range got.Origins {
		if o.Text != nil {
			texts++
		}
	}
	if len(got.Origins) != maxOrigins || got.More != 10 || texts != maxTextBytes/len(long) || w.Body.Len() > 2*maxTextBytes {
		t.Errorf("%d origins, %d more, %d texts, %d bytes", len(got.Origins), got.More, texts, w.Body.Len())
	}
}

// Compiling a file for another dialect takes time and memory, so a list compiles only the
// files that it shows.
func TestHostListCompilesOnlyShownFiles(t *testing.T) {
	for _, target := range []string{"/api/v1/hosts?limit=1", "/hosts"} {
		google, err := robots.DialectByName("google")
		if err != nil {
			t.Fatal(err)
		}
		f := newFixture(t, func(o *Options) { o.Dialect = func() robots.Dialect { return google } })
		for i := range 2 * hostsPerPage {
			f.cacheRobots(t, fmt.Sprintf("https://h%d.test", i), "User-agent: *\n"+strings.Repeat("Disallow: /a/b/c\n", 100))
		}
		before := f.cache.Stats().Bytes
		f.do("GET", target, "")
		part := f.cache.Stats().Bytes - before
		f.do("GET", "/api/v1/hosts?limit=1000", "")
		if all := f.cache.Stats().Bytes - before; part <= 0 || all < 2*part {
			t.Errorf("%s has taken %d bytes, all together %d", target, part, all)
		}
	}
}

// BenchmarkHosts lists 10,000 hosts that the feed, the cache and the pacer all know.
func BenchmarkHosts(b *testing.B) {
	f := newFixture(b)
	limits := pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute}
	for i := range 10_000 {
		host := fmt.Sprintf("h%d.test", i)
		f.cacheRobots(b, "https://"+host, "User-agent: *\nDisallow: /private/\nDisallow: /search\nCrawl-delay: 2\n")
		f.record(host, "allow", "no-rule", "https://x/", "")
		limits.Key = host
		slot, err := f.pacer.Wait(b.Context(), "lab", limits)
		if err != nil {
			b.Fatal(err)
		}
		slot.Release()
	}
	for _, target := range []string{"/api/v1/hosts", "/hosts", "/hosts/h77.test", "/", "/state"} {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := f.do("GET", target, ""); got.Code != 200 {
					b.Fatal(got.Code)
				}
			}
		})
	}
}
