package daemon

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/proxy/egress/dnstest"
	"robotsproxy/proxy/mitm"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// A reloadCase is a key that is reloaded: what is seen of it before and after.
type reloadCase struct {
	from, to keys
	see      func(*standing) string
	want     [2]string
}

// keyAlone returns a case that changes one key.
func keyAlone(key string, from, to any, see func(*standing) string, before, after string) reloadCase {
	return reloadCase{keys{key: from}, keys{key: to}, see, [2]string{before, after}}
}

type item = map[string]any

// inEntry is a case of a key in the only entry of a list.
func inEntry(list string, rest item, key string, from, to any, see func(*standing) string, before, after string) reloadCase {
	with := func(value any) keys {
		e := item{}
		for k, v := range rest {
			e[k] = v
		}
		section, leaf, nested := strings.Cut(key, ".")
		if nested {
			e[section] = item{leaf: value}
		} else {
			e[key] = value
		}
		return keys{list: []any{e}}
	}
	return reloadCase{with(from), with(to), see, [2]string{before, after}}
}

func statusFor(path string) func(*standing) string {
	return func(s *standing) string { n, _ := s.get(s.origin.URL+path, nil); return fmt.Sprint(n) }
}

func body(s *standing) string { _, text := s.get(s.origin.URL+"/page", nil); return text }

// decided sees a part of what would be decided of a request.
func decided(q policy.Request, part func(policy.Decision) any) func(*standing) string {
	return func(s *standing) string { return fmt.Sprint(part(s.decide(q))) }
}

func inForce(part func(*generation) any) func(*standing) string {
	return func(s *standing) string { return fmt.Sprint(part(s.daemon.Active.Load())) }
}

// coolDownOf sees a part of the cool-down of the first entry of hosts.
func coolDownOf(part func(*policy.CoolDown) any) func(*standing) string {
	return inForce(func(f *generation) any { return part(f.rules.Engine.Entries()[0].CoolDown) })
}

// ofForbidden is what status 403 for a robots.txt means.
func ofForbidden(s *standing) string {
	forbidding := fetcherOf(fetch.Result{Status: http.StatusForbidden, Connected: true, MaxAge: -1})
	c, err := cache.New(cache.Options{Fetcher: forbidding})
	testkit.Must(s.t, err)
	e, err := c.Lookup(s.t.Context(), cache.Query{Origin: www}, robots.Standard())
	testkit.Must(s.t, err)
	return s.daemon.Active.Load().rules.Engine.RulingOf(e, robots.Standard()).Meaning.String()
}

// fetcherOf is a Fetcher of one result.
type fetcherOf fetch.Result

func (f fetcherOf) Fetch(context.Context, fetch.Request) *fetch.Result {
	r := fetch.Result(f)
	r.Fetched = time.Now()
	return &r
}

// checkpoints is how checkpoints are made.
func checkpoints(s *standing) string {
	c := s.daemon.checkpointSettings(s.daemon.Active.Load().Cfg)
	return fmt.Sprint(c.Keys.Path, " ", c.Origin, " ", c.Every, " ", c.Lines, " ", c.File)
}

// memoryBounds are the memory budget and the parts of the two caches of files.
func memoryBounds(s *standing) string {
	f := s.daemon.Active.Load()
	return fmt.Sprintf("%d MiB, caches %d and %d", s.daemon.memory.Stats().Limit>>20, f.cache.MaxBytes>>20, f.tdmrepOptions.MaxBytes>>20)
}

// freshFor is how long the origin's robots.txt is used.
func freshFor(s *standing) string {
	ruling := s.decide(policy.Request{}).Ruling
	o, _ := robots.ParseOrigin("http", strings.TrimPrefix(s.origin.URL, "http://"))
	return s.daemon.robotsCache.Peek(o).Expires().Sub(ruling.Fetched()).Round(time.Second).String()
}

// refused sees a member of the record of a request that is.
func refused(member string) func(*standing) string {
	return func(s *standing) string {
		s.get(s.origin.URL+"/private?q=1", nil)
		return s.lastLine(member)
	}
}

func decisions(s *standing) string {
	size := func() int64 { info, _ := os.Stat(s.daemon.AuditFile()); return info.Size() }
	before := size()
	for _, path := range []string{"/page", "/private"} {
		s.get(s.origin.URL+path, nil)
		s.settle()
	}
	text, err := os.ReadFile(s.daemon.AuditFile())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`"decision":"\w+"`).FindAllString(string(text[before:]), -1), " ")
}

// settle waits until each request is counted and has its record, which comes after the answer if the request was allowed.
func (s *standing) settle() {
	s.t.Helper()
	testkit.Eventually(s.t, "the records are written", func() bool {
		return s.daemon.handler.Stats().Requests.Open == 0 && s.daemon.evidence.Stats().Waiting == 0
	})
}

