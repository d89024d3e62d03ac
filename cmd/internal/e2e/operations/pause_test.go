package operations

import (
	"encoding/json"
	"net/http"
	osuser "os/user"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

// pausable is an origin with a page, and how many requests it has got.
type pausable struct{ *e2e.Origin }

func newPausable(t *testing.T, label string) pausable {
	t.Helper()
	o := e2e.NewOrigin(t, label, "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	return pausable{o}
}

// host returns the name of the origin, which commands pause.
func (o pausable) host() string { return o.Name }

func (o pausable) arrived() int { return len(o.Arrivals("http")) + len(o.Arrivals("https")) }

// sent reports whether the proxy sends a request to the origin.
func (o pausable) sent(t *testing.T, p *e2e.Proxy) bool {
	t.Helper()
	before := o.arrived()
	got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
	if got.Status != http.StatusOK && got.Status != http.StatusServiceUnavailable || (got.Status == http.StatusOK) != (o.arrived() > before) {
		t.Errorf("%v, and %d requests arrived\n%s", got, o.arrived()-before, got.Body)
	}
	return got.Status == http.StatusOK
}

// wantPaused checks that no way leads to the origin, and what the client learns.
func (o pausable) wantPaused(t *testing.T, p *e2e.Proxy, reason string, least, most int) {
	t.Helper()
	before := o.arrived()
	for _, path := range []string{"/page", "/robots.txt"} {
		got := e2e.Get(t, p.Client(t, false), o.URL("http", path), "Accept", "application/json")
		e2e.WantOwn(t, got, http.StatusServiceUnavailable, "destination_unavailable")
		var said struct{ Reason, Detail string }
		testkit.Must(t, json.Unmarshal(got.Body, &said))
		if after, _ := strconv.Atoi(got.Header.Get("Retry-After")); said.Reason != "paused" || !strings.Contains(said.Detail, reason) || after < least || after > most {
			t.Errorf("%s: Retry-After %q, %s", path, got.Header.Get("Retry-After"), got.Body)
		}
	}
	c := p.Dial(t)
	c.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: "+o.Hostport("https"))
	if got := c.Receive(t, http.MethodConnect); got.Status != http.StatusServiceUnavailable {
		t.Errorf("CONNECT: %v", got)
	}
	if n := o.arrived(); n != before {
		t.Errorf("%d requests arrived", n-before)
	}
}

// events returns the events about pauses in an audit, each in a few words.
func events(t *testing.T, p *e2e.Proxy) (all []string) {
	t.Helper()
	for _, line := range e2e.ReadLines(t, p.Audit) {
		if line.Event == "paused" || line.Event == "resumed" {
			all = append(all, strings.TrimSpace(line.Event+" "+line.Host)+": "+line.Reason+" by "+line.By)
		}
	}
	return all
}

// TestPauseByCommand: a pause by command holds at once, after kill -9 right behind the command and a reload too, until somebody ends it or
// its time has come. The audit says who did what and why, and stays consistent.
func TestPauseByCommand(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	o, other := newPausable(t, "paused"), newPausable(t, "not-paused")
	p := e2e.StartProxy(t, e2e.Unpaced)
	command := func(args ...string) string {
		t.Helper()
		return e2e.Command(t, append(args, "-c", p.Config)...).Want(t, 0).Stdout
	}
	if !o.sent(t, p) {
		t.Fatal("nothing is sent")
	}
	if said := command("pause", o.host(), "--reason", "they <asked>", "--until", "2h"); !strings.HasPrefix(said, "requests to "+o.host()+" are paused until 2") {
		t.Errorf("pause says %q", said)
	}
	p = p.KillAgain(t)
	o.wantPaused(t, p, "they <asked>", 7000, 7200)
	if !other.sent(t, p) {
		t.Error("another host is paused")
	}
	p.AwaitMetric(t, "robotsproxy_stops paused", 1)
	p.Rewrite(t, e2e.Unpaced.With(e2e.Settings{"pace.max_wait": "7s"}))
	testkit.Eventually(t, "it is reloaded", func() bool { return p.Metrics(t)["robotsproxy_reloads_total ok"] > 0 })
	o.wantPaused(t, p, "they <asked>", 7000, 7200)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/explained"))
	record := e2e.OnlyRecord(t, p.Audit, o.URL("http", "/explained"))
	e2e.WantBlocked(t, record, "paused", http.StatusServiceUnavailable)
	if said := e2e.Command(t, "audit", "explain", record.ID, "-c", p.Config).Want(t, 0).Stdout; !strings.Contains(said, "An operator has paused requests to this host: they <asked>.") {
		t.Errorf("audit explain says\n%s", said)
	}
	if said := command("pause", "--reason", "too loud"); said != "requests to all hosts are paused\n" {
		t.Errorf("pause says %q", said)
	}
	other.wantPaused(t, p, "too loud", 300, 300)
	if said := command("resume", o.host()); said != "the pause of "+o.host()+" has ended, but all hosts are paused\n" {
		t.Errorf("resume says %q", said)
	}
	p = p.EndAgain(t)
	o.wantPaused(t, p, "too loud", 300, 300)
	if said := command("resume"); said != "the pause of all hosts has ended\n" {
		t.Errorf("resume says %q", said)
	}
	p = p.KillAgain(t)
	if !o.sent(t, p) || !other.sent(t, p) {
		t.Error("after a restart, a pause that was ended is back")
	}
	began := time.Now()
	command("pause", o.host(), "--reason", "for a moment", "--until", "2s")
	testkit.Eventually(t, "it ends by itself", func() bool { return o.sent(t, p) })
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it ended after %v", took)
	}
	me, err := osuser.Current()
	testkit.Must(t, err)
	by := " by " + me.Username + " (as stated), API from 127.0.0.1"
	want := []string{
		"paused " + o.host() + ": they <asked>" + by, "paused: too loud" + by, "resumed " + o.host() + ": they <asked>" + by,
		"resumed: too loud" + by, "paused " + o.host() + ": for a moment" + by,
	}
	if got := events(t, p); !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p.End(t)
	e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0)
}

