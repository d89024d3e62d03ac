package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
)

// checkVariables checks where the proxy variables of this environment lead.
func checkVariables(ctx context.Context, d *doctor) []cli.Diagnosis {
	set := d.page("")
	export := fmt.Sprintf("export http_proxy=%[1]s https_proxy=%[1]s HTTP_PROXY=%[1]s HTTPS_PROXY=%[1]s", set)
	var names []string
	var found []cli.Diagnosis
	for _, name := range daemon.ProxyVariables {
		value := d.getenv(name)
		if value == "" {
			continue
		}
		names = append(names, name)
		u, err := proxyURL(value)
		switch {
		case err != nil:
			found = append(found, cli.Fail(export, "%s does not contain the URL of an HTTP proxy", name))
		case !sameListener(ctx, u.Host, d.listen):
			found = append(found, cli.Fail(export+"\nor, to check that proxy:\nrobotsproxy doctor"+d.flags.Args()+" --proxy \"$"+name+"\"",
				"%s points to %s, not to %s", name, u.Redacted(), set))
		}
	}
	if len(names) == 0 {
		return []cli.Diagnosis{cli.Warn(export+"\nor, to run one command behind a proxy of its own:\nrobotsproxy run -- COMMAND",
			"none is set: clients bypass the proxy unless it is configured in another way")}
	}
	found = append(found, checkMissing(d, names, export)...)
	if len(found) == 0 {
		found = []cli.Diagnosis{cli.OK("%s point to %s", strings.Join(names, ", "), set)}
	}
	return found
}

// checkMissing returns warnings about variables that are not set or that exclude hosts.
func checkMissing(d *doctor, names []string, export string) (found []cli.Diagnosis) {
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(name string) bool { return slices.Contains(names, name) })
	}
	all := has("all_proxy", "ALL_PROXY")
	switch {
	case !has("http_proxy", "HTTP_PROXY") && !all:
		found = append(found, cli.Fail(export, "http_proxy is not set: plain HTTP bypasses the proxy"))
	case !has("http_proxy"):
		found = append(found, cli.Warn(export,
			"http_proxy is not set in lower case, and curl, wget, git, lynx and Chromium do not read HTTP_PROXY"))
	}
	switch {
	case !has("https_proxy", "HTTPS_PROXY") && !all:
		found = append(found, cli.Fail(export, "https_proxy is not set: HTTPS bypasses the proxy"))
	case !has("https_proxy", "HTTPS_PROXY"):
		found = append(found, cli.Warn(export, "https_proxy is not set, and Go, urllib, wget and Node do not read all_proxy"))
	}
	for _, name := range []string{"no_proxy", "NO_PROXY"} {
		switch value := strings.TrimSpace(d.getenv(name)); value {
		case "":
		case "*":
			found = append(found, cli.Fail("unset "+name, "%s is *: all requests bypass the proxy", name))
		default:
			found = append(found, cli.Warn("unset "+name,
				"%s makes requests to these hosts bypass the proxy: %s", name, value[:min(len(value), humanize.MaxBrief)]))
		}
	}
	return found
}

// An uncoveredClient is a client that ignores some or all proxy variables, or accepts every certificate. All were tested with the clients
// themselves.
type uncoveredClient struct {
	name      string
	installed condition
	problem   string

	// hint says what to do. {proxy}, {host} and {port} are the proxy's.
	hint string
}

// A condition reports whether a client is there, and needs a warning.
type condition func(context.Context, *doctor) bool

const (
	noVariable     = "does not read proxy variables"
	noVerification = "does not verify certificates: it does not need the CA, and does not notice a false certificate"
)

