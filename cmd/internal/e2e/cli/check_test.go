package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// hostileFile tries to move the cursor, to begin lines and to imitate output of check.
const hostileFile = "User-agent: CheckBot\r\nDisallow: /private\x1b[2J\x1b]0;title\x07\nDisallow: /private\nAllow: /private/open\nCrawl-delay: 30\n" +
	"Content-Signal: search=yes, ai-train=no\nContent-Usage: train-ai=n\x1b[8m\n\n" +
	"Sitemap: https://x.test/1.xml\x1b[1A\x1b[2Kallowed    http://x.test/\u202e\u009b2J\u2028\nSitemap: https://x.test/2.xml\nLicense: https://x.test/terms\n"

// check says what a decision is based on for a real origin. Text from the origin cannot
// leave its place in the output.
func TestCheckExplains(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "explain", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/real.txt", http.StatusFound)
	})
	o.Handle("/real.txt", e2e.TextPage("text/plain", hostileFile))
	h := e2e.NewSetup(t, e2e.Settings{})
	args := []string{"check", "-c", h.Config, "-A", "Lib/1.0 CheckBot/2.0", o.URL("https", "/private/a"), o.URL("https", "/private/open")}
	out := e2e.Command(t, args...).Want(t, 1)
	for line := range strings.Lines(out.Stdout + out.Stderr) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", line)
		}
	}
	for _, want := range []string{
		"disallowed " + o.URL("https", "/private/a") + "\n", "\n\nallowed    " + o.URL("https", "/private/open") + "\n",
		"  rule:           Disallow: /private (line 3)\n", "  group:          checkbot\n",
		"  agent:          CheckBot\n", "  agent from:     the User-Agent header\n", "  considered:     Lib, CheckBot\n", "  dialect:        standard\n",
		"  robots.txt:     " + o.URL("https", "/real.txt") + "\n", "  outcome:        status 200: rules, after 1 redirect\n",
		fmt.Sprintf("  sha256:         %x\n", sha256.Sum256([]byte(hostileFile))), "  crawl-delay:    asks for 30 s between requests; sent every 10 s (robots.max_crawl_delay), line 5: Crawl-delay: 30\n",
		"  sitemaps:       \"https://x.test/1.xml\\x1b[1A", "                  https://x.test/2.xml\n", "  license:        https://x.test/terms\n",
		"  content-signal: search=yes, ai-train=no\n", `  content-usage:  "train-ai=n\x1b[8m"` + "\n", "  outranked:      Disallow: /private (line 3)\n",
	} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("no %q in\n%s", want, out.Stdout)
		}
	}
	if n := strings.Count("\n"+out.Stdout, "\nallowed "); n != 1 {
		t.Errorf("%d lines begin like an answer that allows:\n%s", n, out.Stdout)
	}
	if hits := o.Arrivals("https"); len(hits) != 2 || hits[1].Path != "/real.txt" || hits[0].Header.Get("User-Agent") != "Lib/1.0 CheckBot/2.0" {
		t.Errorf("%d arrivals: %+v", len(hits), hits)
	}
	wantExplainedAsJSON(t, o, e2e.Command(t, append([]string{"check", "--json"}, args[1:]...)...).Want(t, 1))
}

func wantExplainedAsJSON(t *testing.T, o *e2e.Origin, out e2e.Outcome) {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(out.Stdout) {
		var f map[string]any
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found = append(found, f)
	}
	if len(found) != 2 || found[0]["allow"] != false || found[1]["allow"] != true {
		t.Fatalf("%s", out.Stdout)
	}
	f := found[0]
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(f["robots_fetched"])); err != nil || time.Since(at) > testkit.Patience {
		t.Errorf("fetched %v", f["robots_fetched"])
	}
	for name, want := range map[string]string{
		"url": o.URL("https", "/private/a"), "reason": "rule", "rule": "/private", "line": "3", "group": "checkbot", "agent": "CheckBot",
		"agent_from": "user_agent", "agents": "[Lib CheckBot]", "crawl_delay_s": "10", "crawl_delay_asked_s": "30", "dialect": "standard",
		"robots_url": o.URL("https", "/real.txt"), "robots_status": "200", "robots_sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(hostileFile))),
		"licenses": "[https://x.test/terms]", "content_signals": "map[ai-train:no search:yes]", "content_usage": "train-ai=n\x1b[8m",
	} {
		if fmt.Sprint(f[name]) != want {
			t.Errorf("%s: %v, want %s", name, f[name], want)
		}
	}
}

// check reports every outcome of a fetch.
func TestCheckExplainsFailures(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Settings{})
	for _, c := range []struct {
		status, code int
		first, row   string
	}{
		{404, 0, "allowed ", "  outcome:        status 404: no file\n"},
		{503, 2, "unknown ", "  outcome:        status 503: unreachable\n"},
		{429, 2, "unknown ", "  outcome:        status 429: unreachable\n"},
	} {
		o := e2e.NewOrigin(t, "failing", "")
		o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
		out := e2e.Command(t, "check", "-c", h.Config, "-A", "CheckBot/1.0", o.URL("http", "/a")).Want(t, c.code)
		if !strings.HasPrefix(out.Stdout, c.first) || !strings.Contains(out.Stdout, c.row) {
			t.Errorf("status %d:\n%s", c.status, out.Stdout)
		}
	}
	out := e2e.Command(t, "check", "-c", h.Config, "http://"+e2e.DeadEnd(t)+"/a").Want(t, 2)
	if !strings.Contains(out.Stdout, "  outcome:        no connection\n") || !strings.Contains(out.Stdout, "  error:          ") {
		t.Errorf("nobody listens:\n%s", out.Stdout)
	}
	out = e2e.Command(t, "check", "http://127.0.0.1:1/a").Want(t, 2)
	if !strings.Contains(out.Stdout, "does not connect to this port (egress.ports)") {
		t.Errorf("a forbidden destination:\n%s", out.Stdout)
	}
}