// twice sees the statuses of two requests for the same page.
func twice(s *standing) string {
	// A quota is of a day.
	testkit.AwayFromMidnight()
	first := statusFor("/page")(s)
	s.settle()
	return first + " " + statusFor("/page")(s)
}

var (
	www, _   = robots.ParseOrigin("http", "www.example.com")
	wwwPace  = keys{"hosts": []any{item{"match": "*.example.com", "robots": "ignore", "reason": "ours"}}}
	pacedAs  = decided(policy.Request{Target: robots.Target{Origin: www}}, func(d policy.Decision) any { return d.Pace.Key })
	foo      = policy.Request{UserAgent: "FooBot/1.0"}
	lab      = policy.Request{Client: "lab-a", UserAgent: "FooBot/1.0", Dest: "image"}
	loopback = []string{"127.0.0.0/8"}
	labA     = item{"name": "lab-a", "networks": loopback}
	anyHost  = item{"match": "*"}
	// otherDay is far from today in each direction.
	otherDay   = time.Now().UTC().AddDate(0, 0, 3).Format("Mon")
	closedHost = item{"match": "127.0.0.1", "robots": "deny", "reason": "closed"}
)

// reloadable are the keys that are reloaded; reloadedWithFiles adds to them.
var reloadable = map[string]reloadCase{
	"open":                          {keys{"open": false, "clients": []any{item{"name": "far", "networks": []string{"192.0.2.0/24"}}}}, keys{"open": true}, statusFor("/page"), [2]string{"403", "200"}},
	"limits.connections":            keyAlone("limits.connections", 10, 20, inForce(func(f *generation) any { return f.rules.MaxConns }), "10", "20"),
	"limits.url":                    keyAlone("limits.url", "8KiB", "1KiB", statusFor("/page?"+strings.Repeat("q", 2000)), "200", "414"),
	"limits.connections_per_client": keyAlone("limits.connections_per_client", 10, 20, inForce(func(f *generation) any { return f.rules.MaxConnsPerClient }), "10", "20"),
	"limits.memory":                 {keys{"limits.memory": "1GiB", "usage.tdmrep": true}, keys{"limits.memory": "128MiB"}, memoryBounds, [2]string{"1024 MiB, caches 64 and 16", "128 MiB, caches 32 and 8"}},
	"drain":                         keyAlone("drain", "0s", "30s", inForce(func(f *generation) any { return f.Cfg.Drain }), "0s", "30s"),
	"mode":                          keyAlone("mode", "enforce", "monitor", statusFor("/private"), "403", "200"),

	"robots.readings":          keyAlone("robots.readings", "all", "literal", statusFor("//private"), "403", "200"),
	"robots.forbidden":         keyAlone("robots.forbidden", "allow", "refuse", ofForbidden, "no file", "unreachable"),
	"robots.dialect":           keyAlone("robots.dialect", "standard", "google", decided(foo, func(d policy.Decision) any { return d.Dialect }), "standard", "google"),
	"robots.fetch_as":          keyAlone("robots.fetch_as", "auto", "client", inForce(func(f *generation) any { return f.rules.Engine.Query(foo).Token }), "", "FooBot"),
	"robots.max_age":           keyAlone("robots.max_age", "24h", "1h", freshFor, "24h0m0s", "1h0m0s"),
	"robots.min_age":           {keys{"robots.max_age": "2h", "robots.min_age": "1m"}, keys{"robots.min_age": "2h"}, inForce(func(f *generation) any { return f.cache.MinAge }), [2]string{"1m0s", "2h0m0s"}},
	"robots.fetch_timeout":     keyAlone("robots.fetch_timeout", "20s", "5s", inForce(func(f *generation) any { return f.cache.FetchTimeout }), "20s", "5s"),
	"robots.max_crawl_delay":   keyAlone("robots.max_crawl_delay", "10s", "20s", decided(foo, func(d policy.Decision) any { return d.Pace.CrawlDelay }), "10s", "20s"),
	"robots.over_max":          keyAlone("robots.over_max", "clamp", "refuse", decided(foo, func(d policy.Decision) any { return d.Reason }), "no-rule", "crawl-delay"),
	"robots.unreachable_retry": keyAlone("robots.unreachable_retry", "30s", "10m", retryOf, "30s", "10m0s"),

	"usage.purposes":      keyAlone("usage.purposes", []string{}, []string{"tdm"}, decided(foo, func(d policy.Decision) any { return d.Usage.Purposes }), "", "tdm"),
	"usage.on_disallowed": {keys{"usage.purposes": []string{"tdm"}, "usage.on_disallowed": "record"}, keys{"usage.on_disallowed": "refuse"}, decided(foo, func(d policy.Decision) any { return d.Usage.Refuse }), [2]string{"false", "true"}},
	"usage.on_unknown":    {keys{"usage.purposes": []string{"tdm"}, "usage.on_disallowed": "refuse"}, keys{"usage.on_unknown": "refuse"}, decided(foo, func(d policy.Decision) any { return d.Reason }), [2]string{"no-rule", "usage"}},
	"usage.tdmrep":        keyAlone("usage.tdmrep", false, true, func(s *standing) string { return tdmrepOf(s.t, s.daemon, s.origin) }, "not read", "unreachable"),

	"identity.product_token": keyAlone("identity.product_token", "", "OtherBot", decided(foo, func(d policy.Decision) any { return d.Token }), "FooBot", "OtherBot"),
	"identity.user_agent":    keyAlone("identity.user_agent", "First/1", "Second/1", body, "as First/1 from ", "as Second/1 from "),
	"identity.from":          keyAlone("identity.from", "a@foo.example", "b@foo.example", body, "as Go-http-client/1.1 from a@foo.example", "as Go-http-client/1.1 from b@foo.example"),
	"identity.require":       keyAlone("identity.require", "none", "contact", decided(foo, func(d policy.Decision) any { return d.Reason }), "no-rule", "identity"),

	"pace.requests_per_second": keyAlone("pace.requests_per_second", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.PerSecond }), "1", "2"),
	"pace.burst":               keyAlone("pace.burst", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.Burst }), "1", "2"),
	"pace.max_concurrent":      keyAlone("pace.max_concurrent", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.MaxConcurrent }), "1", "2"),
	"pace.per":                 {wwwPace.with(keys{"pace.per": "host"}), wwwPace.with(keys{"pace.per": "domain"}), pacedAs, [2]string{"www.example.com", "example.com"}},
	"pace.max_wait":            keyAlone("pace.max_wait", "1s", "2s", decided(foo, func(d policy.Decision) any { return d.Pace.MaxWait }), "1s", "2s"),
	"pace.max_queue":           keyAlone("pace.max_queue", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.MaxQueue }), "1", "2"),
	"pace.back_off":            keyAlone("pace.back_off", true, false, inForce(func(f *generation) any { return f.rules.BackOff }), "true", "false"),
	"pace.adaptive":            keyAlone("pace.adaptive", true, false, decided(foo, func(d policy.Decision) any { return d.Pace.Adapt }), "true", "false"),

	"hosts[].match":                    inEntry("hosts", closedHost, "match", "example.com", "127.0.0.1", statusFor("/page"), "200", "403"),
	"hosts[].paths":                    inEntry("hosts", closedHost, "paths", []string{"/other"}, []string{"/other", "/pa*e$"}, statusFor("/page"), "200", "403"),
	"hosts[].hours":                    inEntry("hosts", anyHost, "hours", []string{"00:00-24:00"}, []string{otherDay}, statusFor("/page"), "200", "429"),
	"hosts[].robots":                   inEntry("hosts", closedHost, "robots", "enforce", "deny", statusFor("/page"), "200", "403"),
	"hosts[].reason":                   inEntry("hosts", closedHost, "reason", "one", "two", decided(foo, func(d policy.Decision) any { return d.EntryReason }), "one", "two"),
	"hosts[].until":                    inEntry("hosts", closedHost, "until", "2020-01-01", "2999-01-01", statusFor("/page"), "200", "403"),
	"hosts[].cool_down.after":          inEntry("hosts", anyHost, "cool_down.after", 1, 2, coolDownOf(func(c *policy.CoolDown) any { return c.After }), "1", "2"),
	"hosts[].cool_down.within":         inEntry("hosts", anyHost, "cool_down.within", "1s", "2s", coolDownOf(func(c *policy.CoolDown) any { return c.Within }), "1s", "2s"),
	"hosts[].cool_down.statuses":       inEntry("hosts", anyHost, "cool_down.statuses", []int{403}, []int{404, 451}, coolDownOf(func(c *policy.CoolDown) any { return c.Statuses }), "[403]", "[404 451]"),
	"hosts[].cool_down.pause":          inEntry("hosts", anyHost, "cool_down.pause", "1s", "2s", coolDownOf(func(c *policy.CoolDown) any { return c.Pause }), "1s", "2s"),
	"hosts[].pace.requests_per_second": inEntry("hosts", anyHost, "pace.requests_per_second", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.PerSecond }), "1", "2"),
	"hosts[].pace.burst":               inEntry("hosts", anyHost, "pace.burst", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.Burst }), "1", "2"),
	"hosts[].pace.max_concurrent":      inEntry("hosts", anyHost, "pace.max_concurrent", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.MaxConcurrent }), "1", "2"),
	"hosts[].pace.max_wait":            inEntry("hosts", anyHost, "pace.max_wait", "1s", "2s", decided(foo, func(d policy.Decision) any { return d.Pace.MaxWait }), "1s", "2s"),
	"hosts[].readings":                 inEntry("hosts", anyHost, "readings", "", "literal", statusFor("//private"), "403", "200"),
	"hosts[].forbidden":                inEntry("hosts", anyHost, "forbidden", "", "refuse", ofForbidden, "no file", "unreachable"),
	"hosts[].usage":                    {keys{"usage.on_disallowed": "refuse", "hosts": []any{item{"match": "*"}}}, keys{"hosts": []any{item{"match": "*", "usage": "ignore", "reason": "contract"}}}, decided(foo, func(d policy.Decision) any { return d.Usage.Refuse }), [2]string{"true", "false"}},
	"hosts[].pace.max_queue":           inEntry("hosts", anyHost, "pace.max_queue", 1, 2, decided(foo, func(d policy.Decision) any { return d.Pace.MaxQueue }), "1", "2"),
	"hosts[].budget.requests":          inEntry("hosts", anyHost, "budget", item{"requests": 2, "per": "1h"}, item{"requests": 9, "per": "1h"}, twice, "200 429", "200 200"),
	"hosts[].budget.bytes":             inEntry("hosts", anyHost, "budget", item{"bytes": "1MiB", "per": "1h"}, item{"bytes": "1B", "per": "1h"}, twice, "200 200", "429 429"),
	"hosts[].budget.per": inEntry("hosts", anyHost, "budget", item{"requests": 2, "per": "1h"}, item{"requests": 2, "per": "2h"},
		inForce(func(f *generation) any { return f.rules.Engine.Budgets("a.test")[0].Budget.Per }), "1h0m0s", "2h0m0s"),

	"clients[].name":                     inEntry("clients", labA, "name", "lab-a", "lab-b", refused("client"), "lab-a", "lab-b"),
	"clients[].networks":                 inEntry("clients", labA, "networks", loopback, []string{"192.0.2.0/24"}, statusFor("/page"), "200", "403"),
	"clients[].robots.dialect":           inEntry("clients", labA, "robots.dialect", "standard", "google", decided(lab, func(d policy.Decision) any { return d.Dialect }), "standard", "google"),
	"clients[].usage.purposes":           inEntry("clients", labA, "usage.purposes", []string{"tdm"}, []string{"search"}, decided(lab, func(d policy.Decision) any { return d.Usage.Purposes }), "tdm", "search"),
	"clients[].identity.product_token":   inEntry("clients", labA, "identity.product_token", "OneBot", "TwoBot", decided(lab, func(d policy.Decision) any { return d.Token }), "OneBot", "TwoBot"),
	"clients[].pace.requests_per_second": inEntry("clients", labA, "pace.requests_per_second", 1, 2, decided(lab, func(d policy.Decision) any { return d.Pace.Client.PerSecond }), "1", "2"),
	"clients[].pace.burst":               inEntry("clients", labA, "pace.burst", 1, 2, decided(lab, func(d policy.Decision) any { return d.Pace.Client.Burst }), "1", "2"),
	"clients[].pace.asset_burst": inEntry("clients", labA, "pace.asset_burst", 1, 2,
		decided(policy.Request{Client: "lab-a", Dest: "image"}, func(d policy.Decision) any { return d.Pace.AssetBurst }), "1", "2"),
	"clients[].quota.requests_per_day": inEntry("clients", labA, "quota.requests_per_day", 1, 3, twice, "200 429", "200 200"),
	"clients[].quota.bytes_per_day":    inEntry("clients", labA, "quota.bytes_per_day", "1B", "1MiB", twice, "200 429", "200 200"),

	"tls.intercept": keyAlone("tls.intercept", true, false, inForce(func(f *generation) any { return f.rules.PassThrough("a.test") }), "false", "true"),
	"tls.tunnel":    keyAlone("tls.tunnel", []string{}, []string{"*.test"}, inForce(func(f *generation) any { return f.rules.PassThrough("a.test") }), "false", "true"),

	"egress.allow_private": keyAlone("egress.allow_private", []string{}, loopback, statusFor("/page"), "403", "200"),
	"egress.ports":         keyAlone("egress.ports", []int{1}, []string{"1-65535"}, statusFor("/page"), "403", "200"),

	"audit.include":           keyAlone("audit.include", "all", "blocked", decisions, `"decision":"allow" "decision":"block"`, `"decision":"block"`),
	"audit.query_strings":     {keys{"audit.query_strings": "keep"}, keys{"audit.query_strings": "drop"}, func(s *standing) string { return fmt.Sprint(strings.Contains(refused("url")(s), "?q=1")) }, [2]string{"true", "false"}},
	"audit.max_size":          keyAlone("audit.max_size", "64KiB", "1MiB", inForce(func(f *generation) any { return f.audit.MaxSize }), "65536", "1048576"),
	"audit.max_age":           keyAlone("audit.max_age", "1h", "2h", inForce(func(f *generation) any { return f.audit.MaxAge }), "1h0m0s", "2h0m0s"),
	"audit.max_total_size":    keyAlone("audit.max_total_size", "0", "1GiB", inForce(func(f *generation) any { return f.audit.MaxTotal }), "0", "1073741824"),
	"audit.max_files":         keyAlone("audit.max_files", 1, 2, inForce(func(f *generation) any { return f.audit.MaxFiles }), "1", "2"),
	"audit.on_error":          keyAlone("audit.on_error", "refuse", "continue", inForce(func(f *generation) any { return f.audit.Continue }), "false", "true"),
	"audit.sync":              keyAlone("audit.sync", "none", "always", inForce(func(f *generation) any { return fmt.Sprint(f.audit.Sync, f.snapshots.NoSync) }), "1 true", "2 false"),
	"audit.clients":           keyAlone("audit.clients", "name", "drop", refused("client"), "127.0.0.1", "<nil>"),
	"audit.digests":           keyAlone("audit.digests", false, true, inForce(func(f *generation) any { return f.rules.Digests }), "false", "true"),
	"audit.checkpoint.key":    keyAlone("audit.checkpoint", item{"key": "/nowhere/a"}, item{"key": "/nowhere/b"}, checkpoints, "/nowhere/a  1h0m0s 10000 ", "/nowhere/b  1h0m0s 10000 "),
	"audit.checkpoint.origin": keyAlone("audit.checkpoint", item{"key": "/nowhere", "origin": "a"}, item{"key": "/nowhere", "origin": "b"}, checkpoints, "/nowhere a 1h0m0s 10000 ", "/nowhere b 1h0m0s 10000 "),
	"audit.checkpoint.every":  keyAlone("audit.checkpoint", item{"key": "/nowhere", "every": "1h"}, item{"key": "/nowhere", "every": "2h"}, checkpoints, "/nowhere  1h0m0s 10000 ", "/nowhere  2h0m0s 10000 "),
	"audit.checkpoint.lines":  keyAlone("audit.checkpoint", item{"key": "/nowhere", "lines": 1}, item{"key": "/nowhere", "lines": 2}, checkpoints, "/nowhere  1h0m0s 1 ", "/nowhere  1h0m0s 2 "),
	"audit.checkpoint.file":   keyAlone("audit.checkpoint", item{"key": "/nowhere", "file": "/nowhere/a"}, item{"key": "/nowhere", "file": "/nowhere/b"}, checkpoints, "/nowhere  1h0m0s 10000 /nowhere/a", "/nowhere  1h0m0s 10000 /nowhere/b"),
	"audit.anchor.every":      keyAlone("audit.anchor", item{"every": "1h"}, item{"every": "2h"}, inForce(func(f *generation) any { return f.Cfg.Audit.Anchor.Every }), "1h0m0s", "2h0m0s"),
	"audit.anchor.file":       keyAlone("audit.anchor", item{"file": "/nowhere/a"}, item{"file": "/nowhere/b"}, inForce(func(f *generation) any { return f.Cfg.Audit.Anchor.File }), "/nowhere/a", "/nowhere/b"),
	"audit.anchor.tsa":        keyAlone("audit.anchor", item{"tsa": "http://127.0.0.1:9/a"}, item{"tsa": "http://127.0.0.1:9/b"}, inForce(func(f *generation) any { return f.Cfg.Audit.Anchor.TSA }), "http://127.0.0.1:9/a", "http://127.0.0.1:9/b"),
	"audit.snapshot_max_age":  keyAlone("audit.snapshot_max_age", "1h", "2h", inForce(func(f *generation) any { return f.snapshots.MaxAge }), "1h0m0s", "2h0m0s"),
	"audit.snapshot_max_size": keyAlone("audit.snapshot_max_size", "1MiB", "2MiB", inForce(func(f *generation) any { return f.snapshots.MaxSize }), "1048576", "2097152"),

	"archive.max_file":       keyAlone("archive.max_file", "64KiB", "1MiB", inForce(func(f *generation) any { return f.archive.MaxFile }), "65536", "1048576"),
	"archive.max_body":       keyAlone("archive.max_body", "64KiB", "1MiB", inForce(func(f *generation) any { return f.archive.MaxBody }), "65536", "1048576"),
	"archive.prefix":         keyAlone("archive.prefix", "a", "b", inForce(func(f *generation) any { return f.archive.Prefix }), "a", "b"),
	"archive.include":        keyAlone("archive.include", "all", "2xx", inForce(func(f *generation) any { return f.archive.Only2xx }), "false", "true"),
	"archive.compress":       keyAlone("archive.compress", "gzip", "none", inForce(func(f *generation) any { return f.archive.Compress }), "true", "false"),
	"archive.dedup":          keyAlone("archive.dedup", true, false, inForce(func(f *generation) any { return f.archive.Dedup }), "true", "false"),
	"archive.max_age":        keyAlone("archive.max_age", "1h", "2h", inForce(func(f *generation) any { return f.archive.MaxAge }), "1h0m0s", "2h0m0s"),
	"archive.max_total_size": keyAlone("archive.max_total_size", "0", "1GiB", inForce(func(f *generation) any { return f.archive.MaxTotal }), "0", "1073741824"),
	"egress.tls_min":         keyAlone("egress.tls_min", "1.2", "1.0", inForce(func(f *generation) any { return f.egress.TLSMin }), "0", "769"),
	"egress.via":             keyAlone("egress.via", true, false, inForce(func(f *generation) any { return f.rules.NoVia }), "false", "true"),
	"archive.on_error":       keyAlone("archive.on_error", "refuse", "continue", inForce(func(f *generation) any { return f.archive.Continue }), "false", "true"),
	"archive.secrets":        keyAlone("archive.secrets", "drop", "keep", inForce(func(f *generation) any { return f.archive.KeepSecrets }), "false", "true"),

	"runs.max_age":    keyAlone("runs.max_age", "1h", "2h", inForce(func(f *generation) any { return f.Cfg.Runs.MaxAge }), "1h0m0s", "2h0m0s"),
	"runs.max_number": keyAlone("runs.max_number", 1, 2, inForce(func(f *generation) any { return f.Cfg.Runs.MaxNumber }), "1", "2"),

	"admin.url":   keyAlone("admin.url", "http://a/", "http://b/", func(s *standing) string { return s.daemon.member().Dashboard }, "http://a/", "http://b/"),
	"admin.token": keyAlone("admin.token", "0123456789abcdef", "fedcba9876543210", func(s *standing) string { return s.daemon.token() }, "0123456789abcdef", "fedcba9876543210"),
	"log.level":   keyAlone("log.level", "warn", "debug", func(s *standing) string { return fmt.Sprint(s.daemon.log.Enabled(s.t.Context(), -4)) }, "false", "true"),
}

