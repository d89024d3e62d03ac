package runner

import (
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/castore"
)

// runFiles are the files that a child's variables point at.
type runFiles struct {
	// The system's roots and the proxy's CA, as PEM.
	bundle string
	wgetrc string

	// Of .ini files.
	phpDir string

	// The roots as PKCS #12.
	java string

	// For Node.
	preload string

	// For doctor; in the run's directory, which the variable names.
	description string
}

// A variable is one variable of the child's environment, computed from the parent's value.
type variable struct {
	name  string
	value func(old string, set bool) string
}

// childEnv returns the parent's environment with the proxy and CA variables of all ecosystems. It
// is pure: proxy is the host:port of a proxy, and the files of f need not exist. The variables in kept keep
// the parent's values.
func childEnv(parent []string, proxy string, f runFiles, kept []string) []string {
	ours := slices.DeleteFunc(variables(proxy, f), func(v variable) bool { return slices.Contains(kept, v.name) })
	drop := map[string]bool{
		// Nothing may bypass the proxy.
		"NO_PROXY": true, "no_proxy": true,
		// Would be searched in addition to the bundle.
		"SSL_CERT_DIR": true,
	}
	for _, v := range ours {
		drop[v.name] = true
	}
	env := make([]string, 0, len(parent)+len(ours))
	old := map[string]string{}
	for _, line := range parent {
		name, value, _ := strings.Cut(line, "=")
		// There, case does not matter.
		if drop[name] || runtime.GOOS == "windows" && drop[strings.ToUpper(name)] {
			old[name] = value
			continue
		}
		env = append(env, line)
	}
	for _, v := range ours {
		was, set := old[v.name]
		env = append(env, v.name+"="+v.value(was, set))
	}
	return env
}

// programBundles are variables by which one program finds a file of roots, in place of its own or the
// system's. People set them for a private CA of their own.
var programBundles = []string{
	"AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "PIP_CERT", "CARGO_HTTP_CAINFO", "BUNDLE_SSL_CA_CERT",
}

// keptVariables returns those of programBundles that the user has set to a file with a certificate that
// bundle lacks, or to a file that cannot be read. A file of the system's roots is no reason to keep it.
func keptVariables(getenv func(string) string, bundle []byte) (kept []string) {
	for _, name := range programBundles {
		file := getenv(name)
		if file == "" {
			continue
		}
		text, err := castore.ReadRoots(file)
		known := castore.Certificates(bundle)
		if err != nil || len(castore.Merge(known, castore.Certificates(text))) > len(known) {
			kept = append(kept, name)
		}
	}
	return kept
}

// variables returns the variables by which each ecosystem finds a proxy and trusts a CA, tested
// with the real clients one at a time.
func variables(proxy string, f runFiles) []variable {
	var all []variable
	fixed := func(value string, names ...string) {
		for _, name := range names {
			all = append(all, variable{name, func(string, bool) string { return value }})
		}
	}
	// curl, wget and git read only the lower-case http_proxy, global-agent only upper case. For ftp, wget and urllib
	// read no other than ftp_proxy.
	fixed("http://"+proxy, "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ftp_proxy", "FTP_PROXY",
		"all_proxy", "ALL_PROXY")
	// Most of these replace the client's roots; a CURL_CA_BUNDLE that is set already would win over SSL_CERT_FILE.
	fixed(f.bundle, "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "DENO_CERT",
		"GIT_SSL_CAINFO", "PERL_LWP_SSL_CA_FILE", "MOJO_CA_FILE")
	fixed(f.bundle, programBundles...)
	fixed(f.wgetrc, "WGETRC")
	fixed("1", "NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY")
	fixed(filepath.Dir(f.description), runDirVariable)
	return append(all,
		variable{"PHP_INI_SCAN_DIR", func(old string, set bool) string {
			// set but empty: PHP scans no directory of its own.
			if set && old == "" {
				return f.phpDir
			}
			// An empty element is PHP's own directory.
			return old + string(filepath.ListSeparator) + f.phpDir
		}},
		variable{"JAVA_TOOL_OPTIONS", func(old string, _ bool) string { return appendOptions(old, javaOptions(proxy, f.java)) }},
		variable{"NODE_OPTIONS", func(old string, _ bool) string { return appendOptions(old, "--require="+nodeQuote(f.preload)) }},
	)
}

// appendOptions appends options to existing ones: the later ones win.
func appendOptions(old, more string) string {
	if strings.TrimSpace(old) == "" {
		return more
	}
	return old + " " + more
}

func javaOptions(proxy, store string) string {
	host, port, err := net.SplitHostPort(proxy)
	if err != nil {
		// Not an address.
		return ""
	}
	options := []string{
		"-Dhttp.proxyHost=" + host, "-Dhttp.proxyPort=" + port,
		"-Dhttps.proxyHost=" + host, "-Dhttps.proxyPort=" + port,
		"-Dftp.proxyHost=" + host, "-Dftp.proxyPort=" + port,
		// For https too; the default bypasses the proxy for loopback.
		"-Dhttp.nonProxyHosts=",
		"-Dftp.nonProxyHosts=",
		JavaTrust(store),
	}
	return strings.Join(options, " ")
}

// JavaTrust returns the options that make Java trust the certificates in a store and no others.
func JavaTrust(store string) string {
	return javaQuote("-Djavax.net.ssl.trustStore="+store) + " -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" + castore.JavaPassword
}

// javaQuote quotes an option for JAVA_TOOL_OPTIONS, which the JVM splits at white space outside of
// either kind of quotes; there are no escapes.
func javaQuote(option string) string {
	switch {
	case !strings.ContainsAny(option, " \t\n'\""):
		return option
	case !strings.Contains(option, `"`):
		return `"` + option + `"`
	default:
		return `'` + option + `'`
	}
}

// nodeQuote quotes a path for NODE_OPTIONS, which Node splits at blanks outside of double quotes; a
// backslash escapes within them.
func nodeQuote(path string) string {
	if !strings.ContainsAny(path, " \"\\") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

const (
	// names the directory of the run that a process is in.
	runDirVariable = "ROBOTSPROXY_RUN"
	// Is there for as long as the run lasts.
	descriptionName = "run.yaml"
)
