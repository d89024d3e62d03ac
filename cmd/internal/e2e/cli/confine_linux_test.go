package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// proxyVariables are removed for commands that must not know of a proxy.
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
	e2e.NeedConfinement(t)
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

// inShell returns a command line that runs a script, in which $0 is a command.
func inShell(name, script string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		return []string{"sh", "-c", script, e2e.NeedPeer(t, name)}
	}
}

// buildGet builds a static program, which has a resolver of its own.
func buildGet(t testing.TB) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "get")
	build := exec.Command(e2e.NeedPeer(t, "go"), "build", "-o", file, e2e.Script("get.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	e2e.Finish(t, build).Want(t, 0)
	return []string{file}
}

// TestConfinedWithoutRequests: run does not say that a confined command went past the proxy.
func TestConfinedWithoutRequests(t *testing.T) {
	t.Parallel()
	e2e.NeedConfinement(t)
	out := e2e.Command(t, "run", "--confine", "--", "true").Want(t, 0)
	if want := "robotsproxy: the proxy received no request\n  The command sent none: "; !strings.HasPrefix(out.Stderr, want) || strings.Count(out.Stderr, "\n") != 2 {
		t.Errorf("standard error: %s", out.Stderr)
	}
}

// TestOthersConfined: clients that need special care without confinement need none with it.
func TestOthersConfined(t *testing.T) {
	t.Parallel()
	e2e.NeedConfinement(t)
	java := filepath.Join(t.TempDir(), "Get.java")
	e2e.WriteFile(t, java, `class Get { public static void main(String[] a) throws Exception {
  for (String u : a) System.out.println(((java.net.HttpURLConnection) new java.net.URL(u).openConnection()).getResponseCode());
} }`)
	const (
		urllib3 = "import sys, urllib3\nfor u in sys.argv[1:]: print(urllib3.PoolManager().request('GET', u).status)"
		node    = "for (const u of process.argv.slice(1)) require(new URL(u).protocol.slice(0, -1)).get(u, r => { console.log(r.statusCode); r.resume() })"
		wget2   = `"$0" -q --robots=off --tries=1 -O - "$@" || test $? = 8`
		git     = `for u; do "$0" clone -q "$u/repo.git" "$(mktemp -d)/work" && echo 200 || echo 403; done`
		// The sandboxes of browsers are not for root.
		chromium = `for u; do timeout 60 "$0" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
  --disable-component-update --user-data-dir="$HOME" --dump-dom "$u" | grep -c '<b>a</b>' || true; done`
		firefox = `for s in CONTENT SOCKET_PROCESS RDD GMP UTILITY; do export MOZ_DISABLE_"$s"_SANDBOX=1; done
for u; do timeout 60 "$0" --headless --profile "$HOME" --screenshot "$HOME/page.png" "$u"; done`
	)
	for _, c := range []struct {
		name string
		argv func(testing.TB) []string
		said string // on standard output, the lines sorted; "": that shows no status
	}{
		{"urllib3", e2e.NeedPython("urllib3", "-c", urllib3), "200 200 403 403"},
		{"java", e2e.NeedCommand("java", "-XX:TieredStopAtLevel=1", java), "200 200 403 403"},
		{"node", e2e.NeedCommand("node", "-e", node), "200 200 403 403"},
		{"httrack", e2e.NeedCommand("httrack", "-q", "-r1", "-s0", "-O", t.TempDir()), ""},
		{"wget2", inShell("wget2", wget2), "<b>a</b><b>a</b>"},
		{"git", inShell("git", git), "200 200 403 403"},
		{"static Go program", buildGet, "200 200 403 403"},
		{"chromium", inShell("chromium", chromium), "0 0 1 1"},
		{"firefox", inShell("firefox-esr", firefox), ""},
	} {
		for name, bare := range map[string]bool{"with proxy variables": false, "without": true} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				argv := c.argv(t)
				if c.name == "firefox" && os.Getenv("REQUIRE_PEERS") != "1" {
					t.Skip("takes as long as all others together: only with REQUIRE_PEERS=1, as in CI")
				}
				o := e2e.NewOrigin(t, "confined", e2e.SlowRobots)
				o.Handle("/a", e2e.TextPage("text/html", "<b>a</b>"))
				if c.name == "git" {
					serveRepository(t, o, e2e.NeedPeer(t, "git"), "/a")
				}
				argv = append(argv, o.URL("http", "/a"), o.URL("https", "/a"), o.URL("http", "/private/x"), o.URL("https", "/private/x"))
				line := confined(t, e2e.NewSetup(t, e2e.Settings{}), bare, argv)
				out := e2e.RunPeer(t, line, e2e.CleanEnv("HOME="+t.TempDir())).Want(t, 0)
				lines := strings.Split(strings.TrimSpace(out.Stdout), "\n")
				slices.Sort(lines)
				if got := strings.Join(lines, " "); c.said != "" && got != c.said {
					t.Errorf("%q\n%s", got, out.Stderr)
				}
				checkArrivals(t, o, e2e.Schemes)
			})
		}
	}
}