// reloadedWithFiles are the keys that name files, an upstream proxy or a DNS server, or need a password's hash.
func reloadedWithFiles(t *testing.T) map[string]reloadCase {
	ownCA, ownTLS := twoCAs(t, "tls.ca_cert", "tls.ca_key"), twoCAs(t, "listen_tls.cert", "listen_tls.key")
	ownCA.see = func(s *standing) string { return string(s.daemon.CAPEM()) }
	ownTLS.see = peerPEM
	login := func(s *standing) string {
		n, _ := s.get(s.origin.URL+"/page", url.UserPassword("lab-a", "first"))
		return fmt.Sprint(n)
	}
	parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path != "/robots.txt" {
			fmt.Fprint(w, "by the parent")
		}
	}))
	t.Cleanup(parent.Close)
	all := map[string]reloadCase{
		"listen_tls.cert":              ownTLS,
		"listen_tls.key":               ownTLS,
		"clients[].password_hash":      inEntry("clients", item{"name": "lab-a"}, "password_hash", hashOf(t, "first"), hashOf(t, "second"), login, "200", "407"),
		"clients[].password_hash_next": inEntry("clients", item{"name": "lab-a", "password_hash": hashOf(t, "other")}, "password_hash_next", hashOf(t, "first"), hashOf(t, "second"), login, "200", "407"),
		"clients[].labels": inEntry("clients", item{"name": "lab-a", "networks": []string{"127.0.0.0/8"}}, "labels", []string{"a=1"}, []string{"a=2"}, func(s *standing) string {
			all, _ := s.daemon.Active.Load().rules.Engine.Labels("lab-a")
			return string(all)
		}, "a=1", "a=2"),
		"tls.ca_cert":     ownCA,
		"tls.ca_key":      ownCA,
		"tls.ca_next":     nextCAs(t),
		"egress.resolver": anotherResolver(t),
		"egress.parent":   keyAlone("egress.parent", "", parent.URL, body, "as Go-http-client/1.1 from ", "by the parent"),
		"hosts[].parent":  inEntry("hosts", anyHost, "parent", "direct", parent.URL, body, "as Go-http-client/1.1 from ", "by the parent"),
		"egress.extra_ca": anotherRoot(t),
	}
	maps.Copy(all, signingKeys(t))
	return all
}

