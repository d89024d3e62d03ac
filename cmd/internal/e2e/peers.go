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

	"robotsproxy/robots/testkit"
)

// A Peer is an unmodified real client. It finds the proxy and the CA only through its
// environment.
type Peer struct {
	Name string

	// Its command line; skips or fails if it is missing.
	Need  func(t testing.TB) []string
	Fetch func(t testing.TB, argv, env []string, urls []string) []Result
}

// Peers are the real clients.
var Peers = []Peer{
	{"curl-h1", NeedCommand("curl", "-q", "--http1.1"), FetchByCurl},
	{"curl-h2", NeedCommand("curl", "-q", "--http2"), FetchByCurl},
	{"wget", NeedCommand("wget"), fetchByWget},
	{"requests", NeedPython("requests", Script("get.py"), "requests"), fetchByScript},
	{"urllib", NeedPython("urllib.request", Script("get.py"), "urllib"), fetchByScript},
	{"scrapy", NeedScrapy("runspider", "--nolog", Script("get_spider.py")), fetchByScrapy},
	{"undici", NeedModule("undici", Script("get.cjs"), "undici"), fetchByScript},
	{"node24", NeedCommand("node24", Script("get.cjs"), "builtin"), fetchByScript},
}

// QuickJava are options that halve the start time of a short Java program.
const QuickJava = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// NeedPeer returns the path of a command.
func NeedPeer(t testing.TB, name string) string {
	t.Helper()
	testkit.Long(t, "real peers")
	path, err := exec.LookPath(name)
	if err != nil {
		testkit.Missing(t, name)
	}
	return path
}

// NeedConfinement skips a test where run --confine is not possible.
func NeedConfinement(t testing.TB) {
	t.Helper()
	if out := Command(t, "run", "--confine", "--", "true"); out.Code != 0 {
		t.Skipf("no confinement here: %s", out.Stderr)
	}
}

// NeedCommand returns a function that finds a command on PATH and returns its command line.
func NeedCommand(name string, args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		return append([]string{NeedPeer(t, name)}, args...)
	}
}

// NeedPython does the same for a Python script that imports a module.
func NeedPython(module string, args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		testkit.Long(t, "real peers")
		path := PythonWith(module)
		if path == "" {
			testkit.Missing(t, "a python3 with "+module)
		}
		return append([]string{path}, args...)
	}
}

// NeedScrapy finds the scrapy command, or else an interpreter with the module.
func NeedScrapy(args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		testkit.Long(t, "real peers")
		if path, err := exec.LookPath("scrapy"); err == nil {
			return append([]string{path}, args...)
		}
		path := PythonWith("scrapy")
		if path == "" {
			testkit.Missing(t, "scrapy")
		}
		return append([]string{path, "-m", "scrapy"}, args...)
	}
}

// NeedModule finds a Node.js that loads a module through NODE_PATH.
func NeedModule(module string, args ...string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		path := NeedPeer(t, "node")
		if exec.Command(path, "-e", "require.resolve(process.argv[1])", module).Run() != nil {
			testkit.Missing(t, module+" for "+path)
		}
		return append([]string{path}, args...)
	}
}

// module name to interpreter.
var pythons sync.Map

// PythonWith returns the first python3 that has the module, or "". It returns the interpreter,
// not a wrapper that depends on HOME.
func PythonWith(module string) string {
	if found, ok := pythons.Load(module); ok {
		return found.(string)
	}
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin")
	found := ""
	for _, dir := range dirs {
		out, err := exec.Command(filepath.Join(dir, "python3"), "-c",
			"import sys, importlib.util as u; print(sys.executable if u.find_spec(sys.argv[1]) else '')", module).Output()
		if found = strings.TrimSpace(string(out)); err == nil && found != "" {
			break
		}
	}
	pythons.Store(module, found)
	return found
}