var uncoveredClients = []uncoveredClient{
	{"httrack", onPath("httrack"), noVariable + ", and bypasses any proxy for HTTPS",
		"robotsproxy run --confine -- httrack …\nor, for plain HTTP:\nhttrack -P {proxy} …"},
	{"links", onPath("links"), noVariable, "links -http-proxy {proxy} -https-proxy {proxy} …"},
	{"wget2", onPath("wget2"), "cannot use an HTTP proxy for HTTPS",
		"use wget or curl, or:\nrobotsproxy run --confine -- wget2 …"},
	{"elinks", onPath("elinks"), noVerification, "set connect.ssl.cert_verify = 1 in elinks.conf"},
	{"scrapy", either(onPath("scrapy"), pythonHas("scrapy")), noVerification,
		"DOWNLOADER_CLIENTCONTEXTFACTORY = 'scrapy.core.downloader.contextfactory.BrowserLikeContextFactory'"},
	{"php", onPath("php"), "does not read proxy variables in its streams (file_get_contents, fopen), only in its curl functions",
		"stream_context_set_default(['http' => ['proxy' => 'tcp://{proxy}', 'request_fulluri' => true]])"},
	{"urllib3", pythonHas("urllib3"), noVariable + " when a program uses it directly; requests does",
		"urllib3.ProxyManager('http://{proxy}')"},
	{"mechanize (Ruby)", gemHas("mechanize"), noVariable, "agent.set_proxy('{host}', {port})"},
	{"node", nodeUncovered,
		"reads proxy variables in its own http and fetch only from Node 24 on, and only with NODE_USE_ENV_PROXY=1",
		"configure the proxy in each library (axios reads the variables). " +
			"robotsproxy run sets what fetch and Node 24 need:\nrobotsproxy run -- node …"},
	{"node", nodeInRunUncovered,
		"does not read proxy variables in its own http before Node 24; its fetch does under robotsproxy run",
		"use Node 24, or configure the proxy in each library (axios reads the variables)"},
	{"crawlee", nodeHas("crawlee"), noVariable + ", and does not verify certificates",
		"new ProxyConfiguration({proxyUrls: ['http://{proxy}']})"},
	{"superagent", nodeHas("superagent"), noVariable, "run it on Node 24 with NODE_USE_ENV_PROXY=1, or give it an agent"},
	{"needle", nodeHas("needle"), noVerification, "needle.defaults({rejectUnauthorized: true})"},
	{"java", javaUncovered, noVariable, "export JAVA_TOOL_OPTIONS='-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} " +
		"-Dhttps.proxyHost={host} -Dhttps.proxyPort={port}'"},
	{"ureq (Rust)", cargoHas("ureq"), noVariable, "ureq::Agent::config_builder().proxy(…)"},
}

// checkUncovered warns of installed clients that variables do not cover.
func checkUncovered(ctx context.Context, d *doctor) (found []cli.Diagnosis) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	fill := strings.NewReplacer("{proxy}", d.proxy.Host, "{host}", d.proxy.Hostname(), "{port}", d.proxy.Port())
	there := parallel(uncoveredClients, func(e uncoveredClient) bool {
		return (len(d.flags.clients) == 0 || slices.Contains(d.flags.clients, e.name)) && e.installed(ctx, d)
	})
	for i, e := range uncoveredClients {
		if there[i] {
			found = append(found, cli.Warn(fill.Replace(e.hint), "%s %s", e.name, e.problem))
		}
	}
	return found
}

func onPath(name string) condition {
	return func(context.Context, *doctor) bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
}

func either(a, b condition) condition {
	return func(ctx context.Context, d *doctor) bool { return a(ctx, d) || b(ctx, d) }
}

// succeeds is the condition that a command exits with status 0.
func succeeds(name string, args ...string) condition {
	return func(ctx context.Context, _ *doctor) bool {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = directEnv(os.Environ())
		cmd.WaitDelay = time.Second
		return cmd.Run() == nil
	}
}

func pythonHas(module string) condition {
	return succeeds("python3", "-c", "import sys, importlib.util as u; sys.exit(u.find_spec(sys.argv[1]) is None)", module)
}

func nodeHas(module string) condition {
	return succeeds("node", "-e", "require.resolve(process.argv[1])", module)
}

func gemHas(gem string) condition {
	return succeeds("gem", "list", "--installed", "--silent", "^"+gem+"$")
}

// maxLockFile is how many bytes of a lock file of dependencies are read.
const maxLockFile = 16 << 20

// cargoHas is the condition that the Rust project in the working directory depends on a crate.
func cargoHas(crate string) condition {
	return func(context.Context, *doctor) bool {
		text, err := cli.ReadFile("Cargo.lock", maxLockFile)
		return err == nil && strings.Contains(string(text), `name = "`+crate+`"`)
	}
}

// nodeUncovered reports whether Node is installed and was not told by a run to read the variables.
func nodeUncovered(ctx context.Context, d *doctor) bool {
	return !d.insideRun && onPath("node")(ctx, d) && (d.getenv("NODE_USE_ENV_PROXY") != "1" || oldNode(ctx, d))
}

// nodeInRunUncovered reports whether this is a run with a Node that reads only some of its variables.
func nodeInRunUncovered(ctx context.Context, d *doctor) bool { return d.insideRun && oldNode(ctx, d) }

// oldNode reports whether Node is installed, in a version that does not read proxy variables.
func oldNode(ctx context.Context, d *doctor) bool {
	return succeeds("node", "-e", "process.exit(parseInt(process.versions.node) < 24 ? 0 : 1)")(ctx, d)
}

// javaUncovered reports whether Java is installed and has no proxy options.
func javaUncovered(ctx context.Context, d *doctor) bool {
	options := d.getenv("JAVA_TOOL_OPTIONS") + d.getenv("JDK_JAVA_OPTIONS")
	return onPath("java")(ctx, d) && !strings.Contains(options, javaProxyOption)
}