// signingKeys are the cases of identity.sign, and of that of a client.
func signingKeys(t *testing.T) map[string]reloadCase {
	var files, ids []string
	for range 3 {
		file, id := newSigningKey(t)
		files, ids = append(files, file), append(ids, id)
	}
	const agent = "https://bot.example/keys"
	sign := func(key, next, agent string) item { return item{"key": key, "key_next": next, "agent": agent} }
	with := func(name string, value any) item {
		s := sign(files[0], "", agent)
		s[name] = value
		return s
	}
	all := map[string]reloadCase{
		"identity.sign.plain_http": keyAlone("identity.sign", with("plain_http", false), with("plain_http", true), inForce(func(f *generation) any { return f.rules.Signers.PlainHTTP }), "false", "true"),
		"identity.sign.valid":      keyAlone("identity.sign", with("valid", "1m"), with("valid", "2m"), inForce(func(f *generation) any { return signedFor(t, f.rules.Signers.Default) }), "1m0s", "2m0s"),
	}
	keys, urls := inForce(func(f *generation) any { return keyIDs(f.agents) }), inForce(func(f *generation) any { return f.agents[0].URL })
	for _, c := range []struct {
		name          string
		from, to      item
		see           func(*standing) string
		before, after string
	}{
		{"key", sign(files[0], "", agent), sign(files[1], "", agent), keys, ids[0], ids[1]},
		{"key_next", sign(files[0], files[1], agent), sign(files[0], files[2], agent), keys, ids[0] + " " + ids[1], ids[0] + " " + ids[2]},
		{"agent", sign(files[0], "", agent), sign(files[0], "", "https://other.example"), urls, agent, "https://other.example"},
	} {
		all["identity.sign."+c.name] = keyAlone("identity.sign", c.from, c.to, c.see, c.before, c.after)
		all["clients[].identity.sign."+c.name] = inEntry("clients", labA, "identity", item{"sign": c.from}, item{"sign": c.to}, c.see, c.before, c.after)
	}
	return all
}

