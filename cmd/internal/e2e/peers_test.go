package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A peer is a client that people use, unchanged. It knows the proxy and the CA
// by its environment alone.
type peer struct {
	name  string
	need  func(t testing.TB) []string // its command line; skips or fails where it is missing
	fetch func(t testing.TB, argv, env []string, urls []string) []result
}

// peers are the real clients.
var peers = []peer{
	{"curl-h1", needCommand("curl", "-q", "--http1.1"), fetchByCurl},
	{"curl-h2", needCommand("curl", "-q", "--http2"), fetchByCurl},
	{"wget", needCommand("wget"), fetchByWget},
	{"requests", needPython("requests", "testdata/get.py", "requests"), fetchByScript},
	{"urllib", needPython("urllib.request", "testdata/get.py", "urllib"), fetchByScript},
	{"scrapy", needScrapy("runspider", "--nolog", "testdata/get_spider.py"), fetchByScrapy},
	{"undici", needUndici("testdata/get.cjs", "undici"), fetchByScript},
	{"node24", needCommand("node24", "testdata/get.cjs", "builtin"), fetchByScript},
}

// missing ends a test whose peer is not on this machine.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_PEERS") == "1" {
		t.Fatalf("%s is not on this machine, and REQUIRE_PEERS=1 asks for it", what)
	}
	t.Skipf("%s is not on this machine", what)
}

// needPeer gives the path of a command.
func needPeer(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name)
	}
	return path
}

func needCommand(name string, args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		return append([]string{needPeer(t, name)}, args...)
	}
}

func needPython(module string, args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := pythonWith(module)
		if path == "" {
			missing(t, "a python3 with "+module)
		}
		return append([]string{path}, args...)
	}
}

// needScrapy finds Debian's command, else an interpreter that has the module.
func needScrapy(args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		if path, err := exec.LookPath("scrapy"); err == nil {
			return append([]string{path}, args...)
		}
		path := pythonWith("scrapy")
		if path == "" {
			missing(t, "scrapy")
		}
		return append([]string{path, "-m", "scrapy"}, args...)
	}
}

// needUndici finds a Node that has undici, by NODE_PATH.
func needUndici(args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := needPeer(t, "node")
		if exec.Command(path, "-e", "require('undici')").Run() != nil {
			missing(t, "undici for "+path)
		}
		return append([]string{path}, args...)
	}
}

var pythons sync.Map // module name to interpreter

// pythonWith is the first python3 that can import the module: the interpreter
// itself, not a wrapper that looks at HOME. "" where there is none.
func pythonWith(module string) string {
	if found, ok := pythons.Load(module); ok {
		return found.(string)
	}
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin")
	found := ""
	for _, dir := range dirs {
		out, err := exec.Command(filepath.Join(dir, "python3"), "-c", "import sys, "+module+"; print(sys.executable)").Output()
		if err == nil {
			found = strings.TrimSpace(string(out))
			break
		}
	}
	pythons.Store(module, found)
	return found
}

// env is a clean environment that leads a client through the proxy, by the
// variables that the clients read.
func (p *proxy) env(t testing.TB) []string {
	t.Helper()
	home := t.TempDir()
	wgetrc := filepath.Join(home, "wgetrc")
	writeFile(t, wgetrc, "ca_certificate = "+p.ca+"\n")
	env := cleanEnv("CURL_HOME="+home, "WGETRC="+wgetrc, "NODE_USE_ENV_PROXY=1")
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy"} {
		env = append(env, name+"=http://"+p.listen, strings.ToUpper(name)+"=http://"+p.listen)
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		env = append(env, name+"="+p.ca)
	}
	return env
}

// runPeer runs a client to its end in this package's directory.
func runPeer(t testing.TB, argv, env []string) outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	return finish(t, cmd)
}

// fetchByCurl runs one curl for each URL.
func fetchByCurl(t testing.TB, argv, env, urls []string) []result {
	t.Helper()
	var results []result
	for _, u := range urls {
		head := filepath.Join(t.TempDir(), "head")
		args := append(argv[1:len(argv):len(argv)], "-sS", "-D", head, u)
		out := runPeer(t, append([]string{argv[0]}, args...), env).want(t, 0)
		text, err := os.ReadFile(head)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, lastHead(t, string(text), []byte(out.stdout)))
	}
	return results
}

// fetchByWget runs one wget for each URL; its status 8 is an error answer of the server.
func fetchByWget(t testing.TB, argv, env, urls []string) []result {
	t.Helper()
	var results []result
	for _, u := range urls {
		out := runPeer(t, append(argv[:len(argv):len(argv)], "-nv", "--tries=1", "--content-on-error", "--save-headers", "-O", "-", u), env)
		if out.code != 0 && out.code != 8 {
			out.want(t, 0)
		}
		head, body, ok := strings.Cut(out.stdout, "\r\n\r\n")
		if !ok {
			t.Fatalf("wget %s: no head in its output\n%s", u, out.stderr)
		}
		results = append(results, lastHead(t, head+"\r\n\r\n", []byte(body)))
	}
	return results
}

// lastHead reads the last of some heads, as curl -D leaves them (the tunnel's own comes first).
func lastHead(t testing.TB, heads string, body []byte) result {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(heads, "\r\n\r\n"), "\r\n\r\n")
	statusLine, fields, _ := strings.Cut(all[len(all)-1], "\r\n")
	words := strings.Fields(statusLine)
	if len(words) < 2 {
		t.Fatalf("no status line in %q", heads)
	}
	status, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatalf("status line %q: %v", statusLine, err)
	}
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(fields + "\r\n\r\n"))).ReadMIMEHeader()
	if err != nil {
		t.Fatalf("head %q: %v", heads, err)
	}
	return result{status, words[0], http.Header(header), body}
}

// fetchByScript runs a script of testdata, which prints a JSON line for each URL.
func fetchByScript(t testing.TB, argv, env, urls []string) []result {
	t.Helper()
	out := runPeer(t, append(argv[:len(argv):len(argv)], urls...), env).want(t, 0)
	return scriptResults(t, []byte(out.stdout), urls)
}

// fetchByScrapy hands the URLs to a spider and reads the feed it leaves.
func fetchByScrapy(t testing.TB, argv, env, urls []string) []result {
	t.Helper()
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	args := append(argv[:len(argv):len(argv)], "-a", "urls="+strings.Join(urls, ","), "-O", feed)
	out := runPeer(t, args, env).want(t, 0)
	text, err := os.ReadFile(feed)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.stderr)
	}
	return scriptResults(t, text, urls)
}

// scriptResults sorts the JSON lines of a script into the order of the URLs.
func scriptResults(t testing.TB, text []byte, urls []string) []result {
	t.Helper()
	byURL := map[string]result{}
	for line := range bytes.Lines(text) {
		var got struct {
			URL     string
			Status  int
			Headers map[string]string
			Body    []byte // base64 in JSON
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("script's line: %v\n%s", err, line)
		}
		header := http.Header{}
		for k, v := range got.Headers {
			header.Set(k, v)
		}
		byURL[got.URL] = result{got.Status, "", header, got.Body}
	}
	var results []result
	for _, u := range urls {
		r, ok := byURL[u]
		if !ok {
			t.Fatalf("script gave nothing for %s:\n%s", u, text)
		}
		results = append(results, r)
	}
	return results
}

// String names the answer in failures.
func (r result) String() string {
	return fmt.Sprintf("%d %v %d octets", r.Status, r.Header, len(r.Body))
}