// TestPauseInMonitorMode: a pause is an act of the operator, so it holds although robots.txt is not enforced.
func TestPauseInMonitorMode(t *testing.T) {
	t.Parallel()
	o := newPausable(t, "monitored")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"mode": "monitor"}))
	e2e.API[any](t, p, "POST", "hosts/"+o.host()+"/pause", `{"reason":"they asked","until":"1h"}`, 200)
	o.wantPaused(t, p, "they asked", 3500, 3600)
	e2e.API[any](t, p, "DELETE", "hosts/"+o.host()+"/pause", "", 200)
	if !o.sent(t, p) {
		t.Error("nothing is sent after the end")
	}
}

// TestMistakesOfPause: what is wrong with the command line, the address or the token is said in one line, and pauses nothing.
func TestMistakesOfPause(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"admin.token": "0123456789abcdef0123456789abcdef"}))
	off, idle := e2e.NewSetup(t, e2e.Settings{"admin.listen": ""}), e2e.NewSetup(t, nil)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"pause a.test -c " + p.Config, 2, "--reason: required"},
		{"pause a.test b.test --reason x -c " + p.Config, 2, "at most 1 arg"},
		{"pause a.test:80 --reason x -c " + p.Config, 2, "a.test:80"},
		{"pause a.test --reason x --until soon -c " + p.Config, 1, "until: must be a time or a duration"},
		{"pause a.test --reason x --until 2001-01-01T00:00:00Z -c " + p.Config, 1, "in the future"},
		{"pause --reason x --admin " + p.Admin, 1, "requires the token"},
		{"pause --reason x -c " + off.Config, 1, "admin.listen is off"},
		{"pause --reason x -c " + idle.Config, 1, "nothing listens at " + idle.Admin},
		{"pause --reason x --admin http://127.0.0.1:8081/", 2, "is a URL: use 127.0.0.1:8081"},
		{"resume -c " + p.Config, 1, "there is no pause of all hosts"},
		{"resume a.test -c " + p.Config, 1, "there is no pause of a.test"},
	} {
		out := e2e.Command(t, strings.Fields(c.args)...)
		e2e.WantOneLine(t, out, c.code, c.says)
	}
	for _, args := range [][]string{{"pause", "", "--reason", "x"}, {"resume", ""}, {"pause", "--reason", "x", "--until", ""}, {"resume", "--admin", ""}} {
		e2e.WantOneLine(t, e2e.Command(t, append(args, "-c", p.Config)...), 2, "empty")
	}
	if got := events(t, p); got != nil {
		t.Errorf("events: %q", got)
	}
	e2e.Command(t, "pause", "a.test", "--reason", "x", "-c", p.Config).Want(t, 0)
	e2e.Command(t, "pause", "b.test", "--reason", "x", "-c", p.Config).Want(t, 0)
	e2e.Command(t, "pause", "--reason", "x", "-c", p.Config).Want(t, 0)
	if said := e2e.Command(t, "resume", "-c", p.Config).Want(t, 0).Stdout; said != "the pause of all hosts has ended, but a.test and 1 other host are paused on their own\n" {
		t.Errorf("resume says %q", said)
	}
}