// newSigningKey writes a new key to a file.
func newSigningKey(t *testing.T) (file, id string) {
	t.Helper()
	key := signature.NewKey()
	file = filepath.Join(t.TempDir(), "bot.pem")
	testkit.Must(t, os.WriteFile(file, key.PEM(), 0o600))
	return file, key.ID()
}

// signedFor returns how long a signature is valid.
func signedFor(t *testing.T, by *signature.Signer) time.Duration {
	r := httptest.NewRequest(http.MethodGet, "https://site.test/", nil)
	testkit.Must(t, by.Sign(r))
	var created, expires int64
	for _, param := range strings.Split(r.Header.Get("Signature-Input"), ";") {
		fmt.Sscanf(param, "created=%d", &created)
		fmt.Sscanf(param, "expires=%d", &expires)
	}
	return time.Duration(expires-created) * time.Second
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	testkit.Must(t, err)
	return string(h)
}

// twoCAs is a case of a certificate and its key: those of one CA, then those of another. What is seen
// is the certificate.
func twoCAs(t *testing.T, cert, key string) (c reloadCase) {
	t.Helper()
	for i, values := range []*keys{&c.from, &c.to} {
		dir := t.TempDir()
		_, err := mitm.LoadOrCreate(dir)
		testkit.Must(t, err)
		*values = keys{cert: filepath.Join(dir, "ca.pem"), key: filepath.Join(dir, "ca.key")}
		text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		testkit.Must(t, err)
		c.want[i] = string(text)
	}
	return c
}