// dialects returns all values of --dialect.
func dialects() (names []string) {
	for _, d := range robots.Dialects() {
		names = append(names, d.Name)
	}
	return names
}

// A vector is a line of robots/testdata: the meaning of a robots.txt, as data.
type vector struct {
	Name, Robots, Agent, URL, Why string

	Allow   bool
	Seconds float64

	UserAgent string  `json:"user_agent"`
	Token     *string `json:"product_token"`
	Groups    []string
	Group     string

	Dialects []string // dialects for which it holds; nil: all
}

// readVectors returns the vectors of a file that hold for a dialect.
func readVectors(t *testing.T, file, dialect string) []vector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e2e.TreeRoot(), "robots/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	for line := range bytes.Lines(text) {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if v.Dialects == nil || slices.Contains(v.Dialects, dialect) {
			vectors = append(vectors, v)
		}
	}
	return vectors
}

// A verdict is one line of output of check --batch.
type verdict struct {
	Allow       *bool
	Rule, Group string
	Line        int
	Delay       float64 `json:"crawl_delay"`
	Agent       *string
	Error       string
}

// judged runs check --batch with the cases.
func judged(t *testing.T, dialect string, cases []map[string]string) []verdict {
	t.Helper()
	var in bytes.Buffer
	for _, c := range cases {
		if err := json.NewEncoder(&in).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := e2e.Prepare(t, "check", "--batch", "--dialect", dialect)
	cmd.Stdin = &in
	out := e2e.Finish(t, cmd).Want(t, 0)
	var verdicts []verdict
	for line := range strings.Lines(out.Stdout) {
		var v verdict
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.Error != "" || v.Allow == nil {
			t.Fatalf("%s: case %d: %q, %v", dialect, len(verdicts)+1, line, err)
		}
		verdicts = append(verdicts, v)
	}
	if len(verdicts) != len(cases) || out.Stderr != "" {
		t.Fatalf("%s: %d answers to %d cases\n%s", dialect, len(verdicts), len(cases), out.Stderr)
	}
	return verdicts
}

// check --batch agrees with every vector.
func TestBatchOfAccessVectors(t *testing.T) {
	t.Parallel()
	for _, d := range dialects() {
		vectors := readVectors(t, "access.jsonl", d)
		var cases []map[string]string
		for _, v := range vectors {
			cases = append(cases, map[string]string{"robots": v.Robots, "agent": v.Agent, "url": v.URL})
		}
		if len(cases) == 0 {
			t.Errorf("%s: no vectors", d)
		}
		for i, got := range judged(t, d, cases) {
			if v := vectors[i]; *got.Allow != v.Allow {
				t.Errorf("%s: %s: %s for %s: allow %t (line %d), want %t; robots.txt:\n%s", d, v.Name, v.URL, v.Agent, *got.Allow, got.Line, v.Allow, v.Robots)
			}
		}
	}
}

func TestBatchOfCrawlDelayVectors(t *testing.T) {
	t.Parallel()
	for _, d := range dialects() {
		vectors := readVectors(t, "crawl_delay.jsonl", d)
		var cases []map[string]string
		for _, v := range vectors {
			cases = append(cases, map[string]string{"robots": v.Robots, "agent": v.Agent, "url": "http://a.test/"})
		}
		for i, got := range judged(t, d, cases) {
			if v := vectors[i]; got.Delay != v.Seconds {
				t.Errorf("%s: %s: %g s, want %g; robots.txt:\n%s", d, v.Name, got.Delay, v.Seconds, v.Robots)
			}
		}
	}
}

// A row gives either the token of a header, or the group among some that applies.
func TestBatchOfUserAgentVectors(t *testing.T) {
	t.Parallel()
	for _, d := range dialects() {
		vectors := readVectors(t, "user_agents.jsonl", d)
		var cases []map[string]string
		for _, v := range vectors {
			var file strings.Builder
			for _, name := range v.Groups {
				file.WriteString("User-agent: " + name + "\nDisallow: /\n\n")
			}
			cases = append(cases, map[string]string{"robots": file.String(), "user_agent": v.UserAgent, "url": "http://a.test/"})
		}
		for i, got := range judged(t, d, cases) {
			v := vectors[i]
			switch {
			case got.Agent == nil:
				t.Errorf("%s: %s: no agent", d, v.UserAgent)
			case v.Token != nil && *got.Agent != *v.Token:
				t.Errorf("%s: %s: token %q, want %q (%s)", d, v.UserAgent, *got.Agent, *v.Token, v.Why)
			case v.Token == nil && (got.Group != v.Group || *got.Allow != (v.Group == "")):
				t.Errorf("%s: %s among %q: group %q, allow %t, want %q (%s)", d, v.UserAgent, v.Groups, got.Group, *got.Allow, v.Group, v.Why)
			}
		}
	}
}
