package pacing

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// slack is how much longer than it has to a request may take that is held up.
const slack = 3 * time.Second

// A restartWay is how one serve gives way to the next; it waits for none.
type restartWay struct {
	name string
	do   func(t *testing.T, p *e2e.Proxy) *e2e.Proxy
}

var restartWays = []restartWay{
	{"SIGTERM", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.EndAgain(t) }},
	{"kill -9", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.KillAgain(t) }},
	{"SIGTERM twice", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.EndAgain(t).EndAgain(t) }},
	{"kill -9, then SIGTERM", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.KillAgain(t).EndAgain(t) }},
	{"kill -9 twice, then SIGTERM twice", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		return p.KillAgain(t).KillAgain(t).EndAgain(t).EndAgain(t)
	}},
	{"SIGTERM, and the port is taken", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { p.End(t); p.FailStart(t); return p.Again(t) }},
	{"kill -9, and the port is taken", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { p.Kill(t); p.FailStart(t); return p.Again(t) }},
	{"SIGTERM, and what it kept is damaged", func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		p.End(t)
		e2e.WriteFile(t, p.StateDB(), strings.Repeat("x", 1<<16))
		return p.EndAgain(t).EndAgain(t)
	}},
}

// After a restart the next request comes no sooner than without: a Crawl-delay counts
// from the last request of the process before, by whatever name it went.
func TestARestartIsNoWayRoundACrawlDelay(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	for _, way := range restartWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "delay", "User-agent: *\nCrawl-delay: 3\n")
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			p := e2e.StartProxy(t, e2e.Settings{})
			e2e.Get(t, p.Client(t, false), o.URL("http", "/a?1"))
			p = way.do(t, p)
			begun := time.Now()
			if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a?2")); got.Status != http.StatusOK {
				t.Errorf("%v\n%s", got, got.Body)
			}
			if took := time.Since(begun); took > delay+slack {
				t.Errorf("it took %v", took)
			}
			if n := len(o.Pages("http")); n != 2 {
				t.Errorf("%d pages arrived", n)
			}
			e2e.WantGaps(t, o.Pages("http"), delay)
		})
	}
}

// The clocks are kept by what is paced: a host, its registrable domain, its address.
func TestARestartIsNoWayRoundASharedPace(t *testing.T) {
	t.Parallel()
	for per, other := range map[string]string{"host": "", "domain": "other.", "address": "other-"} {
		for _, way := range restartWays[:2] {
			t.Run(per+", "+way.name, func(t *testing.T) {
				t.Parallel()
				o := e2e.NewOrigin(t, "shared", "User-agent: *\nCrawl-delay: 3\n")
				o.Handle("/a", e2e.TextPage("text/plain", "a"))
				e2e.Names.Point(other+o.Name, o.Ip)
				p := e2e.StartProxy(t, e2e.Settings{"pace.per": per})
				e2e.Get(t, p.Client(t, false), o.URL("http", "/a"))
				p = way.do(t, p)
				port := strconv.Itoa(o.Ports["http"])
				if got := e2e.Get(t, p.Client(t, false), "http://"+other+o.Name+":"+port+"/a"); got.Status != http.StatusOK {
					t.Errorf("%v\n%s", got, got.Body)
				}
				if n := len(o.Pages("http")); n != 2 {
					t.Errorf("%d pages arrived", n)
				}
				e2e.WantGaps(t, o.Pages("http"), 3*time.Second)
			})
		}
	}
}

// After a restart the proxy still keeps the hour that a host asked for by Retry-After, and a refusal
// says how much of the hour is left.
func TestARetryAfterOutlivesServe(t *testing.T) {
	t.Parallel()
	for _, way := range restartWays[:6] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "alone", "")
			o.Handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			p := e2e.StartProxy(t, e2e.Settings{})
			before := time.Now()
			if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/busy")); got.Status != http.StatusServiceUnavailable {
				t.Errorf("%v, want the origin's own 503", got)
			}
			told := time.Now()
			e2e.AwaitState(t, p, "clocks", o.Name)
			p = way.do(t, p)
			asked := time.Now()
			got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a"))
			e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
			least, most := time.Hour-time.Since(before), time.Hour-asked.Sub(told)+time.Second
			after, err := strconv.Atoi(got.Header.Get("Retry-After"))
			if says := time.Duration(after) * time.Second; err != nil || says < least || says > most {
				t.Errorf("Retry-After %q, want %v to %v", got.Header.Get("Retry-After"), least, most)
			}
			if n := len(o.Pages("http")); n != 1 {
				t.Errorf("%d requests arrived, want the first alone", n)
			}
		})
	}
}

// Who knows all that was sent holds up nobody; who does not holds up each host once,
// for its own gap.
func TestARestartHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	const gap = 4 * time.Second
	for _, c := range []struct {
		restartWay
		held time.Duration
	}{
		{restartWays[0], 0}, {restartWays[2], 0}, {restartWays[5], 0},
		{restartWays[1], gap}, {restartWays[3], gap}, {restartWays[6], gap}, {restartWays[7], gap},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			known, fresh := e2e.NewOrigin(t, "known", ""), e2e.NewOrigin(t, "fresh", "")
			p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": 1 / gap.Seconds()})
			e2e.Get(t, p.Client(t, false), known.URL("http", "/a"))
			p = c.do(t, p)
			client := p.Client(t, false)
			for o, held := range map[*e2e.Origin]time.Duration{fresh: c.held, known: gap} {
				begun := time.Now()
				e2e.Get(t, client, o.URL("http", "/a"))
				if took := time.Since(begun); took > held+slack {
					t.Errorf("%s: the first request after the restart took %v, want %v at most", o.Name, took, held)
				}
			}
			e2e.WantGaps(t, known.Pages("http"), gap)
		})
	}
}

// The clocks count where serve starts on a disk that is full, too.
func TestARestartOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := e2e.SmallDisk(t, "4m")
	state := filepath.Join(disk, "state")
	o := e2e.NewOrigin(t, "full", "")
	o.Handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	file := filepath.Join(t.TempDir(), "audit.jsonl") // or nothing would go out at all
	p := e2e.StartProxy(t, e2e.Settings{"state_dir": state, "audit.file": file})
	p.State = state
	e2e.Get(t, p.Client(t, false), o.URL("http", "/busy"))
	p.End(t)
	ballast := e2e.Fill(t, disk)
	p = p.Again(t)
	client := p.Client(t, false)
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/a?1")), http.StatusTooManyRequests, "connection_limit_reached")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p = p.EndAgain(t)
	e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), o.URL("http", "/a?2")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(o.Pages("http")); n != 1 {
		t.Errorf("%d requests arrived, want the first alone", n)
	}

}
