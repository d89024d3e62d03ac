package operations

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

const adminToken = "a-token-for-the-operator"

type apiDecisions struct {
	Decisions []json.RawMessage
	Newest    uint64
}

// auditLines returns the complete lines of the file.
func auditLines(t testing.TB, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if whole, ok := bytes.CutSuffix(line, []byte("\n")); ok {
			all = append(all, string(whole))
		}
	}
	return all
}

// The API returns exactly the lines of the audit.
func TestAPITellsTheAudit(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "api", "User-agent: *\nDisallow: /private\nAllow: /\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	for i, path := range []string{"/page", "/private/<script>\"'", "/page?q=%1b%5b31m&a", "/private"} {
		for _, scheme := range []string{"http", "https"} {
			e2e.Get(t, client, o.URL(scheme, path), "User-Agent", fmt.Sprintf("Bot%d/1.0 \"\\<b>\u202e\u009b", i))
		}
	}
	var want []string
	testkit.Eventually(t, "all records are in the file", func() bool { want = auditLines(t, p.Audit); return len(want) >= 10 }) // two of them are about fetches
	got := e2e.API[apiDecisions](t, p, "GET", "decisions", "", 200)
	var lines []string
	for _, d := range got.Decisions {
		lines = append(lines, string(d))
	}
	if diff := cmp.Diff(want, lines); diff != "" || got.Newest != uint64(len(want)) {
		t.Errorf("newest %d, lines (-file +API):\n%s", got.Newest, diff)
	}
	for query, n := range map[string]int{"decision=block": 4, "host=" + o.Name: 10, "decision=allow&q=page%3Fq": 2, "reason=pace": 0, "agent=bot0": 2, "limit=3": 3} {
		if got := e2e.API[apiDecisions](t, p, "GET", "decisions?"+query, "", 200); len(got.Decisions) != n {
			t.Errorf("%s: %d, want %d", query, len(got.Decisions), n)
		}
	}
	series := e2e.API[struct{ Allowed, Blocked []int64 }](t, p, "GET", "series?span=day", "", 200)
	var counted int64
	for _, n := range slices.Concat(series.Allowed, series.Blocked) {
		counted += n
	}
	if counted != 8 {
		t.Errorf("%d decisions in %+v, want 8", counted, series)
	}
	blockers := e2e.API[struct {
		Blockers []struct {
			Host, Rule, Reason string
			Line               int
			Count              int64
		}
	}](t, p, "GET", "blockers", "", 200).Blockers
	if len(blockers) != 2 || blockers[0].Host != o.Name || blockers[0].Rule != "/private" || blockers[0].Line != 2 || blockers[0].Count != 2 {
		t.Errorf("%+v", blockers)
	}
}

