package cli

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A recipe is a section of docs/clients.md or docs/clients-js.md: the files and the commands in
// it.
type recipe struct {
	files map[string]string
	run   string
}

// readRecipes returns the recipes by the title of their section.
func readRecipes(t testing.TB) map[string]recipe {
	t.Helper()
	all := map[string]recipe{}
	text := e2e.ReadText(t, e2e.TreeRoot()+"/docs/clients.md") + e2e.ReadText(t, e2e.TreeRoot()+"/docs/clients-js.md")
	for section := range strings.SplitSeq(text, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		r := recipe{files: map[string]string{}}
		for _, block := range e2e.Fence.FindAllStringSubmatch(text, -1) {
			if block[1] == "run" {
				r.run += block[3]
			} else {
				r.files[block[2]] = block[3]
			}
		}
		if r.run != "" || len(r.files) > 0 {
			all[title] = r
		}
	}
	return all
}

// needAll requires several peers.
func needAll(needs ...func(testing.TB) []string) func(testing.TB) []string {
	return func(t testing.TB) (first []string) {
		t.Helper()
		for _, need := range needs {
			if argv := need(t); first == nil {
				first = argv
			}
		}
		return first
	}
}

// needR returns an Rscript that has the package.
func needR(library string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := e2e.NeedPeer(t, "Rscript")
		if exec.Command(path, "-e", "find.package('"+library+"')").Run() != nil {
			testkit.Missing(t, library+" for R")
		}
		return []string{path}
	}
}

// optional marks peers that are too large for every machine. Their recipes were also run
// by hand.
func optional(names ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		testkit.Long(t, "real peers")
		for _, name := range names {
			_, err := exec.LookPath(name)
			if filepath.IsAbs(name) {
				_, err = os.Stat(name)
			}
			if err != nil {
				t.Skipf("%s is not on this machine; the recipe was run by hand", name)
			}
		}
		return nil
	}
}

// recipes are the commands of each recipe, its expected output, and the agent that the
// proxy must recognise. The first result of need is the program that the recipe calls by
// name.
var recipes = []struct {
	title string
	need  func(testing.TB) []string
	as    string // name in the recipe, if it differs from the command
	agent string
	says  []string // regular expressions for standard output and error
}{
	{"curl", e2e.NeedCommand("curl"), "", "curl", []string{`(?m)^200$`, `HTTP/\S+ 403`, `(?i)proxy-status: robotsproxy; error=http_request_denied`, `Disallow: /private`}},
	{"wget", e2e.NeedCommand("wget"), "", "Wget", []string{`(?m)^status 8$`, `Disallow: /private`}},
	{"HTTrack", e2e.NeedCommand("httrack"), "", "FooBot", []string{`403.*/private/`}},
	{"Scrapy", needScrapyCommand, "", "FooBot", []string{`"title": "Welcome"`, `"refused": "robotsproxy; error=http_request_denied`}},
	{"requests", e2e.NeedPython("requests"), "python3", "FooBot", bothAnswers},
	{"httpx", e2e.NeedPython("httpx"), "python3", "FooBot", bothAnswers},
	{"aiohttp", e2e.NeedPython("aiohttp"), "python3", "FooBot", bothAnswers},
	{"Node's fetch", e2e.NeedCommand("node24"), "node", "FooBot", bothAnswers},
	{"undici", e2e.NeedModule("undici"), "", "FooBot", bothAnswers},
	{"axios", e2e.NeedModule("axios"), "", "FooBot", bothAnswers},
	{"Crawlee", e2e.NeedModule("@crawlee/cheerio"), "", "FooBot", bothAnswers},
	{"Playwright", needAll(e2e.NeedCommand("node24"), e2e.NeedModule("playwright-core"), e2e.NeedCommand("certutil"), e2e.NeedCommand("chromium")), "node", "FooBot", bothAnswers},
	{"Chromium", needAll(e2e.NeedCommand("chromium"), e2e.NeedCommand("certutil")), "", "FooBot", []string{`<title>Welcome</title>`, `Disallow: /private`}},
	{"Java", optional("java", "javac", "keytool"), "", "FooBot", []string{`(?m)^200$`, `(?m)^403 robotsproxy; error=http_request_denied`}},
	{"jsoup", optional("java", "javac", "keytool", "/usr/share/java/jsoup.jar"), "", "FooBot", bothAnswers},
	{"R", needR("httr2"), "", "FooBot", []string{`(?m)^403 robotsproxy; error=http_request_denied`}},
	{"Git", e2e.NeedCommand("git"), "", "git", []string{`(?m)^status 128$`, `remote: .*Disallow: /private`}},
}

// bothAnswers is the usual output of a recipe.
var bothAnswers = []string{`(?m)^200 https://\S+/ (null)?$`, `(?m)^403 https://\S+/private/ robotsproxy; error=http_request_denied`}

// needScrapyCommand returns the command that the recipe calls.
func needScrapyCommand(t testing.TB) []string {
	t.Helper()
	return []string{e2e.NeedPeer(t, "scrapy")}
}

