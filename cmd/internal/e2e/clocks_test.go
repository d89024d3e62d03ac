package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slack is how much longer than it has to a request may take that is held up.
const slack = 3 * time.Second

// A restartWay is how one serve gives way to the next; it waits for none.
type restartWay struct {
	name string
	do   func(t *testing.T, p *proxy) *proxy
}

func (p *proxy) kill(t *testing.T) {
	p.signal(t, syscall.SIGKILL)
	within(t, patience, "serve ends", p.exited)
}

func (p *proxy) endAgain(t *testing.T) *proxy {
	p.end(t)
	return p.again(t)
}

func (p *proxy) killAgain(t *testing.T) *proxy {
	p.kill(t)
	return p.again(t)
}

// failStart begins a serve that does not get its port.
func (p *proxy) failStart(t *testing.T) {
	taken, err := net.Listen("tcp", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if out := command(t, "serve", "-c", p.config).want(t, 1); !strings.Contains(out.stderr, "address already in use") {
		t.Errorf("it says %q", out.stderr)
	}
}

var restartWays = []restartWay{
	{"SIGTERM", func(t *testing.T, p *proxy) *proxy { return p.endAgain(t) }},
	{"kill -9", func(t *testing.T, p *proxy) *proxy { return p.killAgain(t) }},
	{"SIGTERM twice", func(t *testing.T, p *proxy) *proxy { return p.endAgain(t).endAgain(t) }},
	{"kill -9, then SIGTERM", func(t *testing.T, p *proxy) *proxy { return p.killAgain(t).endAgain(t) }},
	{"kill -9 twice, then SIGTERM twice", func(t *testing.T, p *proxy) *proxy {
		return p.killAgain(t).killAgain(t).endAgain(t).endAgain(t)
	}},
	{"SIGTERM, and the port is taken", func(t *testing.T, p *proxy) *proxy { p.end(t); p.failStart(t); return p.again(t) }},
	{"kill -9, and the port is taken", func(t *testing.T, p *proxy) *proxy { p.kill(t); p.failStart(t); return p.again(t) }},
	{"SIGTERM, and what it kept is damaged", func(t *testing.T, p *proxy) *proxy {
		p.end(t)
		writeFile(t, p.stateDB(), strings.Repeat("x", 1<<16))
		return p.endAgain(t).endAgain(t)
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
			o := newOrigin(t, "delay", "User-agent: *\nCrawl-delay: 3\n")
			o.handle("/a", textPage("text/plain", "a"))
			p := startProxy(t, settings{})
			get(t, p.client(t, false), o.url("http", "/a?1"))
			p = way.do(t, p)
			begun := time.Now()
			if got := get(t, p.client(t, false), o.url("http", "/a?2")); got.Status != http.StatusOK {
				t.Errorf("%v\n%s", got, got.Body)
			}
			if took := time.Since(begun); took > delay+slack {
				t.Errorf("it took %v", took)
			}
			if n := len(o.pages("http")); n != 2 {
				t.Errorf("%d pages arrived", n)
			}
			wantGaps(t, o.pages("http"), delay)
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
				o := newOrigin(t, "shared", "User-agent: *\nCrawl-delay: 3\n")
				o.handle("/a", textPage("text/plain", "a"))
				names.point(other+o.Name, o.ip)
				p := startProxy(t, settings{"pace.per": per})
				get(t, p.client(t, false), o.url("http", "/a"))
				p = way.do(t, p)
				port := strconv.Itoa(o.ports["http"])
				if got := get(t, p.client(t, false), "http://"+other+o.Name+":"+port+"/a"); got.Status != http.StatusOK {
					t.Errorf("%v\n%s", got, got.Body)
				}
				if n := len(o.pages("http")); n != 2 {
					t.Errorf("%d pages arrived", n)
				}
				wantGaps(t, o.pages("http"), 3*time.Second)
			})
		}
	}
}

// A host that asked to be left alone for an hour is, and who asks is told how much of
// it is left.
func TestARetryAfterOutlivesServe(t *testing.T) {
	t.Parallel()
	for _, way := range restartWays[:6] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, "alone", "")
			o.handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			p := startProxy(t, settings{})
			before := time.Now()
			if got := get(t, p.client(t, false), o.url("http", "/busy")); got.Status != http.StatusServiceUnavailable {
				t.Errorf("%v, want the origin's own 503", got)
			}
			told := time.Now()
			awaitState(t, p, "clocks", o.Name)
			p = way.do(t, p)
			asked := time.Now()
			got := get(t, p.client(t, false), o.url("http", "/a"))
			wantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
			least, most := time.Hour-time.Since(before), time.Hour-asked.Sub(told)+time.Second
			after, err := strconv.Atoi(got.Header.Get("Retry-After"))
			if says := time.Duration(after) * time.Second; err != nil || says < least || says > most {
				t.Errorf("Retry-After %q, want %v to %v", got.Header.Get("Retry-After"), least, most)
			}
			if n := len(o.pages("http")); n != 1 {
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
			known, fresh := newOrigin(t, "known", ""), newOrigin(t, "fresh", "")
			p := startProxy(t, settings{"pace.requests_per_second": 1 / gap.Seconds()})
			get(t, p.client(t, false), known.url("http", "/a"))
			p = c.do(t, p)
			client := p.client(t, false)
			for o, held := range map[*origin]time.Duration{fresh: c.held, known: gap} {
				begun := time.Now()
				get(t, client, o.url("http", "/a"))
				if took := time.Since(begun); took > held+slack {
					t.Errorf("%s: the first request after the restart took %v, want %v at most", o.Name, took, held)
				}
			}
			wantGaps(t, known.pages("http"), gap)
		})
	}
}

// The clocks count where serve starts on a disk that is full, too.
func TestARestartOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "4m")
	state := filepath.Join(disk, "state")
	o := newOrigin(t, "full", "")
	o.handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	file := filepath.Join(t.TempDir(), "audit.jsonl") // or nothing would go out at all
	p := startProxy(t, settings{"state_dir": state, "audit.file": file})
	p.state = state
	get(t, p.client(t, false), o.url("http", "/busy"))
	p.end(t)
	ballast := fill(t, disk)
	p = p.again(t)
	client := p.client(t, false)
	wantOwn(t, get(t, client, o.url("http", "/a?1")), http.StatusTooManyRequests, "connection_limit_reached")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p = p.endAgain(t)
	wantOwn(t, get(t, p.client(t, false), o.url("http", "/a?2")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(o.pages("http")); n != 1 {
		t.Errorf("%d requests arrived, want the first alone", n)
	}

}