// TestConfinedForUser: an ordinary user needs no help of root, and root can confine a command as another user.
func TestConfinedForUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root; as an ordinary user, the other tests show this")
	}
	e2e.NeedConfinement(t)
	const nobody = 65534
	for name, user := range map[string]*syscall.Credential{"run by the user": {Uid: nobody, Gid: nobody}, "run by root with --user": nil} {
		for _, bare := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/bare=%t", name, bare), func(t *testing.T) {
				t.Parallel()
				dir, err := os.MkdirTemp("/tmp", "confined-user-")
				testkit.Must(t, err)
				t.Cleanup(func() { os.RemoveAll(dir) })
				get := filepath.Join(dir, "get")
				testkit.Must(t, os.Rename(buildGet(t)[0], get))
				ca, binary := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "robotsproxy")
				e2e.WriteFile(t, ca, e2e.ReadText(t, e2e.TrustedFile(t)))
				testkit.Must(t, testkit.WriteProgram(binary, []byte(e2e.ReadText(t, e2e.Binary(t)))))
				h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"egress.extra_ca": ca, "state_dir": filepath.Join(dir, "state")}))
				config := filepath.Join(dir, "config.yaml")
				testkit.Must(t, os.Rename(h.Config, config))
				for _, file := range []string{dir, ca, config} {
					testkit.Must(t, os.Chown(file, nobody, nobody))
				}
				o := e2e.NewOrigin(t, "user", "User-agent: *\nDisallow: /private/\n")
				made := filepath.Join(dir, "made")
				o.Handle("/a", e2e.TextPage("text/plain", "a"))
				h.Config = config
				line := confined(t, h, bare, []string{"sh", "-c", `touch "$1" && shift && exec "$0" "$@"`, get, made,
					o.URL("http", "/a"), o.URL("https", "/a"), o.URL("http", "/private/x"), o.URL("https", "/private/x")})
				line[0] = binary
				if user == nil {
					line = slices.Insert(line, 3, "--user", "nobody")
				}
				cmd := exec.Command(line[0], line[1:]...)
				cmd.Env, cmd.Dir, cmd.SysProcAttr = e2e.CleanEnv("HOME="+dir), dir, &syscall.SysProcAttr{Credential: user}
				if out := e2e.Finish(t, cmd).Want(t, 0); out.Stdout != "200\n200\n403\n403\n" {
					t.Errorf("%q\n%s", out.Stdout, out.Stderr)
				}
				checkArrivals(t, o, e2e.Schemes)
				info, err := os.Stat(made)
				testkit.Must(t, err)
				if uid := info.Sys().(*syscall.Stat_t).Uid; uid != nobody {
					t.Errorf("the file that the command made belongs to %d", uid)
				}
			})
		}
	}
}

// TestDigConfined: DNS answers come from inside, by UDP and by TCP, whichever server is asked.
func TestDigConfined(t *testing.T) {
	t.Parallel()
	dig := e2e.NeedPeer(t, "dig")
	e2e.NeedConfinement(t)
	o := e2e.NewOrigin(t, "dig", "")
	for name, bare := range map[string]bool{"with proxy variables": false, "without": true} {
		for _, way := range []string{"+notcp", "+tcp"} {
			line := confined(t, e2e.NewSetup(t, e2e.Settings{}), bare, []string{dig, "+short", "+tries=1", way, "@192.0.2.53", o.Name, "A", o.Name, "HTTPS", o.Name, "AAAA"})
			out := e2e.RunPeer(t, line, e2e.CleanEnv()).Want(t, 0)
			if want := "198.18.1.0\nfd72:6f62:6f74::100\n"; out.Stdout != want {
				t.Errorf("%s, %s: %q, want %q", name, way, out.Stdout, want)
			}
		}
	}
	if n := e2e.Names.Asked(o.Name); n != 0 {
		t.Errorf("%d queries arrived at the resolver of the proxy", n)
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections arrived at the origin", n)
	}
}