// nextCAs is a case without a next CA, then with one.
func nextCAs(t *testing.T) (c reloadCase) {
	t.Helper()
	dir := t.TempDir()
	_, err := mitm.LoadOrCreate(dir)
	testkit.Must(t, err)
	c.to = keys{"tls.ca_next": filepath.Join(dir, "ca.pem")}
	c.see = func(s *standing) string { return fmt.Sprint(strings.Count(string(s.daemon.CAPEM()), "BEGIN")) }
	c.want = [2]string{"1", "2"}
	return c
}

// anotherResolver is a case of two DNS servers; only the second knows the name of the origin.
func anotherResolver(t *testing.T) reloadCase {
	t.Helper()
	nobody, err := dnstest.Start(nil)
	testkit.Must(t, err)
	t.Cleanup(nobody.Close)
	names, err := dnstest.Start(map[string][][]string{"site.test.": {{"127.0.0.1"}}})
	testkit.Must(t, err)
	t.Cleanup(names.Close)
	byName := func(s *standing) string {
		_, port, _ := strings.Cut(strings.TrimPrefix(s.origin.URL, "http://"), ":")
		n, _ := s.get("http://site.test:"+port+"/page", nil)
		return fmt.Sprint(n)
	}
	return keyAlone("egress.resolver", nobody.Addr(), names.Addr(), byName, "502", "200")
}