// TestPauseOfAFleet: what one replica pauses, the others do within seconds, and one that starts later. While the store is away, a pause
// holds where it was made, and at the others when it is back, although it has forgotten everything.
func TestPauseOfAFleet(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	s := redistest.Start(t)
	one, two := newPausable(t, "fleet-one"), newPausable(t, "fleet-two")
	f := startFleet(t, s.URL(), 2, e2e.Unpaced)
	f.awaitStore(t, 1)
	a, b := f.replicas[0], f.replicas[1]
	until := func(what string, o pausable, sends bool, all ...*e2e.Proxy) {
		t.Helper()
		for _, p := range all {
			testkit.Eventually(t, what, func() bool { return o.sent(t, p) == sends })
		}
	}
	if !one.sent(t, a) || !two.sent(t, b) {
		t.Fatal("nothing is sent")
	}
	e2e.Command(t, "pause", one.host(), "--reason", "they asked", "-c", a.Config).Want(t, 0)
	until("the other replica pauses too", one, false, a, b)
	one.wantPaused(t, b, "they asked", 300, 300)
	if !two.sent(t, a) || !two.sent(t, b) {
		t.Error("another host is paused")
	}
	s.Kill()
	f.awaitStore(t, 0)
	e2e.Command(t, "pause", two.host(), "--reason", "the store is away", "-c", a.Config).Want(t, 0)
	if two.sent(t, a) || one.sent(t, a) || one.sent(t, b) {
		t.Error("a pause does not hold while the store is away")
	}
	if !two.sent(t, b) {
		t.Error("the other replica knows of the pause without the store")
	}
	s.Restart()
	f.awaitStore(t, 1)
	until("the other replica gets the pause", two, false, b)
	one.wantPaused(t, a, "they asked", 300, 300)
	f.replicas[1] = b.EndAgain(t)
	b = f.replicas[1]
	one.wantPaused(t, b, "they asked", 300, 300)
	e2e.Command(t, "resume", one.host(), "-c", b.Config).Want(t, 0)
	until("the other replica resumes too", one, true, a, b)
	third := startFleet(t, s.URL(), 1, e2e.Unpaced.With(e2e.Settings{"tls.ca_cert": nil})).replicas[0]
	until("a new replica pauses too", two, false, third)
	if !one.sent(t, third) {
		t.Error("a pause that was ended is back")
	}
	if got := events(t, a); len(got) != 2 || !strings.HasPrefix(got[0], "paused "+one.host()) || !strings.HasPrefix(got[1], "paused "+two.host()) {
		t.Errorf("events of one: %q", got)
	}
	if got := events(t, b); len(got) != 1 || !strings.HasPrefix(got[0], "resumed "+one.host()) {
		t.Errorf("events of the other: %q", got)
	}
	for _, p := range f.replicas {
		p.End(t)
		e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0)
	}
}