// TestConfinedRun: exit status, arguments, streams and summary are the same as without
// --confine.
func TestConfinedRun(t *testing.T) {
	t.Parallel()
	e2e.NeedConfinement(t)
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
	out = e2e.Command(t, line("bash", "-c", "for i in {1..150}; do exec 3<>/dev/tcp/192.0.2.7/25; read <&3; done")...)
	if !strings.Contains(out.Stderr, "150 at 192.0.2.7:25: ") { // more than have records
		t.Errorf("the summary does not name the refused connections:\n%s", out.Stderr)
	}
	file := filepath.Join(t.TempDir(), "made")
	e2e.Command(t, line("touch", file)...).Want(t, 0)
	if left, err := filepath.Glob(filepath.Join(h.State, "runs", "*", "confined")); err != nil || len(left) > 0 {
		t.Errorf("files of runs that have ended: %v, %v", left, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	e2e.Command(t, "run", "-c", h.Config, "--allow-local", "80", "--", "true").Want(t, 2)
}

// TestConfinedSignals: the command receives signals as in any run.
func TestConfinedSignals(t *testing.T) {
	t.Parallel()
	e2e.NeedConfinement(t)
	checkSignals(t, []string{"run", "--confine", "-c", e2e.NewSetup(t, e2e.Unpaced).Config, "--"})
}

// TestHostileConfined: nothing of a confined command reaches a loopback address outside, by whatever name, and nothing at all
// without the proxy.
func TestHostileConfined(t *testing.T) {
	t.Parallel()
	e2e.NeedPeer(t, "curl")
	e2e.NeedConfinement(t)
	o := e2e.NewOrigin(t, "hostile", "")
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": nil}))
	const script = `exec 2>&1; ask() { curl -q -sk -m 10 -o /dev/null -w '%{http_code} ' "$@"; }
addr=$1 http=$2 https=$3 name=$4
ask --noproxy '*' "http://$addr:$http/"
ask --noproxy '*' "http://[::ffff:$addr]:$http/"
ask --noproxy '*' -H "Host: $addr:$http" "http://192.0.2.1:$http/"
ask --noproxy '*' -H "Host: $name:$http" "http://[2001:db8::1]:$http/"
ask --noproxy '*' -H "Host: $name:$http" "http://other.test:$http/"
ask --noproxy '*' --connect-to "::192.0.2.1:$https" "https://$name:$https/"
ask --noproxy '*' "https://$name:$https/"
ask "http://$addr:$http/"
ask "https://$addr:$https/"
ask "https://[::ffff:$addr]:$https/"
kill -KILL $PPID; while kill -0 $PPID; do :; done
ask --noproxy '*' "http://$name:$http/"
ask --noproxy '*' "http://$addr:$http/"
ask "http://$name:$http/"`
	out := e2e.Command(t, "run", "--confine", "-c", h.Config, "--", "sh", "-c", script, "sh", o.Addr(), fmt.Sprint(o.Ports["http"]), fmt.Sprint(o.Ports["https"]), o.Name)
	out.Want(t, 137)
	if !strings.Contains(out.Stdout, "403") || strings.Contains(out.Stdout, "200") {
		t.Errorf("%q", out.Stdout)
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

// TestAllowLocal: a service of the machine's loopback is reachable only if the command line names its port.
func TestAllowLocal(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	e2e.NeedConfinement(t)
	service := httptest.NewServer(e2e.TextPage("text/plain", "a"))
	defer service.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(service.URL, "http://"), ":")
	for _, c := range []struct {
		flags  []string
		status int // of curl
	}{{[]string{"--allow-local", port}, 0}, {nil, 7}} {
		line := append(append([]string{"run", "--confine"}, c.flags...), "--", curl, "-q", "-sS", "--noproxy", "*", service.URL)
		e2e.Command(t, line...).Want(t, c.status)
	}
}

// TestNotConfinable: where namespaces are not permitted, run names the setting, and the command does not start.
func TestNotConfinable(t *testing.T) {
	t.Parallel()
	e2e.NeedConfinement(t)
	file := filepath.Join(t.TempDir(), "made")
	cmd := e2e.Prepare(t, "run", "--confine", "--", "touch", file)
	cmd.Args = append([]string{"sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	e2e.WantOneLine(t, e2e.Finish(t, cmd), 1, "user.max_user_namespaces is 0")
	if e2e.Exists(file) {
		t.Error("the command has run")
	}
}
