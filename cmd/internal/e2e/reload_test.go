package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rewrite puts other settings in the place of the configuration, at once.
func (h *house) rewrite(t testing.TB, own settings) {
	t.Helper()
	all := settings{
		"listen": h.listen, "state_dir": h.state, "admin.listen": h.admin,
		"egress.allow_private": []string{"127.0.0.0/8"},
		"egress.resolver":      names.addr(),
		"egress.extra_ca":      trustedFile(t),
	}.with(own)
	writeFile(t, h.config+".new", all.yaml(t))
	if err := os.Rename(h.config+".new", h.config); err != nil {
		t.Fatal(err)
	}
}

// Fifty reloads while all that there can be is under way: a download, an upload, a
// tunnel that is kept, requests that wait for a Crawl-delay, and a crowd. Nothing is
// lost, nothing is fetched again, and the slow host sees its spacing.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	const reloads, waiters = 50, 6
	release := make(chan struct{})
	o := newOrigin(t, "busy", "User-agent: *\nDisallow: /private\n")
	o.handle("/held", heldPage("application/octet-stream", "first\n", "second\n", release))
	o.handle("/upload", uploadPage)
	o.handle("/page", textPage("text/plain", "a page"))
	slow := newOrigin(t, "slow", "User-agent: *\nCrawl-delay: 1\n")
	slow.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"identity.from": "n0@foo.example"}))

	download := inFlight(t, p, o, "https", true)
	sent, body := io.Pipe()
	uploaded := make(chan result, 1)
	uploader := p.client(t, false)
	uploader.Timeout = heldFor
	go func() {
		uploaded <- do(t, uploader, http.MethodPost, o.url("http", "/upload"), sent)
	}()
	io.WriteString(body, "half of ")
	tunnel := p.connect(t, o.hostport("https")).secure(t, p, o.Name, "http/1.1")
	inTunnel := func() result {
		tunnel.SetDeadline(time.Now().Add(patience))
		tunnel.send(t, "GET /page HTTP/1.1", "Host: "+o.hostport("https"))
		return tunnel.receive(t, http.MethodGet)
	}
	var asking sync.WaitGroup
	for range waiters {
		asking.Go(func() {
			if got := get(t, p.client(t, false), slow.url("http", "/a")); got.Status != http.StatusOK {
				t.Errorf("who waited: %v", got)
			}
		})
	}
	var over atomic.Bool
	for i := range 3 {
		asking.Go(func() {
			c := p.client(t, i == 0)
			for !over.Load() {
				if got := get(t, c, o.url([]string{"https", "http"}[i%2], "/page")); got.Status != http.StatusOK {
					t.Errorf("one of the crowd: %v %s", got, got.Body)
				}
			}
		})
	}
	for n := 1; n <= reloads; n++ {
		own := outOfTheWay.with(settings{"identity.from": fmt.Sprintf("n%d@foo.example", n), "log.level": []string{"info", "warn"}[n%2]})
		if n%10 == 0 { // another way out
			own["egress.ports"] = []string{"80", fmt.Sprintf("1024-%d", 65535-n)}
		}
		p.rewrite(t, own)
		p.signal(t, syscall.SIGHUP)
		eventually(t, patience, fmt.Sprint("reload ", n), func() bool {
			if got := inTunnel(); got.Status != http.StatusOK {
				t.Errorf("in the tunnel: %v", got)
			}
			hits := o.pages("https")
			for i := len(hits) - 1; i >= 0; i-- {
				if hits[i].Header.Get("From") == own["identity.from"] {
					return true
				}
			}
			return false
		})
	}
	over.Store(true)
	asking.Wait()
	close(release)
	if rest, err := io.ReadAll(download.Body); string(rest) != "second\n" || err != nil {
		t.Errorf("the download went on with %q, %v", rest, err)
	}
	io.WriteString(body, "it")
	body.Close()
	if got := within(t, patience, "the upload ends", uploaded); got.Status != http.StatusOK || !strings.HasPrefix(string(got.Body), "10 ") {
		t.Errorf("the upload: %v %s", got, got.Body)
	}
	for scheme, origin := range map[string]*origin{"http": slow, "https": o} {
		if n := len(origin.arrivals(scheme)) - len(origin.pages(scheme)); n != 1 {
			t.Errorf("%s: robots.txt was fetched %d times", origin.Name, n)
		}
	}
	hits := slow.pages("http")
	wantGaps(t, hits, time.Second)
	if len(hits) != waiters {
		t.Errorf("%d requests came to the slow host, want %d", len(hits), waiters)
	}
}