// Env returns a clean environment whose variables send every peer through the proxy.
func (p *Proxy) Env(t testing.TB) []string {
	t.Helper()
	home := t.TempDir()
	wgetrc := filepath.Join(home, "wgetrc")
	WriteFile(t, wgetrc, "ca_certificate = "+p.CA+"\n")
	env := CleanEnv("CURL_HOME="+home, "WGETRC="+wgetrc, "NODE_USE_ENV_PROXY=1")
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy"} {
		env = append(env, name+"=http://"+p.Listen, strings.ToUpper(name)+"=http://"+p.Listen)
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		env = append(env, name+"="+p.CA)
	}
	return env
}

// RunPeer runs a client to completion in the package's directory.
func RunPeer(t testing.TB, argv, env []string) Outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	return Finish(t, cmd)
}

// FetchByCurl runs curl once for each URL.
func FetchByCurl(t testing.TB, argv, env, urls []string) []Result {
	t.Helper()
	var results []Result
	for _, u := range urls {
		head := filepath.Join(t.TempDir(), "head")
		args := append(argv[1:len(argv):len(argv)], "-sS", "-D", head, u)
		out := RunPeer(t, append([]string{argv[0]}, args...), env).Want(t, 0)
		text, err := os.ReadFile(head)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, lastHead(t, string(text), []byte(out.Stdout)))
	}
	return results
}

// fetchByWget runs wget once for each URL; wget exits with 8 on an error response.
func fetchByWget(t testing.TB, argv, env, urls []string) []Result {
	t.Helper()
	var results []Result
	for _, u := range urls {
		out := RunPeer(t, append(argv[:len(argv):len(argv)], "-nv", "--tries=1", "--content-on-error", "--save-headers", "-O", "-", u), env)
		if out.Code != 0 && out.Code != 8 {
			out.Want(t, 0)
		}
		head, body, ok := strings.Cut(out.Stdout, "\r\n\r\n")
		if !ok {
			t.Fatalf("wget %s: no head in its output\n%s", u, out.Stderr)
		}
		results = append(results, lastHead(t, head+"\r\n\r\n", []byte(body)))
	}
	return results
}

// lastHead parses the last head in the output of curl -D; the first one is the tunnel's.
func lastHead(t testing.TB, heads string, body []byte) Result {
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
	return Result{status, words[0], http.Header(header), body}
}

// fetchByScript runs a script of testdata that prints one JSON line for each URL.
func fetchByScript(t testing.TB, argv, env, urls []string) []Result {
	t.Helper()
	out := RunPeer(t, append(argv[:len(argv):len(argv)], urls...), env).Want(t, 0)
	return scriptResults(t, []byte(out.Stdout), urls)
}

// fetchByScrapy passes the URLs to a spider and reads its feed.
func fetchByScrapy(t testing.TB, argv, env, urls []string) []Result {
	t.Helper()
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	args := append(argv[:len(argv):len(argv)], "-a", "urls="+strings.Join(urls, ","), "-O", feed)
	out := RunPeer(t, args, env).Want(t, 0)
	text, err := os.ReadFile(feed)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Stderr)
	}
	return scriptResults(t, text, urls)
}

// scriptResults returns a script's JSON lines in the order of the URLs.
func scriptResults(t testing.TB, text []byte, urls []string) []Result {
	t.Helper()
	byURL := map[string]Result{}
	for line := range bytes.Lines(text) {
		var got struct {
			URL     string
			Status  int
			Headers map[string]string

			// base64 in JSON.
			Body []byte
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("script's line: %v\n%s", err, line)
		}
		header := http.Header{}
		for k, v := range got.Headers {
			header.Set(k, v)
		}
		byURL[got.URL] = Result{got.Status, "", header, got.Body}
	}
	var results []Result
	for _, u := range urls {
		r, ok := byURL[u]
		if !ok {
			t.Fatalf("script gave nothing for %s:\n%s", u, text)
		}
		results = append(results, r)
	}
	return results
}

// String formats the response for failure messages.
func (r Result) String() string {
	return fmt.Sprintf("%d %v %d bytes", r.Status, r.Header, len(r.Body))
}
