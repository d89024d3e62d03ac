package operations

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy"
	"robotsproxy/robots/testkit"
)

// Fifty reloads during a download, an upload, an open tunnel, requests that wait for a
// Crawl-delay, and requests of many clients. No request fails, nothing is fetched again,
// and the slow host keeps its delay.
func TestReloadsUnderLoad(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const waiters, delay = 6, 500 * time.Millisecond
	release := make(chan struct{})
	o := e2e.NewOrigin(t, "busy", "User-agent: *\nDisallow: /private\n")
	o.Handle("/held", e2e.HeldPage("application/octet-stream", "first\n", "second\n", release))
	o.Handle("/upload", e2e.UploadPage)
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	slow := e2e.NewOrigin(t, "slow", fmt.Sprintf("User-agent: *\nCrawl-delay: %g\n", delay.Seconds()))
	slow.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"identity.from": "n0@foo.example"}))

	download := e2e.InFlight(t, p, o, "https", true)
	sent, body := io.Pipe()
	uploaded := make(chan e2e.Result, 1)
	uploader := p.Client(t, false)
	uploader.Timeout = e2e.HeldFor
	go func() {
		uploaded <- e2e.Do(t, uploader, http.MethodPost, o.URL("http", "/upload"), sent)
	}()
	io.WriteString(body, "half of ")
	load := loadOf(t, p, o, slow, waiters)
	reloadFifty(t, p, o)
	load()
	close(release)
	if rest, err := io.ReadAll(download.Body); string(rest) != "second\n" || err != nil {
		t.Errorf("the download went on with %q, %v", rest, err)
	}
	io.WriteString(body, "it")
	body.Close()
	if got := testkit.Within(t, "the upload ends", uploaded); got.Status != http.StatusOK || !strings.HasPrefix(string(got.Body), "10 ") {
		t.Errorf("the upload: %v %s", got, got.Body)
	}
	for scheme, origin := range map[string]*e2e.Origin{"http": slow, "https": o} {
		if n := len(origin.Arrivals(scheme)) - len(origin.Pages(scheme)); n != 1 {
			t.Errorf("%s: robots.txt was fetched %d times", origin.Name, n)
		}
	}
	hits := slow.Pages("http")
	e2e.WantGaps(t, hits, delay)
	if len(hits) != waiters {
		t.Errorf("%d requests came to the slow host, want %d", len(hits), waiters)
	}
}

// loadOf makes some clients wait for the slow host, and others request pages until end is
// called.
func loadOf(t *testing.T, p *e2e.Proxy, o, slow *e2e.Origin, waiters int) (end func()) {
	t.Helper()
	var asking sync.WaitGroup
	for range waiters {
		asking.Go(func() {
			if got := e2e.Get(t, p.Client(t, false), slow.URL("http", "/a")); got.Status != http.StatusOK {
				t.Errorf("who waited: %v", got)
			}
		})
	}
	var over atomic.Bool
	for i := range 3 {
		asking.Go(func() {
			c := p.Client(t, i == 0)
			for !over.Load() {
				if got := e2e.Get(t, c, o.URL([]string{"https", "http"}[i%2], "/page")); got.Status != http.StatusOK {
					t.Errorf("one of the clients: %v %s", got, got.Body)
				}
			}
		})
	}
	return func() {
		over.Store(true)
		asking.Wait()
	}
}

// reloadFifty changes the configuration fifty times and checks each change in an open tunnel.
func reloadFifty(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
	t.Helper()
	tunnel := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name, "http/1.1")
	for n := range 50 {
		own := e2e.Unpaced.With(e2e.Settings{"identity.from": fmt.Sprintf("n%d@foo.example", n+1), "log.level": []string{"warn", "info"}[n%2]})
		if n%10 == 9 { // another upstream proxy
			own["egress.ports"] = []string{"80", fmt.Sprintf("1024-%d", 65535-n)}
		}
		p.Rewrite(t, own)
		p.Signal(t, syscall.SIGHUP)
		testkit.Eventually(t, fmt.Sprint("reload ", n+1), func() bool {
			tunnel.SetDeadline(time.Now().Add(testkit.Patience))
			tunnel.Send(t, "GET /page HTTP/1.1", "Host: "+o.Hostport("https"))
			if got := tunnel.Receive(t, http.MethodGet); got.Status != http.StatusOK {
				t.Errorf("in the tunnel: %v", got)
			}
			return slices.ContainsFunc(o.Pages("https"), func(h e2e.Hit) bool { return h.Header.Get("From") == own["identity.from"] })
		})
	}
}

