package runner

import (
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/castore"
)

// runDirVariable names the directory of the run that a process is in.
const runDirVariable = "ROBOTSPROXY_RUN"

// runFiles are the files that a child's variables point at.
type runFiles struct {
	// bundle has the system's roots and the proxy's CA as PEM, and java as PKCS #12.
	bundle, java string
	wgetrc       string

	// phpDir is a directory of .ini files.
	phpDir string

	// preload is a module for Node.
	preload string

	// description is for doctor, in the run's directory, which runDirVariable names. It lasts as long as the run.
	description string
}

// childEnv returns the parent's environment with the proxy and CA variables of all ecosystems. It
// is pure: proxy is the host:port of a proxy, and the files of f need not exist. The variables in kept keep
// the parent's values.
func childEnv(parent []string, proxy string, f runFiles, kept []string) []string {
	old := map[string]string{}
	for _, line := range parent {
		name, value, _ := strings.Cut(line, "=")
		old[name] = value
	}
	own := variables(old, proxy, f)
	for _, name := range kept {
		delete(own, name)
	}
	// A client with NO_PROXY bypasses the proxy, and with SSL_CERT_DIR it trusts more than the bundle.
	return setVariables(parent, own, "NO_PROXY", "no_proxy", "SSL_CERT_DIR")
}

// setVariables returns an environment with the variables own, and without those named in removed.
func setVariables(env []string, own map[string]string, removed ...string) []string {
	isReplaced := func(name string) bool {
		_, isOwn := own[name]
		return isOwn || slices.Contains(removed, name)
	}
	env = slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		// Windows ignores the case of names.
		return isReplaced(name) || runtime.GOOS == "windows" && isReplaced(strings.ToUpper(name))
	})
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, name+"="+own[name])
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
	known := castore.Certificates(bundle)
	for _, name := range programBundles {
		file := getenv(name)
		if file == "" {
			continue
		}
		text, err := castore.ReadRoots(file)
		if err != nil || len(castore.Merge(known, castore.Certificates(text))) > len(known) {
			kept = append(kept, name)
		}
	}
	return kept
}

// variables returns the variables by which each ecosystem finds a proxy and trusts a CA, tested
// with the real clients one at a time. old has the variables of the parent.
func variables(old map[string]string, proxy string, f runFiles) map[string]string {
	all := map[string]string{}
	set := func(value string, names ...string) {
		for _, name := range names {
			all[name] = value
		}
	}
	// curl, wget and git read only the lower-case http_proxy, global-agent only upper case. For ftp, wget and urllib
	// read no other than ftp_proxy.
	set("http://"+proxy, "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ftp_proxy", "FTP_PROXY",
		"all_proxy", "ALL_PROXY")
	// Most of these replace the client's roots; a CURL_CA_BUNDLE that is set already would win over SSL_CERT_FILE.
	set(f.bundle, "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "DENO_CERT",
		"GIT_SSL_CAINFO", "PERL_LWP_SSL_CA_FILE", "MOJO_CA_FILE")
	set(f.bundle, programBundles...)
	set(f.wgetrc, "WGETRC")
	set("1", "NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY")
	set(filepath.Dir(f.description), runDirVariable)
	// An empty element of the list is PHP's own directory. With an empty list, PHP scans none of its own.
	scanned, isSet := old["PHP_INI_SCAN_DIR"]
	if scanned != "" || !isSet {
		scanned += string(filepath.ListSeparator)
	}
	set(scanned+f.phpDir, "PHP_INI_SCAN_DIR")
	set(appendOptions(old["JAVA_TOOL_OPTIONS"], javaOptions(proxy, f.java)), "JAVA_TOOL_OPTIONS")
	set(appendOptions(old["NODE_OPTIONS"], "--require="+nodeQuote(f.preload)), "NODE_OPTIONS")
	return all
}

// appendOptions appends options to existing ones: the later ones win.
func appendOptions(old, more string) string {
	if strings.TrimSpace(old) == "" {
		return more
	}
	return old + " " + more
}

// javaOptions returns the options that make Java use the proxy and trust the certificates in a store.
func javaOptions(proxy, store string) string {
	// There is no error, because proxy is host:port.
	host, port, _ := net.SplitHostPort(proxy)
	var options []string
	for _, scheme := range []string{"http", "https", "ftp"} {
		options = append(options, "-D"+scheme+".proxyHost="+host, "-D"+scheme+".proxyPort="+port)
	}
	// The first is for https too. By default, Java bypasses the proxy for loopback.
	options = append(options, "-Dhttp.nonProxyHosts=", "-Dftp.nonProxyHosts=", JavaTrust(store))
	return strings.Join(options, " ")
}

// JavaTrust returns the options that make Java trust the certificates in a store and no others.
func JavaTrust(store string) string {
	return javaQuote("-Djavax.net.ssl.trustStore="+store) +
		" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" + castore.JavaPassword
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