// SIGHUP with a file that is wrong, or wants what takes a restart, changes nothing and
// says all of it; with none it is the certificates that are read; and never is it an end.
func TestSIGHUPRefused(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "refused", "")
	o.handle("/page", textPage("text/plain", "a page"))
	p := startProxy(t, outOfTheWay)
	p.rewrite(t, outOfTheWay.with(settings{"listen": "127.0.0.1:1", "log.format": "json", "mode": "monitor"}))
	p.signal(t, syscall.SIGHUP)
	for _, line := range []string{
		"listen: changed from " + p.listen + " to 127.0.0.1:1: needs a restart", "log.format: changed from text to json: needs a restart",
	} {
		eventually(t, patience, line, func() bool { return strings.Contains(p.stderr.String(), line) })
	}
	writeFile(t, p.config, "mode: nonsense\npace: {burst: 0}\n")
	p.signal(t, syscall.SIGHUP)
	for _, line := range []string{":1: mode: ", ":2: pace.burst: "} {
		eventually(t, patience, line, func() bool { return strings.Contains(p.stderr.String(), line) })
	}
	if err := os.Remove(p.config); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGHUP)
	eventually(t, patience, "it is said that the file is gone", func() bool { return strings.Contains(p.stderr.String(), "no such file") })
	if got := get(t, p.client(t, false), o.url("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
}

// A ConfigMap is a directory of links; what they lead to is swapped as a whole.
func TestReloadOfAConfigMap(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "configmap", "User-agent: *\nDisallow: /private\n")
	o.handle("/private", textPage("text/plain", "private"))
	h := newHouse(t, outOfTheWay)
	text, err := os.ReadFile(h.config)
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
	writeFile(t, filepath.Join(dir, "..1", "config.yaml"), string(text))
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/config.yaml", filepath.Join(dir, "config.yaml")))
	h.config = filepath.Join(dir, "config.yaml")
	p := launch(t, h)
	p.awaitReady(t)
	p.ca = strings.TrimSuffix(command(t, "ca", "path", "-c", p.config).want(t, 0).stdout, "\n")
	t.Cleanup(func() { p.end(t) })
	client := p.client(t, false)
	if got := get(t, client, o.url("https", "/private")); got.Status != http.StatusForbidden {
		t.Fatalf("%v", got)
	}
	must(os.Mkdir(filepath.Join(dir, "..2"), 0o700))
	writeFile(t, filepath.Join(dir, "..2", "config.yaml"), "mode: monitor\n"+string(text))
	must(os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	must(os.RemoveAll(filepath.Join(dir, "..1")))
	eventually(t, patience, "mode: monitor", func() bool { return get(t, client, o.url("https", "/private")).Status == http.StatusOK })
}

// What the command line says stays over what the file says; without a file certificates
// are read anew. systemd is told of each.
func TestReloadWithFlags(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "flags", "")
	o.handle("/page", textPage("text/plain", "a page"))
	h := newHouse(t, outOfTheWay)
	file := h.config
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	var told syncBuffer
	go io.Copy(&told, manager)
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	h.listen = "127.0.0.1:1"
	h.rewrite(t, outOfTheWay)
	h.listen = listen
	p := launch(t, h, "env", "NOTIFY_SOCKET="+manager.LocalAddr().String(), "sh", "-c", `exec "$@" --listen `+listen, "sh")
	p.awaitReady(t)
	t.Cleanup(func() { p.end(t) })
	p.ca = strings.TrimSuffix(command(t, "ca", "path", "-c", file).want(t, 0).stdout, "\n")
	h.listen = "127.0.0.1:2"
	h.rewrite(t, outOfTheWay.with(settings{"identity.from": "after@foo.example"}))
	h.listen = listen
	p.signal(t, syscall.SIGHUP)
	eventually(t, patience, "the reload", func() bool { return strings.Contains(p.stderr.String(), "key=identity.from") })
	if get(t, p.client(t, false), o.url("http", "/page")); o.pages("http")[0].Header.Get("From") != "after@foo.example" {
		t.Error("the file is not in force")
	}
	p.signal(t, syscall.SIGTERM)
	within(t, patience, "serve ends", p.exited)
	eventually(t, patience, "systemd is told all", func() bool {
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
