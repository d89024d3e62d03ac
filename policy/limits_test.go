package policy

import (
	"cmp"
	"testing"
	"time"

	"robotsproxy/policy/pace"
)

func TestAdapt(t *testing.T) {
	base := pace.Limits{Key: "a.test", PerSecond: 1, Burst: 2, MaxConcurrent: 3, MaxWait: time.Minute, MaxBackOff: time.Second, MaxQueue: 5, Adapt: true}
	with := func(change func(*pace.Limits)) pace.Limits {
		l := base
		change(&l)
		return l
	}
	host := func(l pace.Limits) *Host { return &Host{Match: "*", Pace: l} }
	own := func(perSecond float64, burst int) *Client {
		return &Client{Pace: pace.Rate{PerSecond: perSecond, Burst: burst}}
	}
	for _, c := range []struct {
		name   string
		host   *Host
		client *Client
		want   pace.Limits
	}{
		{"nothing is different", nil, nil, base},
		{"an entry that names nothing", host(pace.Limits{}), own(0, 0), base},
		{"a host's rate", host(pace.Limits{PerSecond: 5}), nil, with(func(l *pace.Limits) { l.PerSecond = 5 })},
		{"a host's everything", host(pace.Limits{PerSecond: 0.5, Burst: 1, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 8}), nil, with(func(l *pace.Limits) {
			l.PerSecond, l.Burst, l.MaxConcurrent, l.MaxWait, l.MaxBackOff, l.MaxQueue = 0.5, 1, 9, time.Second, 0, 8
		})},
		{"a host's wait is for its back-off too", host(pace.Limits{MaxWait: time.Hour}), nil, with(func(l *pace.Limits) { l.MaxWait, l.MaxBackOff = time.Hour, 0 })},
		{"a faster client", nil, own(4, 0), with(func(l *pace.Limits) { l.PerSecond = 4 })},
		{"a faster client with a burst", nil, own(4, 8), with(func(l *pace.Limits) { l.PerSecond, l.Burst = 4, 8 })},
		{"a faster client with a smaller burst", nil, own(4, 1), with(func(l *pace.Limits) { l.PerSecond, l.Burst = 4, 1 })},
		{"a slower client has a clock of its own", nil, own(0.5, 0), with(func(l *pace.Limits) { l.Client = pace.Rate{PerSecond: 0.5, Burst: 2} })},
		{"a slower client with a burst", nil, own(0.5, 7), with(func(l *pace.Limits) { l.Client = pace.Rate{PerSecond: 0.5, Burst: 7} })},
		{"a client's larger burst alone", nil, own(0, 8), with(func(l *pace.Limits) { l.Burst = 8 })},
		{"a client's smaller burst alone", nil, own(0, 1), with(func(l *pace.Limits) { l.Client = pace.Rate{PerSecond: 1, Burst: 1} })},
		{"as fast as all", nil, own(1, 2), base},
		{"faster than all, but not than the host's entry", host(pace.Limits{PerSecond: 3}), own(4, 8), with(func(l *pace.Limits) { l.PerSecond = 3 })},
		{"faster than the host's entry, with a smaller burst", host(pace.Limits{PerSecond: 3}), own(4, 1), with(func(l *pace.Limits) {
			l.PerSecond, l.Client = 3, pace.Rate{PerSecond: 3, Burst: 1}
		})},
		{"slower than the host's entry, faster than all", host(pace.Limits{PerSecond: 5}), own(4, 0), with(func(l *pace.Limits) {
			l.PerSecond, l.Client = 5, pace.Rate{PerSecond: 4, Burst: 2}
		})},
		{"slower than a slow host's entry", host(pace.Limits{PerSecond: 0.5}), own(0.25, 0), with(func(l *pace.Limits) {
			l.PerSecond, l.Client = 0.5, pace.Rate{PerSecond: 0.25, Burst: 2}
		})},
		{"faster than a slow host's entry", host(pace.Limits{PerSecond: 0.1}), own(4, 0), with(func(l *pace.Limits) { l.PerSecond = 0.1 })},
		{"the host's entry names places alone", host(pace.Limits{MaxConcurrent: 9}), own(4, 8), with(func(l *pace.Limits) { l.MaxConcurrent, l.PerSecond, l.Burst = 9, 4, 8 })},
		{"the host's entry names a burst alone", host(pace.Limits{Burst: 3}), own(4, 8), with(func(l *pace.Limits) { l.PerSecond, l.Burst = 4, 3 })},
		{"and the client a smaller one", host(pace.Limits{Burst: 3}), own(4, 1), with(func(l *pace.Limits) {
			l.PerSecond, l.Burst, l.Client = 4, 3, pace.Rate{PerSecond: 4, Burst: 1}
		})},
		{"and the client a larger one alone", host(pace.Limits{Burst: 3}), own(0, 8), with(func(l *pace.Limits) { l.Burst = 3 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := base
			if applyEntries(&got, cmp.Or(c.host, &noEntry), cmp.Or(c.client, new(Client)), ""); got != c.want {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestAssets: requests that a browser makes by itself (Fetch Standard, 2.2.5).
func TestAssets(t *testing.T) {
	for _, c := range []struct {
		name   string
		dests  []string
		client *Client
		entry  pace.Limits
		delay  time.Duration
		want   int
	}{
		{"parts of a page", []string{"audio", "audioworklet", "font", "image", "json", "manifest", "paintworklet", "script", "sharedworker", "style", "track", "video", "worker", "xslt"}, &Client{AssetBurst: 20}, pace.Limits{}, 0, 20},
		{"no parts of a page", []string{"", "document", "iframe", "frame", "embed", "object", "empty", "report", "Image", "image ", "serviceworker", "webidentity"}, &Client{AssetBurst: 20}, pace.Limits{}, 0, 0},
		{"under a Crawl-delay", []string{"image"}, &Client{AssetBurst: 20}, pace.Limits{}, time.Second, 0},
		{"not for this client", []string{"image"}, &Client{}, pace.Limits{}, 0, 0},
		{"nor for a stranger", []string{"image"}, nil, pace.Limits{}, 0, 0},
		{"a slower client's", []string{"image"}, &Client{AssetBurst: 20, Pace: pace.Rate{PerSecond: 0.1}}, pace.Limits{}, 0, 20},
		{"where an entry names places alone", []string{"image"}, &Client{AssetBurst: 20}, pace.Limits{MaxConcurrent: 4}, 0, 20},
		{"not beyond the rate of an entry", []string{"image"}, &Client{AssetBurst: 20}, pace.Limits{PerSecond: 2}, 0, 0},
		{"nor its burst", []string{"image"}, &Client{AssetBurst: 20}, pace.Limits{Burst: 2}, 0, 0},
	} {
		for _, dest := range c.dests {
			l := pace.Limits{PerSecond: 1, Burst: 1}
			applyEntries(&l, &Host{Pace: c.entry}, cmp.Or(c.client, new(Client)), dest)
			if setCrawlDelay(&l, c.delay); l.AssetBurst != c.want || l.CrawlDelay != c.delay {
				t.Errorf("%s: %q: a burst of %d, want %d; a delay of %s", c.name, dest, l.AssetBurst, c.want, l.CrawlDelay)
			}
		}
	}
}

// TestRegistrable: the public suffix list, both parts of it.
func TestRegistrable(t *testing.T) {
	for host, want := range map[string]string{
		"example.com": "example.com", "www.example.com": "example.com", "a.b.example.co.uk": "example.co.uk",
		"com": "com", "co.uk": "co.uk", "localhost": "localhost", "a.b.test": "b.test",
		"one.github.io": "one.github.io", "www.one.github.io": "one.github.io", "github.io": "github.io",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "www.xn--85x722f.com.cn": "xn--85x722f.com.cn",
		"192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1", "1.2.3.4a": "3.4a",
	} {
		if got := registeredDomain(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
