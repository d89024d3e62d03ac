package runner

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// A bypass is why requests of some commands may not pass the proxy, and what to do. The texts were
// tested with the clients.
type bypass struct {
	names []string
	why   string

	// command lines or sentences.
	try []string
}

var bypasses = []bypass{
	{[]string{"httrack", "webhttrack"}, "HTTrack does not read proxy variables, and bypasses any proxy for https. Confine it (on Linux):",
		[]string{"robotsproxy run --confine -- httrack https://example.com/"}},
	{[]string{"links", "links2"}, "Links does not read proxy variables. Give it the proxy as options:",
		[]string{`robotsproxy run -- sh -c 'p=${http_proxy#http://}; links -http-proxy "$p" -https-proxy "$p" https://example.com/'`}},
	{[]string{"wget2"}, "wget2 cannot use an HTTP proxy for https. Use wget or curl, or confine wget2 (on Linux):",
		[]string{"robotsproxy run --confine -- wget2 https://example.com/"}},
	{[]string{"wget"}, "wget bypasses the proxy with --no-proxy, or if -e sets use_proxy or no_proxy.", nil},
	{[]string{"curl"}, "curl bypasses the proxy with --noproxy or another -x. Both may also be set in ~/.curlrc.", nil},
	{[]string{"git"}, "Git prefers http.proxy of its configuration to the variables, and uses no proxy for ssh:// and git://.",
		[]string{`robotsproxy run -- sh -c 'git -c http.proxy="$http_proxy" clone https://example.com/a.git'`}},
	{[]string{"node", "nodejs", "npm", "npx", "yarn", "pnpm", "tsx", "ts-node"},
		"Before version 24, Node's modules http and https have no proxy support. got, node-fetch and superagent use them.",
		[]string{"Use Node 24, or give the client an agent for the URL in http_proxy (hpagent, https-proxy-agent).",
			"Crawlee needs a ProxyConfiguration with that URL in every version of Node."}},
	{[]string{"java", "javaw", "mvn", "mvnw", "gradle", "gradlew", "sbt", "kotlin", "scala", "groovy", "jshell"},
		"Java finds the proxy through JAVA_TOOL_OPTIONS, which a start script may have replaced or cleared.",
		[]string{"Apache HttpClient uses the proxy only with useSystemProperties()."}},
	{[]string{"python", "pypy", "ipython", "pytest", "uv", "poetry"},
		"In Python, http.client and urllib3 do not read proxy variables, aiohttp reads them only with trust_env=True, and requests and httpx do not with trust_env=False.",
		[]string{`For urllib3 use urllib3.ProxyManager(os.environ["http_proxy"]).`}},
	{[]string{"scrapy"}, "Scrapy bypasses the proxy with HTTPPROXY_ENABLED = False, or if Request.meta names another proxy.", nil},
	{[]string{"ruby", "bundle", "rake"}, "In Ruby, Mechanize does not read proxy variables, and Net::HTTP bypasses any proxy for loopback addresses.",
		[]string{`For Mechanize use agent.set_proxy(*ENV["http_proxy"].delete_prefix("http://").split(":")).`}},
	{[]string{"php"}, "PHP's streams (such as file_get_contents) do not read proxy variables; its curl functions do.",
		[]string{"Set proxy and request_fulluri in the http options of the stream context."}},
	{[]string{"go"}, "Go programs bypass any proxy for loopback addresses, and for every address if their http.Transport sets no Proxy.",
		[]string{"Set Proxy: http.ProxyFromEnvironment in the http.Transport."}},
	{[]string{"cargo"}, "In Rust, ureq does not read proxy variables. Set the proxy in the configuration of its Agent.", nil},
	{[]string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "brave-browser", "microsoft-edge"},
		"A browser that already runs opens the URLs itself, without the proxy, and Chromium bypasses any proxy for loopback addresses. Use a separate profile:",
		[]string{`robotsproxy run -- sh -c 'chromium --user-data-dir="$(mktemp -d)" --proxy-server="$http_proxy" "--proxy-bypass-list=<-loopback>"'`}},
	{[]string{"firefox", "firefox-esr"},
		"A browser that already runs opens the URLs itself, and the settings of Firefox may name another proxy or none.",
		[]string{"In its settings, use the URL in http_proxy followed by /proxy.pac as the automatic proxy configuration URL."}},
	{[]string{"docker", "podman", "nerdctl", "kubectl"}, "A container does not have these variables, and cannot reach this machine's loopback, on which the proxy listens.",
		[]string{"Run robotsproxy inside the container, or make the container use a robotsproxy serve that it can reach."}},
	{[]string{"sudo", "doas", "su", "ssh"}, "This command starts other commands without these variables. Swap the two:",
		[]string{"sudo robotsproxy run -- COMMAND"}},
}

// wrappers are commands that run a command named in their arguments.
var wrappers = []string{"sh", "bash", "dash", "zsh", "fish", "env", "nice", "nohup", "timeout", "time", "stdbuf", "xargs", "setsid", "watch"}

// printBypass prints what the command argv sent past the proxy, why, and how to prevent that. nothing says that the
// proxy received no request, and so the command may have sent all of them past it.
func printBypass(w io.Writer, argv []string, past *directConns, nothing bool) {
	pairs := past.pairs()
	if len(pairs) == 0 && !nothing {
		return
	}
	past.print(w)
	hint := bypassOf(argv)
	// The command may have run several programs.
	if len(pairs) > 0 {
		hint = bypassNamed(pairs[0].program)
	}
	verdict := "The proxy judged none of these connections."
	if nothing {
		verdict = "NOTHING WAS JUDGED."
	}
	switch {
	case hint != nil:
		hint.print(w)
	case nothing:
		fmt.Fprintln(w, "  (Go, Ruby, Java and Chromium bypass any proxy for addresses of this machine.)")
	}
	fmt.Fprintf(w, "robotsproxy: %s Use robotsproxy run --confine -- COMMAND (Linux), or set the URL that COMMAND finds in $http_proxy in the client's own settings.\n", verdict)
}

// print prints the hint.
func (b *bypass) print(w io.Writer) {
	fmt.Fprintf(w, "  %s\n", b.why)
	for _, line := range b.try {
		fmt.Fprintf(w, "    %s\n", line)
	}
}

// bypassOf looks up a command, also within the arguments of a wrapper; nil: unknown.
func bypassOf(argv []string) *bypass {
	if len(argv) == 0 {
		return nil
	}
	if l := bypassNamed(argv[0]); l != nil || !slices.Contains(wrappers, program(argv[0])) {
		return l
	}
	// An argument may be a script.
	for _, word := range strings.Fields(strings.Join(argv[1:], " ")) {
		if l := bypassNamed(strings.Trim(word, `'"();&|`)); l != nil {
			return l
		}
	}
	return nil
}

// bypassNamed looks up a command by name; nil: unknown.
func bypassNamed(command string) *bypass {
	name := program(command)
	i := slices.IndexFunc(bypasses, func(l bypass) bool { return slices.Contains(l.names, name) })
	if i < 0 {
		return nil
	}
	return &bypasses[i]
}

// program returns a command's name without directory and version, such as that of
// /usr/bin/python3.11; links2 and wget2 are names.
func program(command string) string {
	name := filepath.Base(command)
	if known := func(l bypass) bool { return slices.Contains(l.names, name) }; slices.ContainsFunc(bypasses, known) {
		return name
	}
	return strings.TrimRight(name, "0123456789.-")
}