// An urgent entry applies although the same file changes a key that needs a restart, which is told.
func TestReloadAppliesTheRest(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "urgent", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	if got := e2e.Get(t, client, o.URL("http", "/page")); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	deny := []e2e.Entry{{"match": o.Name, "robots": "deny", "reason": "asked to leave"}}
	p.Rewrite(t, e2e.Unpaced.With(e2e.Settings{"listen": "127.0.0.1:1", "log.format": "json", "hosts": deny}))
	answer := e2e.API[struct {
		Reloaded bool
		Needs    []string `json:"needs_restart"`
	}](t, p, http.MethodPost, "reload", "", http.StatusOK)
	if !answer.Reloaded || !slices.Equal(answer.Needs, []string{"listen", "log.format"}) {
		t.Errorf("POST /api/v1/reload answers %+v", answer)
	}
	if got := e2e.Get(t, client, o.URL("http", "/page")); got.Status != http.StatusForbidden {
		t.Errorf("%v", got)
	}
	if line := `msg="configuration key needs a restart, keeping the active value" key=listen from=` + p.Listen + " to=127.0.0.1:1"; !strings.Contains(p.Stderr.String(), line) {
		t.Errorf("the log lacks %s", line)
	}
	if got := e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/healthz"); !strings.Contains(string(got.Body), "need a restart: listen, log.format\n") {
		t.Errorf("/healthz: %s", got.Body)
	}
}

// A password is changed in two reloads: for a time both are accepted, then the old one is not, not even in an open tunnel.
func TestPasswordIsChanged(t *testing.T) {
	t.Parallel()
	const next = "another secret"
	hash, err := policy.HashPassword(next)
	if err != nil {
		t.Fatal(err)
	}
	o := e2e.NewOrigin(t, "password", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	with := func(one, two string) e2e.Settings {
		entry := e2e.Entry{"name": "lab-a", "password_hash": one}
		if two != "" {
			entry["password_hash_next"] = two
		}
		return e2e.Unpaced.With(e2e.Settings{"clients": []e2e.Entry{entry}})
	}
	p := e2e.StartProxy(t, with(e2e.SecretHash, ""))
	status := func(password string) int {
		client := p.Client(t, false)
		at, err := url.Parse(p.As("lab-a", password))
		if err != nil {
			t.Fatal(err)
		}
		client.Transport.(*http.Transport).Proxy = http.ProxyURL(at)
		return e2e.Get(t, client, o.URL("http", "/page")).Status
	}
	reload := func(own e2e.Settings) {
		t.Helper()
		p.Rewrite(t, own)
		e2e.API[struct{}](t, p, http.MethodPost, "reload", "", http.StatusOK)
	}
	tunnel := p.Dial(t)
	login := base64.StdEncoding.EncodeToString([]byte("lab-a:" + e2e.Secret))
	tunnel.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: "+o.Hostport("https"), "Proxy-Authorization: Basic "+login)
	if got := tunnel.Receive(t, http.MethodConnect); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	inside := tunnel.Secure(t, p, o.Name, "http/1.1")
	within := func() int {
		inside.Send(t, "GET /page HTTP/1.1", "Host: "+o.Hostport("https"))
		return inside.Receive(t, http.MethodGet).Status
	}
	for _, step := range []struct {
		own            e2e.Settings
		old, new, open int
	}{
		{with(e2e.SecretHash, ""), http.StatusOK, http.StatusProxyAuthRequired, http.StatusOK},
		{with(e2e.SecretHash, hash), http.StatusOK, http.StatusOK, http.StatusOK},
		{with(hash, ""), http.StatusProxyAuthRequired, http.StatusOK, http.StatusProxyAuthRequired},
	} {
		reload(step.own)
		if old, new, open := status(e2e.Secret), status(next), within(); old != step.old || new != step.new || open != step.open {
			t.Errorf("the old password gets %d, the new one %d, the tunnel %d; want %d, %d, %d", old, new, open, step.old, step.new, step.open)
		}
	}
}

// SIGHUP with a wrong file changes nothing and reports all errors. Without a file, SIGHUP reloads the certificates. It never ends the
// process.
func TestSIGHUPRefused(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "refused", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	e2e.WriteFile(t, p.Config, "mode: nonsense\npace: {burst: 0}\n")
	p.Signal(t, syscall.SIGHUP)
	for _, line := range []string{":1: mode: ", ":2: pace.burst: "} {
		testkit.Eventually(t, line, func() bool { return strings.Contains(p.Stderr.String(), line) })
	}
	if err := os.Remove(p.Config); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "it is said that the file is gone", func() bool { return strings.Contains(p.Stderr.String(), "no such file") })
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
}

