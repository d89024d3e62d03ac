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
	try   []string // command lines or sentences
}

var bypasses = []bypass{
	{[]string{"httrack", "webhttrack"}, "HTTrack reads no variable. It has to be told of the proxy, as in",
		[]string{`robotsproxy run -- sh -c 'httrack -P "${http_proxy#http://}" https://example.com/'`}},
	{[]string{"links", "links2"}, "Links reads no variable. It has to be told of the proxy, as in",
		[]string{`robotsproxy run -- sh -c 'p=${http_proxy#http://}; links -http-proxy "$p" -https-proxy "$p" https://example.com/'`}},
	{[]string{"wget2"}, "wget2 goes past any proxy for https. Use wget or curl, which do not.", nil},
	{[]string{"wget"}, "wget goes past the proxy with --no-proxy, or with use_proxy or no_proxy given by -e.", nil},
	{[]string{"curl"}, "curl goes past the proxy with --noproxy, or with another -x; ~/.curlrc may have either.", nil},
	{[]string{"git"}, "Git takes http.proxy of its configuration before the variables, and no proxy for ssh:// and git://.",
		[]string{`robotsproxy run -- sh -c 'git -c http.proxy="$http_proxy" clone https://example.com/a.git'`}},
	{[]string{"node", "nodejs", "npm", "npx", "yarn", "pnpm", "tsx", "ts-node"},
		"Node before version 24 has no proxy for its modules http and https, on which got, node-fetch and superagent rest.",
		[]string{"Use Node 24, or give the client an agent for the address in http_proxy (hpagent, https-proxy-agent).",
			"Crawlee wants it in a ProxyConfiguration, in any version."}},
	{[]string{"java", "javaw", "mvn", "mvnw", "gradle", "gradlew", "sbt", "kotlin", "scala", "groovy", "jshell"},
		"Java finds the proxy by JAVA_TOOL_OPTIONS, which a start script may have set anew or emptied.",
		[]string{"Apache HttpClient heeds it only with useSystemProperties()."}},
	{[]string{"python", "pypy", "ipython", "pytest", "uv", "poetry"},
		"In Python bare urllib3 reads no variable, aiohttp does only with trust_env=True, and requests and httpx not with trust_env=False.",
		[]string{`urllib3.ProxyManager(os.environ["http_proxy"]) goes through it.`}},
	{[]string{"scrapy"}, "Scrapy goes past the proxy with HTTPPROXY_ENABLED = False, or where Request.meta names another.", nil},
	{[]string{"ruby", "bundle", "rake"}, "In Ruby Mechanize reads no variable, and Net::HTTP goes past any proxy for loopback addresses.",
		[]string{`agent.set_proxy(*ENV["http_proxy"].delete_prefix("http://").split(":")) tells Mechanize.`}},
	{[]string{"php"}, "PHP's streams (file_get_contents and what rests on it) read no variable; its curl functions do.",
		[]string{"A stream takes the proxy from its context: http, proxy, with request_fulluri."}},
	{[]string{"go"}, "Go programs go past any proxy for loopback addresses, and always where their Transport names none.",
		[]string{"http.Transport wants Proxy: http.ProxyFromEnvironment."}},
	{[]string{"cargo"}, "Of Rust's clients ureq reads no variable. It takes a proxy in its Agent's configuration.", nil},
	{[]string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "brave-browser", "microsoft-edge"},
		"A browser that runs already takes the addresses over, and Chromium goes past any proxy for loopback addresses. Give it a profile of its own:",
		[]string{`robotsproxy run -- sh -c 'chromium --user-data-dir="$(mktemp -d)" --proxy-server="$http_proxy" "--proxy-bypass-list=<-loopback>"'`}},
	{[]string{"firefox", "firefox-esr"},
		"A browser that runs already takes the addresses over, and Firefox may have a proxy of its own in its settings, or none.",
		[]string{"Its settings take the address in http_proxy, with /proxy.pac behind it, as automatic configuration."}},
	{[]string{"docker", "podman", "nerdctl", "kubectl"}, "What runs in a container has neither these variables nor the loopback that this proxy listens on.",
		[]string{"Run robotsproxy in the container, or let the container use a robotsproxy serve that it can reach."}},
	{[]string{"sudo", "doas", "su", "ssh"}, "This command starts others without these variables. Turn it round:",
		[]string{"sudo robotsproxy run -- COMMAND"}},
}

// wrappers are commands that run a command named in their arguments.
var wrappers = []string{"sh", "bash", "dash", "zsh", "fish", "env", "nice", "nohup", "timeout", "time", "stdbuf", "xargs", "setsid", "watch"}

// printBypass prints why no request may have come through the proxy, and what to do.
func printBypass(w io.Writer, argv []string) {
	l := bypassOf(argv)
	if l == nil {
		fmt.Fprintln(w, "  If it has fetched anything, that went past the proxy: give it the address in $http_proxy in its own settings.")
		fmt.Fprintln(w, "  (Go, Ruby, Java and Chromium go past any proxy for addresses of this machine.)")
		return
	}
	fmt.Fprintf(w, "  %s\n", l.why)
	for _, line := range l.try {
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
	for _, word := range strings.Fields(strings.Join(argv[1:], " ")) { // an argument may be a script
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
