package runner

import (
	"path/filepath"
	"slices"
	"strings"
)

// A client is what is known of some commands: why their requests may not pass the proxy, and how they come to trust the
// proxy's CA. The texts were tested with the clients.
type client struct {
	names []string

	// why says why requests may not pass the proxy, and try what to do, as command lines or sentences.
	why string
	try []string

	// trust is how the client comes to trust the proxy's CA, where the variables that run sets do not do it; "": by
	// otherTrust.
	trust string
}

// otherTrust is the trust of all other commands.
const otherTrust = `robotsproxy ca install, or set the file in $SSL_CERT_FILE in the client's own settings`

// browserTrust is the trust of browsers.
const browserTrust = "robotsproxy ca install --browsers (browsers have certificate stores of their own)"

// startedBrowser is for clients that may start a browser.
const startedBrowser = " (a browser that it starts: robotsproxy ca install --browsers)"

// clients are the known clients.
var clients = []client{
	{names: []string{"httrack", "webhttrack"},
		why: "HTTrack does not read proxy variables, and bypasses any proxy for https. Confine it (on Linux):",
		try: []string{"robotsproxy run --confine -- httrack https://example.com/"}},
	{names: []string{"links", "links2"},
		why: "Links does not read proxy variables. Give it the proxy as options:",
		try: []string{`robotsproxy run -- sh -c 'p=${http_proxy#http://}; links -http-proxy "$p" -https-proxy "$p" https://example.com/'`}},
	{names: []string{"wget2"},
		why:   "wget2 cannot use an HTTP proxy for https. Use wget or curl, or confine wget2 (on Linux):",
		try:   []string{"robotsproxy run --confine -- wget2 https://example.com/"},
		trust: `wget --ca-certificate="$SSL_CERT_FILE"`},
	{names: []string{"wget"},
		why:   "wget bypasses the proxy with --no-proxy, or if -e sets use_proxy or no_proxy.",
		trust: `wget --ca-certificate="$SSL_CERT_FILE"`},
	{names: []string{"curl"},
		why:   "curl bypasses the proxy with --noproxy or another -x. Both may also be set in ~/.curlrc.",
		trust: `curl --cacert "$CURL_CA_BUNDLE" (a --cacert option, also one in ~/.curlrc, overrides the variable)`},
	{names: []string{"git"},
		why:   "Git prefers http.proxy of its configuration to the variables, and uses no proxy for ssh:// and git://.",
		try:   []string{`robotsproxy run -- sh -c 'git -c http.proxy="$http_proxy" clone https://example.com/a.git'`},
		trust: `git -c http.sslCAInfo="$SSL_CERT_FILE"`},
	{names: []string{"node", "nodejs", "npm", "npx", "yarn", "pnpm", "tsx", "ts-node"},
		why: "Before version 24, Node's modules http and https have no proxy support. got, node-fetch and superagent use them.",
		try: []string{"Use Node 24, or give the client an agent for the URL in http_proxy (hpagent, https-proxy-agent).",
			"Crawlee needs a ProxyConfiguration with that URL in every version of Node."},
		trust: "if the client has a ca option, pass it the file in NODE_EXTRA_CA_CERTS" + startedBrowser},
	{names: []string{"java", "javaw", "mvn", "mvnw", "gradle", "gradlew", "sbt", "kotlin", "scala", "groovy", "jshell"},
		why:   "Java finds the proxy through JAVA_TOOL_OPTIONS, which a start script may have replaced or cleared.",
		try:   []string{"Apache HttpClient uses the proxy only with useSystemProperties()."},
		trust: "if the client has its own trust store, make it use the one in JAVA_TOOL_OPTIONS"},
	{names: []string{"python", "pypy", "ipython", "pytest", "uv", "poetry"},
		why: "In Python, http.client and urllib3 do not read proxy variables, aiohttp reads them only with trust_env=True, " +
			"and requests and httpx do not with trust_env=False.",
		try: []string{`For urllib3 use urllib3.ProxyManager(os.environ["http_proxy"]).`},
		trust: `requests: verify=os.environ["REQUESTS_CA_BUNDLE"]; ` +
			`others: ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])` + startedBrowser},
	{names: []string{"scrapy"},
		why: "Scrapy bypasses the proxy with HTTPPROXY_ENABLED = False, or if Request.meta names another proxy."},
	{names: []string{"ruby", "bundle", "rake"},
		why: "In Ruby, Mechanize does not read proxy variables, and Net::HTTP bypasses any proxy for loopback addresses.",
		try: []string{`For Mechanize use agent.set_proxy(*ENV["http_proxy"].delete_prefix("http://").split(":")).`}},
	{names: []string{"php"},
		why: "PHP's streams (such as file_get_contents) do not read proxy variables; its curl functions do.",
		try: []string{"Set proxy and request_fulluri in the http options of the stream context."}},
	{names: []string{"go"},
		why: "Go programs bypass any proxy for loopback addresses, and for every address if their http.Transport sets no Proxy.",
		try: []string{"Set Proxy: http.ProxyFromEnvironment in the http.Transport."}},
	{names: []string{"cargo"},
		why: "In Rust, ureq does not read proxy variables. Set the proxy in the configuration of its Agent."},
	{names: []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "brave-browser", "microsoft-edge"},
		why: "A browser that already runs opens the URLs itself, without the proxy, " +
			"and Chromium bypasses any proxy for loopback addresses. Use a separate profile:",
		try: []string{`robotsproxy run -- sh -c 'chromium --user-data-dir="$(mktemp -d)" --proxy-server="$http_proxy" ` +
			`"--proxy-bypass-list=<-loopback>"'`},
		trust: browserTrust},
	{names: []string{"firefox", "firefox-esr"},
		why:   "A browser that already runs opens the URLs itself, and the settings of Firefox may name another proxy or none.",
		try:   []string{"In its settings, use the URL in http_proxy followed by /proxy.pac as the automatic proxy configuration URL."},
		trust: browserTrust},
	{names: []string{"docker", "podman", "nerdctl", "kubectl"},
		why: "A container does not have these variables, and cannot reach this machine's loopback, on which the proxy listens.",
		try: []string{"Run robotsproxy inside the container, or make the container use a robotsproxy serve that it can reach."}},
	{names: []string{"sudo", "doas", "su", "ssh"},
		why: "This command starts other commands without these variables. Swap the two:",
		try: []string{"sudo robotsproxy run -- COMMAND"}},
}