// An operator who knows that a site has changed its file need not wait.
func TestAPIForgetsAndFetches(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "api-purge", "User-agent: *\nDisallow: /old\n")
	o.Handle("/old", e2e.TextPage("text/plain", "old"))
	o.Handle("/new", e2e.TextPage("text/plain", "new"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	about := fmt.Sprintf(`{"origin":"http://%s"}`, o.Hostport("http"))
	wantStatus := func(path string, status int) {
		t.Helper()
		if got := e2e.Get(t, client, o.URL("http", path)); got.Status != status {
			t.Errorf("%s: %d, want %d", path, got.Status, status)
		}
	}
	wantStatus("/old", 403)
	o.Handle("/robots.txt", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /new\n"))
	wantStatus("/old", 403)
	if n := o.Fetches("http"); n != 1 {
		t.Fatalf("%d fetches", n)
	}
	if got := e2e.API[struct{ Purged bool }](t, p, "POST", "purge", about, 200); !got.Purged {
		t.Error("there was nothing to forget")
	}
	if n := o.Fetches("http"); n != 1 {
		t.Errorf("to forget fetches nothing: %d", n)
	}
	wantStatus("/old", 200)
	wantStatus("/new", 403)
	if n := o.Fetches("http"); n != 2 {
		t.Errorf("%d fetches", n)
	}
	o.Handle("/robots.txt", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /old\nDisallow: /older\n"))
	if got := e2e.API[struct{ Rules int }](t, p, "POST", "refetch", about, 200); got.Rules != 2 || o.Fetches("http") != 3 {
		t.Errorf("%+v after %d fetches", got, o.Fetches("http"))
	}
	wantStatus("/new", 200)
	wantStatus("/old", 403)

	list := e2e.API[struct{ Hosts []e2e.APIHost }](t, p, "GET", "hosts?q=api-purge", "", 200).Hosts
	if len(list) != 1 || list[0].Host != o.Name || list[0].Blocked != 4 || len(list[0].Origins) != 1 || list[0].Origins[0].Text != "" || list[0].Pace == nil {
		t.Errorf("%+v", list)
	}
	host := e2e.API[e2e.APIHost](t, p, "GET", "hosts/"+o.Name, "", 200)
	if len(host.Origins) != 1 || host.Origins[0].Text != "User-agent: *\nDisallow: /old\nDisallow: /older\n" || host.Origins[0].Rules != 2 || len(host.Causes) == 0 {
		t.Errorf("%+v", host)
	}
	if n := o.Fetches("http"); n != 3 {
		t.Errorf("to look fetches nothing: %d", n)
	}
}

// Explain predicts what a request then gets, and each member of its record.
func TestAPIExplainsWhatARequestGets(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "api-explain", "User-agent: *\nDisallow: /\nAllow: /open\n\nUser-agent: foobot\nCrawl-delay: 0.01\nDisallow: /private\nContent-Signal: search=yes\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"hosts": []any{
		map[string]any{"match": "denied.test", "robots": "deny", "reason": "closed to us"},
	}}))
	client := p.Client(t, false)
	for i, c := range []struct{ address, agent string }{
		{o.URL("http", "/page"), e2e.FooBot}, {o.URL("http", "/private/x?y=<z>"), e2e.FooBot}, {o.URL("https", "/private/../page"), e2e.FooBot}, {o.URL("http", "/open"), "curl/8"},
		{o.URL("http", "/page"), ""}, {o.URL("http", "/robots.txt"), e2e.FooBot}, {"http://denied.test/x", e2e.FooBot}, {"http://10.0.0.1/", e2e.FooBot}, {"http://" + o.Name + ":22/", e2e.FooBot},
		{"http://nowhere.test/", e2e.FooBot},
	} {
		before := len(o.Pages("http")) + len(o.Pages("https"))
		question, _ := json.Marshal(map[string]string{"url": c.address, "user_agent": c.agent, "client": "127.0.0.1"})
		foretold := e2e.API[map[string]any](t, p, "POST", "explain", string(question), 200)
		if after := len(o.Pages("http")) + len(o.Pages("https")); after != before {
			t.Errorf("%s: a page was asked for", c.address)
		}
		req, err := http.NewRequest(http.MethodGet, c.address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["User-Agent"] = []string{c.agent}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.address, err)
		}
		status := e2e.Read(t, resp).Status
		var line string
		testkit.Eventually(t, "its record", func() bool {
			lines := slices.DeleteFunc(auditLines(t, p.Audit), func(line string) bool { return strings.Contains(line, `"kind":`) })
			if len(lines) > i {
				line = lines[i]
			}
			return line != ""
		})
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if (foretold["decision"] == "allow") != (status != 403 && status != 502) {
			t.Errorf("%s: foretold %v, answered %d", c.address, foretold["decision"], status)
		}
		for _, member := range strings.Fields("decision reason entry entry_reason rule line group agent robots_url robots_fetched robots_sha256 dialect robots_content_signal crawl_delay_s crawl_delay_asked_s") {
			want, got := record[member], foretold[member]
			if member == "robots_fetched" { // the audit always writes nine digits
				want, got = instant(want), instant(got)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-record +foretold):\n%s", c.address, member, diff)
			}
		}
	}
}