// A ConfigMap is a directory of links, whose targets are replaced all at once.
func TestReloadOfAConfigMap(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "configmap", "User-agent: *\nDisallow: /private\n")
	o.Handle("/private", e2e.TextPage("text/plain", "private"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	text, err := os.ReadFile(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "..1"), 0o700))
	e2e.WriteFile(t, filepath.Join(dir, "..1", "config.yaml"), string(text))
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/config.yaml", filepath.Join(dir, "config.yaml")))
	h.Config = filepath.Join(dir, "config.yaml")
	p := e2e.Launch(t, h)
	p.AwaitReady(t)
	t.Cleanup(func() { p.End(t) })
	client := p.Client(t, false)
	if got := e2e.Get(t, client, o.URL("https", "/private")); got.Status != http.StatusForbidden {
		t.Fatalf("%v", got)
	}
	must(os.Mkdir(filepath.Join(dir, "..2"), 0o700))
	e2e.WriteFile(t, filepath.Join(dir, "..2", "config.yaml"), "mode: monitor\n"+string(text))
	must(os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	must(os.RemoveAll(filepath.Join(dir, "..1")))
	testkit.Eventually(t, "mode: monitor", func() bool { return e2e.Get(t, client, o.URL("https", "/private")).Status == http.StatusOK })
}

// Flags override the file also after a reload. Without a file, certificates are reloaded.
// systemd is notified each time.
func TestReloadWithFlags(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "flags", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	var told e2e.SyncBuffer
	go io.Copy(&told, manager)
	listen := fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(t))
	h.Listen = "127.0.0.1:1"
	h.Rewrite(t, e2e.Unpaced)
	h.Listen = listen
	p := e2e.Launch(t, h, "env", "NOTIFY_SOCKET="+manager.LocalAddr().String(), "sh", "-c", `exec "$@" --listen `+listen, "sh")
	p.AwaitReady(t)
	t.Cleanup(func() { p.End(t) })
	h.Listen = "127.0.0.1:2"
	h.Rewrite(t, e2e.Unpaced.With(e2e.Settings{"identity.from": "after@foo.example"}))
	h.Listen = listen
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "the reload", func() bool { return strings.Contains(p.Stderr.String(), "key=identity.from") })
	if e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); o.Pages("http")[0].Header.Get("From") != "after@foo.example" {
		t.Error("the file is not in force")
	}
	p.Signal(t, syscall.SIGTERM)
	testkit.Within(t, "serve ends", p.Exited)
	testkit.Eventually(t, "systemd is told all", func() bool {
		at := 0
		for _, s := range []string{"READY=1\nSTATUS=serving on " + listen, "RELOADING=1\nMONOTONIC_USEC=", "READY=1", "STOPPING=1"} {
			i := strings.Index(told.String()[at:], s)
			if i < 0 {
				return false
			}
			at += i + len(s)
		}
		return true
	})
}