// anotherRoot is a case of an origin whose certificate the system does not trust.
func anotherRoot(t *testing.T) reloadCase {
	t.Helper()
	secure := httptest.NewUnstartedServer(newSite(t, siteRobots))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // for clients that do not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	file := filepath.Join(t.TempDir(), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	testkit.Must(t, os.WriteFile(file, text, 0o600))
	verified := func(s *standing) string {
		at, _ := robots.ParseOrigin("https", strings.TrimPrefix(secure.URL, "https://"))
		return string(s.decide(policy.Request{Target: robots.Target{Origin: at}}).Reason)
	}
	return keyAlone("egress.extra_ca", "", file, verified, "origin", "no-rule")
}

// retryOf is how long an origin is left alone that fails from now on.
func retryOf(s *standing) string {
	s.origin.robots = ""
	r := s.decide(policy.Request{}).Ruling
	return r.Retry.Sub(r.Result.Fetched).Round(time.Second).String()
}

// peerPEM is what the proxy's own port shows.
func peerPEM(s *standing) string {
	c, err := tls.Dial("tcp", s.daemon.Addr(), &tls.Config{InsecureSkipVerify: true}) // what is shown is looked at, not trusted
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ConnectionState().PeerCertificates[0].Raw}))
}

// needRestart are the keys that only another process can go by, and other values of them.
var needRestart = map[string]any{
	"listen": "127.0.0.1:1", "listen_transparent": "127.0.0.1:2", "state_dir": "/elsewhere", "audit.file": "/elsewhere", "audit.fifo": true, "admin.listen": "127.0.0.1:1", "admin.metrics_listen": "127.0.0.1:3", "log.format": "json", "archive.dir": "/elsewhere",
	"store.redis": "redis://:s3cret@127.0.0.1:1", "store.replicas": 2, "store.replica": "other",
}