// Without the token, nobody learns anything but the health.
func TestAPIAsksForTheToken(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{"admin.token": adminToken})
	admin := "http://" + p.Admin
	with := []string{"Authorization", "Bearer " + adminToken}
	for path, open := range map[string]bool{
		"/healthz": true, "/readyz": true, "/metrics": false, "/": false, "/api/v1/": false, "/api/v1/decisions": false, "/api/v1/decisions/stream": false,
		"/api/v1/hosts": false, "/api/v1/ca.pem": false, "/api/v1/proxy.pac": false, "/api/v1/nothing": false,
	} {
		got := e2e.Get(t, e2e.Operator(t), admin+path)
		if open != (got.Status == 200) || !open && (got.Status != 401 || !strings.HasPrefix(got.Header.Get("WWW-Authenticate"), "Bearer")) {
			t.Errorf("%s: %d %v", path, got.Status, got.Header)
		}
		if bytes.Contains(got.Body, []byte(adminToken)) {
			t.Errorf("%s tells the token:\n%s", path, got.Body)
		}
		if path != "/" && path != "/api/v1/nothing" && path != "/api/v1/decisions/stream" {
			if got := e2e.Get(t, e2e.Operator(t), admin+path, with...); got.Status != 200 {
				t.Errorf("%s with the token: %d", path, got.Status)
			}
		}
	}
	e2e.Command(t, "health", "-c", p.Config).Want(t, 0)
	if got := e2e.Command(t, "config", "show", "-c", p.Config).Want(t, 0); strings.Contains(got.Stdout, adminToken) {
		t.Error("config show tells the token")
	}
	pem, err := os.ReadFile(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	if got := e2e.Get(t, e2e.Operator(t), admin+"/api/v1/ca.pem", with...); !bytes.Equal(got.Body, pem) {
		t.Errorf("ca.pem:\n%s", got.Body)
	}
	if got := e2e.Get(t, e2e.Operator(t), admin+"/api/v1/proxy.pac", with...); !strings.Contains(string(got.Body), `"PROXY `+p.Listen+`"`) {
		t.Errorf("proxy.pac:\n%s", got.Body)
	}
	if log := p.Stderr.String(); strings.Contains(log, adminToken) {
		t.Error("the log tells the token")
	}
}