// Every recipe in the documents works as written.
func TestRecipes(t *testing.T) {
	t.Parallel()
	written := readRecipes(t)
	env := written["Before you start"].files["proxy.env"]
	if len(written) != len(recipes)+1 || env == "" {
		t.Errorf("%d sections with recipes, want the %d that are run, and proxy.env", len(written), len(recipes))
	}
	for _, c := range recipes {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			r, ok := written[c.title]
			if !ok || r.run == "" {
				t.Fatal("no page of docs/ has anything to run under that title")
			}
			argv := c.need(t)
			o := newRecipeSite(t)
			if c.title == "Git" {
				serveRepository(t, o, argv[0], "")
			}
			p := e2e.StartProxy(t, e2e.Unpaced)
			dir := recipeDir(t, p, argv, c.as)
			real := strings.NewReplacer("https://example.com", o.URL("https", ""), "http://example.com", o.URL("http", ""), "8080", p.Listen[strings.LastIndex(p.Listen, ":")+1:])
			e2e.WriteFile(t, filepath.Join(dir, "proxy.env"), real.Replace(env))
			for name, text := range r.files {
				e2e.WriteFile(t, filepath.Join(dir, name), real.Replace(text))
			}
			cmd := exec.Command("sh", "-euc", real.Replace(r.run))
			cmd.Dir = dir
			cmd.Env = e2e.CleanEnv("HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+dir, "JAVA_TOOL_OPTIONS="+e2e.QuickJava)
			out := e2e.Finish(t, cmd)
			said := out.Stdout + out.Stderr
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("it said:\n%s", said)
				}
			})
			if out.Code != 0 {
				t.Errorf("status %d", out.Code)
			}
			for _, want := range c.says {
				if !regexp.MustCompile(want).MatchString(said) {
					t.Errorf("does not say %s", want)
				}
			}
			wantServed(t, o, p, c.agent)
		})
	}
}

// wantServed checks the arrivals at the site and the records for a visit with an allowed
// and a disallowed page.
func wantServed(t testing.TB, o *e2e.Origin, p *e2e.Proxy, agent string) {
	t.Helper()
	open := 0
	for _, h := range append(o.Pages("http"), o.Pages("https")...) {
		if strings.HasPrefix(h.Path, "/private") {
			t.Errorf("%s %s arrived", h.Method, h.Path)
		} else if h.Path == "/" || strings.HasPrefix(h.Path, "/repo.git") {
			open++
		}
	}
	if open == 0 {
		t.Error("nothing that is allowed arrived")
	}
	testkit.Eventually(t, "the refusal is recorded", func() bool {
		for _, r := range e2e.ReadAudit(t, p.Audit) {
			if r.Reason == "rule" && r.Decision == "block" && r.Status == http.StatusForbidden && r.Agent == agent &&
				(strings.HasPrefix(r.URL, o.URL("https", "/private")) || strings.HasPrefix(r.URL, o.URL("http", "/private"))) {
				return true
			}
		}
		return false
	})
}

// The document warns of this: with a proxy, HTTrack still connects to HTTPS sites itself.
func TestHTTrackGoesPastForHTTPS(t *testing.T) {
	t.Parallel()
	httrack := e2e.NeedPeer(t, "httrack")
	o := newRecipeSite(t)
	p := e2e.StartProxy(t, e2e.Unpaced)
	cmd := exec.Command(httrack, fmt.Sprintf("https://%s:%d/", o.Addr(), o.Ports["https"]), "-O", t.TempDir(), "-q", "-P", p.Listen, "--robots=0", "--retries=0")
	cmd.Env = e2e.CleanEnv("HOME=" + t.TempDir())
	e2e.Finish(t, cmd)
	if len(o.Pages("https")) == 0 {
		t.Error("nothing arrived: docs/clients.md says that it goes past the proxy")
	}
	if n := len(e2e.ReadAudit(t, p.Audit)); n != 0 {
		t.Errorf("%d records: docs/clients.md says that it goes past the proxy", n)
	}
}

// recipeDir returns a directory with what the document assumes: the CA, and the recipe's
// command under its name.
func recipeDir(t testing.TB, p *e2e.Proxy, argv []string, as string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	e2e.WriteFile(t, filepath.Join(dir, "ca.pem"), e2e.ReadText(t, p.CA))
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if as != "" {
		wrap(t, filepath.Join(bin, as), argv[0])
	}
	if browser, err := exec.LookPath("chromium"); err == nil { // root cannot use its sandbox
		wrap(t, filepath.Join(bin, "chromium"), browser+" --no-sandbox --no-first-run --disable-background-networking --disable-component-update --disable-sync")
	}
	if modules := os.Getenv("NODE_PATH"); modules != "" { // import does not read NODE_PATH
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wrap writes a command under another name.
func wrap(t testing.TB, file, command string) {
	t.Helper()
	testkit.Must(t, testkit.WriteProgram(file, []byte("#!/bin/sh\nexec "+command+" \"$@\"\n")))
}

// newRecipeSite starts a site with an allowed and a disallowed page.
func newRecipeSite(t testing.TB) *e2e.Origin {
	t.Helper()
	o := e2e.NewOrigin(t, "recipe", "User-agent: *\nDisallow: /private/\n")
	page := `<!doctype html><title>Welcome</title><a href="/private/">private</a>`
	o.Handle("/", e2e.TextPage("text/html", page))
	o.Handle("/private/", e2e.TextPage("text/html", page))
	return o
}

// serveRepository adds the Git repository repo.git below a path to a site.
func serveRepository(t testing.TB, o *e2e.Origin, git, below string) {
	t.Helper()
	dir := t.TempDir()
	script := `git init -q "$1/work" && cd "$1/work" && echo text > file && git add . &&
git -c user.name=e2e -c user.email=e2e@example.com commit -q -m text && git clone -q --bare . "$1/repo.git" && git --exec-path`
	cmd := exec.Command("sh", "-euc", script, "sh", dir)
	cmd.Env = e2e.CleanEnv("HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
	out := e2e.Finish(t, cmd).Want(t, 0)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(out.Stdout), "git-http-backend"), Root: below,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "PATH=" + filepath.Dir(git) + ":" + os.Getenv("PATH")},
	}
	for _, service := range []string{"info/refs", "git-upload-pack"} {
		o.Handle(below+"/repo.git/"+service, backend.ServeHTTP)
	}
}
