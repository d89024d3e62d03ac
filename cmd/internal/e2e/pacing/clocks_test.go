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
	"robotsproxy/robots/testkit"
)

// A restartWay is how one serve ends and the next one starts.
type restartWay struct {
	name    string
	unclean bool // the next serve does not know all requests that were sent
	damages bool // nor the back-offs of hosts
	do      func(t *testing.T, p *e2e.Proxy) *e2e.Proxy
}

var restartWays = []restartWay{
	{name: "SIGTERM", do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.EndAgain(t) }},
	{name: "kill -9", unclean: true, do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.KillAgain(t) }},
	{name: "SIGTERM twice", do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.EndAgain(t).EndAgain(t) }},
	{name: "kill -9, then SIGTERM", unclean: true, do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy { return p.KillAgain(t).EndAgain(t) }},
	{name: "kill -9 twice, then SIGTERM twice", unclean: true, do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		return p.KillAgain(t).KillAgain(t).EndAgain(t).EndAgain(t)
	}},
	{name: "SIGTERM, and the port is taken", do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		p.End(t)
		p.FailStart(t)
		return p.Again(t)
	}},
	{name: "kill -9, and the port is taken", unclean: true, do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		p.Kill(t)
		p.FailStart(t)
		return p.Again(t)
	}},
	{name: "SIGTERM, and what it kept is damaged", unclean: true, damages: true, do: func(t *testing.T, p *e2e.Proxy) *e2e.Proxy {
		p.End(t)
		e2e.WriteFile(t, p.StateDB(), strings.Repeat("x", 1<<16))
		return p.EndAgain(t).EndAgain(t)
	}},
}

// TestARestartIsNoWayRoundThePace: after a restart the proxy still keeps the pace of a host, a
// Crawl-delay, and a back-off of an hour. A serve that knows all earlier requests delays no other
// host. One that does not delays each host for its own gap at most. The test does not wait for
// these times: the requests are refused, and the refusals say how much is left.
func TestARestartIsNoWayRoundThePace(t *testing.T) {
	t.Parallel()
	const gap, delay = 30 * time.Second, 50 * time.Second // of longer delays, a killed serve forgets those of the last second
	for i, way := range restartWays {
		t.Run(way.name, func(t *testing.T) {
			if i > 0 {
				testkit.Long(t, "many restarts")
			}
			t.Parallel()
			known, fresh := e2e.NewOrigin(t, "known", ""), e2e.NewOrigin(t, "fresh", "")
			slow, busy := e2e.NewOrigin(t, "slow", "User-agent: *\nCrawl-delay: 50\n"), e2e.NewOrigin(t, "busy", "")
			busy.Handle("/a", busyPage("3600"))
			p := e2e.StartProxy(t, e2e.Settings{
				"pace.requests_per_second": 1 / gap.Seconds(), "pace.max_wait": "1s", "robots.max_crawl_delay": "1h",
			})
			client := p.Client(t, false)
			sent := time.Now()
			e2e.Get(t, client, busy.URL("http", "/a"))
			if way.unclean {
				e2e.AwaitState(t, p, "clocks", busy.Name)
			}
			e2e.Get(t, client, known.URL("http", "/a"))
			e2e.Get(t, client, slow.URL("http", "/a"))
			p = way.do(t, p)
			client = p.Client(t, false)
			wantHeld(t, client, known, sent, gap, gap)
			if !way.damages {
				wantHeld(t, client, busy, sent, time.Hour, time.Hour)
			}
			if way.unclean { // it may not have the robots.txt of slow yet, and knows that
				wantHeld(t, client, slow, sent, gap, delay)
				wantHeld(t, client, fresh, sent, gap, gap)
				return
			}
			wantHeld(t, client, slow, sent, delay, delay)
			if got := e2e.Get(t, client, fresh.URL("http", "/a")); got.Status != http.StatusNotFound {
				t.Errorf("a host that nothing was sent to: %v", got)
			}
		})
	}
}

// wantHeld checks that a request is refused because the host got one at the time sent and must not
// get another for least to most from then. Nothing arrives.
func wantHeld(t *testing.T, client *http.Client, o *e2e.Origin, sent time.Time, least, most time.Duration) {
	t.Helper()
	before := len(o.Pages("http"))
	got := e2e.Get(t, client, o.URL("http", "/a"))
	e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
	after, err := strconv.Atoi(got.Header.Get("Retry-After"))
	least, most = least-time.Since(sent), most+time.Second // it is rounded
	if says := time.Duration(after) * time.Second; err != nil || says < least || says > most {
		t.Errorf("%s: Retry-After %q, want %v to %v", o.Name, got.Header.Get("Retry-After"), least, most)
	}
	if n := len(o.Pages("http")) - before; n != 0 {
		t.Errorf("%s: %d requests arrived", o.Name, n)
	}
}

// busyPage answers 503 with a Retry-After in seconds.
func busyPage(seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", seconds)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// The state is stored for what shares a pace: a host, its registrable domain or its address.
// When the delay is over, the next request is sent.
func TestARestartIsNoWayRoundASharedPace(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	for per, other := range map[string]string{"host": "", "domain": "other.", "address": "other-"} {
		for _, way := range restartWays[:2] {
			t.Run(per+", "+way.name, func(t *testing.T) {
				t.Parallel()
				o := e2e.NewOrigin(t, "shared", "User-agent: *\nCrawl-delay: 1\n")
				o.Handle("/a", e2e.TextPage("text/plain", "a"))
				e2e.Names.Point(other+o.Name, o.Ip)
				p := e2e.StartProxy(t, e2e.Settings{"pace.per": per, "pace.requests_per_second": 1000})
				e2e.Get(t, p.Client(t, false), o.URL("http", "/a"))
				p = way.do(t, p)
				port := strconv.Itoa(o.Ports["http"])
				if got := e2e.Get(t, p.Client(t, false), "http://"+other+o.Name+":"+port+"/a"); got.Status != http.StatusOK {
					t.Errorf("%v\n%s", got, got.Body)
				}
				if n := len(o.Pages("http")); n != 2 {
					t.Errorf("%d pages arrived", n)
				}
				e2e.WantGaps(t, o.Pages("http"), time.Second)
			})
		}
	}
}

// Stored state also applies if serve starts on a full disk.
func TestARestartOnAFullDisk(t *testing.T) {
	testkit.Long(t, "many restarts")
	t.Parallel()
	disk := e2e.SmallDisk(t, "4m")
	state := filepath.Join(disk, "state")
	o := e2e.NewOrigin(t, "full", "")
	o.Handle("/busy", busyPage("3600"))
	file := filepath.Join(t.TempDir(), "audit.jsonl") // otherwise no request would be sent
	p := e2e.StartProxy(t, e2e.Settings{"state_dir": state, "audit.file": file})
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
