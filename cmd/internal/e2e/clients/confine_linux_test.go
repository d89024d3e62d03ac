package clients

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// proxyVariables are removed for commands that are to know of no proxy.
var proxyVariables = []string{
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NODE_USE_ENV_PROXY", "NODE_OPTIONS",
	"JAVA_TOOL_OPTIONS", "WGETRC",
}

// confined returns the command line of run --confine for a command, without the proxy variables if bare.
func confined(t *testing.T, h *e2e.Setup, bare bool, argv []string) []string {
	t.Helper()
	line := []string{e2e.Binary(t), "run", "--confine", "-c", h.Config, "--"}
	if bare {
		line = append(line, "env")
		for _, name := range proxyVariables {
			line = append(line, "-u", name)
		}
	}
	return append(line, argv...)
}

// needConfinement skips a test where namespaces are not permitted.
func needConfinement(t *testing.T) {
	t.Helper()
	if out := e2e.Command(t, "run", "--confine", "--", "true"); out.Code != 0 {
		t.Skipf("no confinement here: %s", out.Stderr)
	}
}

// checkArrivals checks that pages came through the proxy, and none that is disallowed.
func checkArrivals(t *testing.T, o *e2e.Origin, schemes []string) {
	t.Helper()
	for _, scheme := range schemes {
		pages := o.Pages(scheme)
		if len(pages) == 0 {
			t.Errorf("%s: no page arrived", scheme)
		}
		for _, hit := range pages {
			if !strings.Contains(hit.Header.Get("Via"), "robotsproxy") || strings.HasPrefix(hit.Path, "/private/") {
				t.Errorf("%s: %s arrived with Via %q", scheme, hit.Path, hit.Header.Get("Via"))
			}
		}
	}
}

// TestPeersConfined: real clients reach origins only through the proxy, whether they know of it or not.
func TestPeersConfined(t *testing.T) {
	t.Parallel()
	needConfinement(t)
	for _, who := range e2e.Peers {
		for _, bare := range []bool{false, true} {
			name := who.Name
			if bare {
				name += "/without proxy variables"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				argv := who.Need(t)
				o := e2e.NewOrigin(t, "confined", e2e.SlowRobots)
				body := e2e.RandomBytes(1 << 10)
				o.Handle("/a", e2e.SizedPage(body))
				line := confined(t, e2e.NewSetup(t, e2e.Settings{}), bare, argv)
				urls := []string{o.URL("http", "/a"), o.URL("https", "/a"), o.URL("http", "/private/x"), o.URL("https", "/private/x")}
				for i, got := range who.Fetch(t, line, e2e.CleanEnv(), urls) {
					want := http.StatusOK
					if i > 1 {
						want = http.StatusForbidden
					}
					if got.Status != want || want == http.StatusOK && !bytes.Equal(got.Body, body) {
						t.Errorf("%s: %v", urls[i], got)
					}
				}
				checkArrivals(t, o, e2e.Schemes)
			})
		}
	}
}

// TestOthersConfined: clients that need special care without confinement need none with it.
func TestOthersConfined(t *testing.T) {
	t.Parallel()
	needConfinement(t)
	java := filepath.Join(t.TempDir(), "Get.java")
	e2e.WriteFile(t, java, `class Get { public static void main(String[] a) throws Exception {
  for (String u : a) System.out.println(((java.net.HttpURLConnection) new java.net.URL(u).openConnection()).getResponseCode());
} }`)
	const urllib3 = "import sys, urllib3\nfor u in sys.argv[1:]: print(urllib3.PoolManager().request('GET', u).status)"
	const node = "for (const u of process.argv.slice(1)) require(new URL(u).protocol.slice(0, -1)).get(u, r => { console.log(r.statusCode); r.resume() })"
	for _, c := range []struct {
		name string
		argv func(testing.TB) []string
		said string // on standard output
	}{
		{"urllib3", e2e.NeedPython("urllib3", "-c", urllib3), "200\n200\n"},
		{"java", e2e.NeedCommand("java", "-XX:TieredStopAtLevel=1", java), "200\n200\n"},
		{"node", e2e.NeedCommand("node", "-e", node), "200\n200\n"},
		{"httrack", e2e.NeedCommand("httrack", "-q", "-r1", "-s0", "-O", t.TempDir()), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			argv := c.argv(t)
			o := e2e.NewOrigin(t, "confined", e2e.SlowRobots)
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			line := confined(t, e2e.NewSetup(t, e2e.Settings{}), true, append(argv, o.URL("http", "/a"), o.URL("https", "/a")))
			out := e2e.RunPeer(t, line, e2e.CleanEnv("HOME="+t.TempDir())).Want(t, 0)
			if c.said != "" && out.Stdout != c.said {
				t.Errorf("%q\n%s", out.Stdout, out.Stderr)
			}
			checkArrivals(t, o, e2e.Schemes)
		})
	}
}

// TestConfinedRun: status, arguments, streams and summary are those of a run.
func TestConfinedRun(t *testing.T) {
	t.Parallel()
	needConfinement(t)
	h := e2e.NewSetup(t, e2e.Unpaced)
	line := func(argv ...string) []string {
		return append([]string{"run", "--confine", "-c", h.Config, "--"}, argv...)
	}
	out := e2e.Command(t, line("sh", "-c", `printf '%s|' "$@"; exit 3`, "sh", "a b", "")...).Want(t, 3)
	if out.Stdout != "a b||" {
		t.Errorf("stdout %q", out.Stdout)
	}
	e2e.Command(t, line("no-such-command-of-anybody")...).Want(t, 127)
	e2e.Command(t, line("sh", "-c", "kill -TERM $$")...).Want(t, 143)
	out = e2e.Command(t, line("bash", "-c", "exec 3<>/dev/tcp/192.0.2.7/25; cat <&3")...)
	if !strings.Contains(out.Stderr, "1 at 192.0.2.7:25: ") {
		t.Errorf("the summary does not name the refused connection:\n%s", out.Stderr)
	}
	file := filepath.Join(t.TempDir(), "made")
	e2e.Command(t, line("touch", file)...).Want(t, 0)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	e2e.Command(t, "run", "-c", h.Config, "--allow-local", "80", "--", "true").Want(t, 2)
}