// wrappers are commands that run a command named in their arguments.
var wrappers = []string{
	"sh", "bash", "dash", "zsh", "fish", "env", "nice", "nohup", "timeout", "time", "stdbuf", "xargs", "setsid", "watch",
}

// clientOf looks up a command, also within the arguments of a wrapper; nil: it is unknown.
func clientOf(argv []string) *client {
	if len(argv) == 0 {
		return nil
	}
	if c := clientNamed(argv[0]); c != nil || !slices.Contains(wrappers, program(argv[0])) {
		return c
	}
	// An argument may be a script.
	for _, word := range strings.Fields(strings.Join(argv[1:], " ")) {
		if c := clientNamed(strings.Trim(word, `'"();&|`)); c != nil {
			return c
		}
	}
	return nil
}

// clientNamed looks up a command by name; nil: it is unknown.
func clientNamed(command string) *client {
	name := program(command)
	for i := range clients {
		if slices.Contains(clients[i].names, name) {
			return &clients[i]
		}
	}
	return nil
}

// program returns a command's name without directory and version, such as that of
// /usr/bin/python3.11; links2 and wget2 are names.
func program(command string) string {
	name := filepath.Base(command)
	if slices.ContainsFunc(clients, func(c client) bool { return slices.Contains(c.names, name) }) {
		return name
	}
	return strings.TrimRight(name, "0123456789.-")
}

// commandName returns the program in argv that sends requests, as far as it is known.
func commandName(argv []string) string {
	if c := clientOf(argv); c != nil && slices.Contains(wrappers, program(argv[0])) {
		return c.names[0]
	}
	return program(argv[0])
}
