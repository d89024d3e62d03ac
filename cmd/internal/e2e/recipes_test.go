package e2e

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
)

// A recipe is a section of docs/recipes.md: the files that it has one write,
// and the lines that it has one run.
type recipe struct {
	files map[string]string
	run   string
}

var fence = regexp.MustCompile("(?ms)^```[a-z]+ (file=|run)(\\S*)\n(.*?)^```$")

// readRecipes reads them, by the title of their section.
func readRecipes(t testing.TB) map[string]recipe {
	t.Helper()
	all := map[string]recipe{}
	for section := range strings.SplitSeq(readText(t, treeRoot+"/docs/recipes.md"), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		r := recipe{files: map[string]string{}}
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
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

// needAll wants each of some peers.
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

// needModule finds a Node that has the module, by NODE_PATH.
func needModule(module string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := needPeer(t, "node")
		if exec.Command(path, "-e", "require.resolve(process.argv[1])", module).Run() != nil {
			missing(t, module+" for "+path)
		}
		return []string{path}
	}
}

// needR finds an Rscript that has the package.
func needR(library string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := needPeer(t, "Rscript")
		if exec.Command(path, "-e", "library("+library+")").Run() != nil {
			missing(t, library+" for R")
		}
		return []string{path}
	}
}

// optional is for what is too large to have everywhere: where it is not, the
// recipe was run by hand.
func optional(names ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
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

// recipes are how each shows that it went through and was refused, and the
// agent that the proxy took it for. What need gives first is what the recipe
// calls by name.
var recipes = []struct {
	title string
	need  func(testing.TB) []string
	as    string // the name in the recipe, where it is not the command's own
	agent string
	says  []string // regular expressions of standard output and error
}{
	{"curl", needCommand("curl"), "", "curl", []string{`(?m)^200$`, `HTTP/\S+ 403`, `(?i)proxy-status: robotsproxy; error=http_request_denied`, `Disallow: /private`}},
	{"wget", needCommand("wget"), "", "Wget", []string{`(?m)^status 8$`, `Disallow: /private`}},
	{"HTTrack", needCommand("httrack"), "", "FooBot", []string{`403.*/private/`}},
	{"Scrapy", needScrapyCommand, "", "FooBot", []string{`"title": "Welcome"`, `"refused": "robotsproxy; error=http_request_denied`}},
	{"requests", needPython("requests"), "python3", "FooBot", bothAnswers},
	{"httpx", needPython("httpx"), "python3", "FooBot", bothAnswers},
	{"aiohttp", needPython("aiohttp"), "python3", "FooBot", bothAnswers},
	{"Node's fetch", needCommand("node24"), "node", "FooBot", bothAnswers},
	{"undici", needModule("undici"), "", "FooBot", bothAnswers},
	{"axios", needModule("axios"), "", "FooBot", bothAnswers},
	{"Crawlee", needModule("@crawlee/cheerio"), "", "FooBot", bothAnswers},
	{"Playwright", needAll(needCommand("node24"), needModule("playwright-core"), needCommand("certutil"), needCommand("chromium")), "node", "FooBot", bothAnswers},
	{"Chromium", needAll(needCommand("chromium"), needCommand("certutil")), "", "FooBot", []string{`<title>Welcome</title>`, `Disallow: /private`}},
	{"Java", optional("java", "javac", "keytool"), "", "FooBot", []string{`(?m)^200$`, `(?m)^403 robotsproxy; error=http_request_denied`}},
	{"jsoup", optional("java", "javac", "keytool", "/usr/share/java/jsoup.jar"), "", "FooBot", bothAnswers},
	{"R", needR("httr2"), "", "FooBot", []string{`(?m)^403 robotsproxy; error=http_request_denied`}},
	{"Git", needCommand("git"), "", "git", []string{`(?m)^status 128$`, `remote: .*Disallow: /private`}},
}

// bothAnswers is what most recipes print.
var bothAnswers = []string{`(?m)^200 https://\S+/ (null)?$`, `(?m)^403 https://\S+/private/ robotsproxy; error=http_request_denied`}

// needScrapyCommand finds the command itself, which the recipe calls.
func needScrapyCommand(t testing.TB) []string {
	t.Helper()
	return []string{needPeer(t, "scrapy")}
}

// Every recipe does what it says, as it stands in the document.
func TestRecipes(t *testing.T) {
	t.Parallel()
	written := readRecipes(t)
	env := written["Before all"].files["proxy.env"]
	if len(written) != len(recipes)+1 || env == "" {
		t.Errorf("%d sections with recipes, want the %d that are run, and proxy.env", len(written), len(recipes))
	}
	for _, c := range recipes {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			r, ok := written[c.title]
			if !ok || r.run == "" {
				t.Fatal("docs/recipes.md has nothing to run under that title")
			}
			argv := c.need(t)
			o := newRecipeSite(t)
			p := startProxy(t, outOfTheWay)
			dir := kitchen(t, p, argv, c.as)
			real := strings.NewReplacer("https://example.com", o.url("https", ""), "http://example.com", o.url("http", ""), "8080", p.listen[strings.LastIndex(p.listen, ":")+1:])
			writeFile(t, filepath.Join(dir, "proxy.env"), real.Replace(env))
			for name, text := range r.files {
				writeFile(t, filepath.Join(dir, name), real.Replace(text))
			}
			cmd := exec.Command("sh", "-euc", real.Replace(r.run))
			cmd.Dir = dir
			cmd.Env = cleanEnv("HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+dir)
			out := finish(t, cmd)
			said := out.stdout + out.stderr
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("it said:\n%s", said)
				}
			})
			if out.code != 0 {
				t.Errorf("status %d", out.code)
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

// wantServed holds what arrived at the site, and what was recorded, against a
// visit that was judged.
func wantServed(t testing.TB, o *origin, p *proxy, agent string) {
	t.Helper()
	open := 0
	for _, h := range append(o.pages("http"), o.pages("https")...) {
		if strings.HasPrefix(h.Path, "/private") {
			t.Errorf("%s %s arrived", h.Method, h.Path)
		} else if h.Path == "/" || strings.HasPrefix(h.Path, "/repo.git") {
			open++
		}
	}
	if open == 0 {
		t.Error("nothing that is allowed arrived")
	}
	eventually(t, patience, "the refusal is recorded", func() bool {
		for _, r := range readAudit(t, p.audit) {
			if r.Reason == "rule" && r.Decision == "block" && r.Status == http.StatusForbidden && r.Agent == agent &&
				(strings.HasPrefix(r.URL, o.url("https", "/private")) || strings.HasPrefix(r.URL, o.url("http", "/private"))) {
				return true
			}
		}
		return false
	})
}

// What the document warns of: told of a proxy, HTTrack asks HTTPS sites itself.
func TestHTTrackGoesPastForHTTPS(t *testing.T) {
	t.Parallel()
	httrack := needPeer(t, "httrack")
	o := newRecipeSite(t)
	p := startProxy(t, outOfTheWay)
	cmd := exec.Command(httrack, fmt.Sprintf("https://%s:%d/", o.addr(), o.ports["https"]), "-O", t.TempDir(), "-q", "-P", p.listen, "--robots=0", "--retries=0")
	cmd.Env = cleanEnv("HOME=" + t.TempDir())
	finish(t, cmd)
	if len(o.pages("https")) == 0 {
		t.Error("nothing arrived: docs/recipes.md says that it goes past the proxy")
	}
	if n := len(readAudit(t, p.audit)); n != 0 {
		t.Errorf("%d records: docs/recipes.md says that it goes past the proxy", n)
	}
}

// kitchen is a directory with what the document takes for granted: the CA, and
// the recipe's command under its name.
func kitchen(t testing.TB, p *proxy, argv []string, as string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	writeFile(t, filepath.Join(dir, "ca.pem"), readText(t, p.ca))
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if as != "" {
		wrap(t, filepath.Join(bin, as), argv[0])
	}
	if browser, err := exec.LookPath("chromium"); err == nil { // whose sandbox root cannot have
		wrap(t, filepath.Join(bin, "chromium"), browser+" --no-sandbox --no-first-run --disable-background-networking --disable-component-update --disable-sync")
	}
	if modules := os.Getenv("NODE_PATH"); modules != "" { // import does not read it
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wrap is a command under another name.
func wrap(t testing.TB, file, command string) {
	t.Helper()
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexec "+command+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// newRecipeSite is a site with an open page, a forbidden one and, where there
// is a Git, a repository.
func newRecipeSite(t testing.TB) *origin {
	t.Helper()
	o := newOrigin(t, "recipe", "User-agent: *\nDisallow: /private/\n")
	page := `<!doctype html><title>Welcome</title><a href="/private/">private</a>`
	o.handle("/", textPage("text/html", page))
	o.handle("/private/", textPage("text/html", page))
	git, err := exec.LookPath("git")
	if err != nil {
		return o
	}
	dir := t.TempDir()
	script := `git init -q "$1/work" && cd "$1/work" && echo text > file && git add . &&
git -c user.name=e2e -c user.email=e2e@example.com commit -q -m text && git clone -q --bare . "$1/repo.git" && git --exec-path`
	cmd := exec.Command("sh", "-euc", script, "sh", dir)
	cmd.Env = cleanEnv("HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
	out := finish(t, cmd).want(t, 0)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(out.stdout), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "PATH=" + filepath.Dir(git) + ":" + os.Getenv("PATH")},
	}
	for _, service := range []string{"info/refs", "git-upload-pack"} {
		o.handle(fmt.Sprintf("/repo.git/%s", service), backend.ServeHTTP)
	}
	return o
}
