package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/tdmrep"
)

// keys are values of a configuration by dotted key; entries of lists are whole.
type keys map[string]any

// file writes them as a configuration: JSON is YAML.
func (k keys) file(t testing.TB, name string) {
	t.Helper()
	root := map[string]any{}
	for key, value := range k {
		section, leaf, nested := strings.Cut(key, ".")
		if !nested {
			root[key] = value
			continue
		}
		inner, _ := root[section].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			root[section] = inner
		}
		inner[leaf] = value
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k keys) with(other keys) keys {
	all := maps.Clone(k)
	maps.Copy(all, other)
	return all
}

// A standing is a serving daemon and an origin.
type standing struct {
	t      testing.TB
	daemon *Daemon
	base   keys
	file   string
	hup    chan os.Signal
	said   *lockedBuffer
	origin *loopSite
	stop   func()
}

type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A loopSite answers with a robots.txt, and with the User-Agent of the request.
type loopSite struct {
	*httptest.Server
	robots string

	mu     sync.Mutex // guards what follows
	seen   []*http.Request
	tdmrep string // its tdmrep.json; "": a page, as for any path
}

func (s *loopSite) setTDMRep(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tdmrep = text
}

func newSite(t testing.TB, robots string) *loopSite {
	s := &loopSite{robots: robots}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *loopSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r)
	rights := s.tdmrep
	s.mu.Unlock()
	switch {
	case r.URL.Path == tdmrep.Path && rights != "":
		io.WriteString(w, rights)
	case r.URL.Path != "/robots.txt":
		fmt.Fprintf(w, "as %s from %s", r.UserAgent(), r.Header.Get("From"))
	case s.robots == "":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.Header().Set("Cache-Control", "max-age="+r.Header.Get("X-Age"))
		io.WriteString(w, s.robots)
	}
}

func (s *loopSite) asked(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}

const siteRobots = "User-agent: *\nDisallow: /private\n\nUser-agent: FooBot\nDisallow: /foo\nCrawl-delay: 60\n"

// stand starts a daemon with these keys in addition to those that let it reach the
// origin.
func stand(t testing.TB, own keys) *standing {
	t.Helper()
	return standBy(t, own, func(*settings) {})
}

// standBy is stand with other settings.
func standBy(t testing.TB, own keys, change func(*settings)) *standing {
	t.Helper()
	s := &standing{
		t: t, file: filepath.Join(t.TempDir(), "config.yaml"), hup: make(chan os.Signal, 1), said: &lockedBuffer{},
		origin: newSite(t, siteRobots),
	}
	s.base = keys{
		"listen": "127.0.0.1:0", "state_dir": t.TempDir(), "admin.listen": "", "egress.allow_private": []string{"127.0.0.0/8"},
		"pace.requests_per_second": 1000, "pace.burst": 1000, "pace.max_concurrent": 100,
	}.with(own)
	s.base.file(t, s.file)
	from := settings{file: s.file, sighup: s.hup, level: new(slog.LevelVar)}
	from.load = func() (config.Config, error) {
		cfg, err := config.Load(s.file)
		if err != nil {
			return config.Config{}, err
		}
		return cfg, cfg.Check()
	}
	from.sum, _ = fileSum(s.file)
	change(&from)
	cfg, err := from.load()
	if err != nil {
		t.Fatal(err)
	}
	from.files = fileSums(cfg)
	s.daemon, err = New(cfg, Resources{}, cli.NewLogger(cfg.Log, s.said, from.level))
	if err != nil {
		t.Fatal(err)
	}
	s.daemon.reloader = newReloader(s.daemon, from)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.daemon.Run(ctx, ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// reload writes these keys, in addition to the first ones, and reloads.
func (s *standing) reload(own keys) error {
	s.t.Helper()
	s.base.with(own).file(s.t, s.file+".new")
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
	return s.daemon.Reload(s.t.Context())
}

// get asks through the proxy, over a connection of its own.
func (s *standing) get(address string, user *url.Userinfo) (status int, body string) {
	s.t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", User: user, Host: s.daemon.Addr()}), DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Get(address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// decide says what would be decided of a request to the origin.
func (s *standing) decide(q policy.Request) policy.Decision {
	s.t.Helper()
	if q.Origin == (robots.Origin{}) {
		q.Origin, _ = robots.ParseOrigin("http", strings.TrimPrefix(s.origin.URL, "http://"))
	}
	if q.PathQuery == "" {
		q.PathQuery = "/page"
	}
	q.Method = http.MethodGet
	d, _ := s.daemon.handler.Explain(s.t.Context(), q)
	return d
}

// lastLine is a member of the audit's last line, after a request that was refused.
func (s *standing) lastLine(member string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.daemon.AuditFile())
	if err != nil {
		s.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(line[member])
}