// besides returns the other keys that such a value needs.
var besides = map[string]keys{"store.replicas": {"store.redis": "redis://127.0.0.1:1"}}

// keysOf are all keys of a section, entries of lists as [].
func keysOf(section reflect.Type, path string) (all []string) {
	for i := range section.NumField() {
		f := section.Field(i)
		name, kind := path+f.Tag.Get("key"), f.Type
		if kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct {
			if _, entries := kind.Elem().FieldByName("Pace"); entries {
				name, kind = name+"[]", kind.Elem()
			}
		}
		if kind.Kind() == reflect.Struct && kind.NumField() > 0 && kind.Field(0).Tag.Get("key") != "" {
			all = append(all, keysOf(kind, name+".")...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// TestEachKeyIsReloadedOrRefused walks over all keys that there are: each takes effect,
// or is refused by its name.
func TestEachKeyIsReloadedOrRefused(t *testing.T) {
	t.Parallel()
	cases := reloadedWithFiles(t)
	maps.Copy(cases, reloadable)
	known := keysOf(reflect.TypeFor[config.Config](), "")
	for _, key := range known {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			c, reloads := cases[key]
			other, restarts := needRestart[key]
			switch {
			case reloads == restarts:
				t.Fatal("the key is in neither table of this test, or in both")
			case restarts:
				s := stand(t, besides[key])
				s.base = s.base.with(besides[key])
				before := s.daemon.Active.Load().Cfg
				if err := s.reload(keys{key: other}); err != nil || !slices.Contains(s.daemon.needRestart(), key) {
					t.Errorf("said: %v; need a restart: %q", err, s.daemon.needRestart())
				}
				for _, c := range config.Changes(before, s.daemon.Active.Load().Cfg) {
					t.Errorf("changed without a restart: %s", c)
				}
				return
			}
			s := stand(t, c.from)
			s.base = s.base.with(c.from)
			before := s.daemon.Active.Load().Cfg
			if got := c.see(s); got != c.want[0] {
				t.Errorf("at first: %s, want %s", got, c.want[0])
			}
			if err := s.reload(c.to); err != nil {
				t.Fatal(err)
			}
			if got := c.see(s); got != c.want[1] {
				t.Errorf("then: %s, want %s", got, c.want[1])
			}
			told := false
			for _, change := range config.Changes(before, s.daemon.Active.Load().Cfg) {
				told = told || strings.NewReplacer(" entry 1: ", "[].").Replace(change.Key) == key
			}
			if !told {
				t.Error("the test has not changed the key")
			}
		})
	}
	if n := len(cases) + len(needRestart); n != len(known) {
		t.Errorf("%d keys are tested, there are %d", n, len(known))
	}
}