// The login with a real client whose cookie jar is a file.
func TestAPILogin(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	p := e2e.StartProxy(t, e2e.Settings{"admin.token": adminToken})
	jar := filepath.Join(t.TempDir(), "jar")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(curl, append([]string{"-q", "-sS", "--noproxy", "*", "-b", jar, "-c", jar, "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"}, args...)...)
		cmd.Env = e2e.CleanEnv()
		return e2e.Finish(t, cmd).Want(t, 0).Stdout
	}
	admin := "http://" + p.Admin
	for _, step := range []struct {
		name, want string
		args       []string
	}{
		{"a page leads to the login", "303 " + admin + "/login?next=%2Fhosts", []string{"-H", "Accept: text/html", admin + "/hosts"}},
		{"a wrong token", "401 ", []string{"-d", "token=wrong", admin + "/login"}},
		{"which opens nothing", "401 ", []string{admin + "/api/v1/hosts"}},
		{"a form of another site", "403 ", []string{"-H", "Origin: https://evil.test", "-d", "token=" + adminToken, admin + "/login"}},
		{"the token", "303 " + admin + "/hosts", []string{"-d", "token=" + adminToken + "&next=/hosts", admin + "/login"}},
		{"the cookie opens the API", "200 ", []string{admin + "/api/v1/hosts"}},
		{"another site cannot use it", "403 ", []string{"-H", "Sec-Fetch-Site: cross-site", "-X", "POST", admin + "/api/v1/reload"}},
		{"the logout", "303 " + admin + "/login", []string{"-X", "POST", admin + "/logout"}},
		{"which closes it", "401 ", []string{admin + "/api/v1/hosts"}},
	} {
		if got := run(step.args...); got != step.want {
			t.Fatalf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// A web page whose own name resolves to this machine gets nothing.
func TestAPIRefusesAnothersName(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, nil)
	for host, status := range map[string]int{"evil.test": 421, "localhost:1": 200, p.Admin: 200} {
		for _, path := range []string{"/api/v1/decisions", "/healthz", "/metrics"} {
			req, err := http.NewRequest(http.MethodGet, "http://"+p.Admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := e2e.Operator(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := e2e.Read(t, resp).Status; got != status {
				t.Errorf("%s for %s: %d, want %d", path, host, got, status)
			}
		}
	}
	if got := e2e.Do(t, e2e.Operator(t), "POST", "http://"+p.Admin+"/api/v1/reload", nil, "Origin", "https://evil.test"); got.Status != 403 {
		t.Errorf("a form of another site: %d", got.Status)
	}
}

// The stream sends each line of the audit when it is written, and does not delay the
// shutdown.
func TestAPIStream(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "api-stream", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Admin+"/api/v1/decisions/stream?host="+o.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := e2e.Operator(t)
	client.Timeout = 0 // each wait below has its own timeout
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	const requests, lines = 20, 21 // one line is about the fetch of robots.txt
	open, told, ended := make(chan struct{}), make(chan []string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		events := bufio.NewScanner(resp.Body)
		events.Scan()
		close(open)
		var all []string
		for events.Scan() {
			if data, ok := strings.CutPrefix(events.Text(), "data: "); ok {
				if all = append(all, data); len(all) == lines {
					told <- all
				}
			}
		}
	}()
	testkit.Within(t, "the stream is open", open)
	visitor := p.Client(t, false)
	for i := range requests {
		e2e.Get(t, visitor, o.URL("http", []string{"/page", "/private"}[i%2]))
	}
	got := testkit.Within(t, "all lines are told", told)
	if want := auditLines(t, p.Audit)[1:]; !slices.Equal(got, want) {
		t.Errorf("(-file +stream):\n%s", cmp.Diff(want, got))
	}
	p.Signal(t, syscall.SIGTERM)
	testkit.Within(t, "the stream ends", ended)
	testkit.Within(t, "serve ends", p.Exited)
	if p.Code != 0 { // as if a stream were open a second later
		t.Errorf("ended with status %d", p.Code)
	}
}

// instant returns a time from a member of JSON. It returns other values unchanged.
func instant(member any) any {
	text, _ := member.(string)
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	return member
}

// A client that has the port of the admin or the metrics listener in its proxy setting is told where the proxy is, for http and
// for https, and nothing is sent. It needs no token for that.
func TestOperatorsPortsSayWhereTheProxyIs(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "otherport", "")
	metrics := fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(t))
	p := e2e.StartProxy(t, e2e.Settings{"admin.token": adminToken, "admin.metrics_listen": metrics})
	for listener, at := range map[string]string{"admin": p.Admin, "metrics": metrics} {
		text := "this is the " + listener + " listener; the proxy is at " + p.Listen
		for _, scheme := range []string{"http", "https"} {
			got := e2e.RunPeer(t, []string{curl, "-q", "-s", "-i", "-x", "http://" + at, o.URL(scheme, "/a")}, e2e.CleanEnv()).Stdout
			if !strings.HasPrefix(got, "HTTP/1.1 421 ") || !strings.Contains(got, text+`"`) {
				t.Errorf("%s, %s:\n%s", listener, scheme, got)
			}
			if scheme == "http" && !strings.Contains(got, "robotsproxy: "+text+"\n") {
				t.Errorf("%s: the body does not say it:\n%s", listener, got)
			}
		}
	}
	if n := len(o.Arrivals("http")) + len(o.Arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
