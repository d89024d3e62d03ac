package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/proxy/guide"
)

// systemClient is the name of the check for programs that use the system's roots.
const systemClient = "system"

// opensslVars are the variables by which OpenSSL and Go find roots other than the system's.
var opensslVars = []string{"SSL_CERT_FILE"}

// testedClients are the clients that checkTrust runs.
var testedClients = []client{
	{name: systemClient, vars: opensslVars, hint: "{install}\nor, for programs that use OpenSSL or Go:\nexport SSL_CERT_FILE={ca}"},
	{name: "curl", command: "curl", args: curlArgs, vars: []string{"CURL_CA_BUNDLE", "SSL_CERT_FILE"},
		hint: "{install}\nor, for curl alone:\nexport CURL_CA_BUNDLE={ca}"},
	{name: "git", command: "git", args: gitArgs, vars: []string{"GIT_SSL_CAINFO"},
		hint: "{install}\nor, for git alone:\nexport GIT_SSL_CAINFO={ca}"},
	{name: "urllib", command: "python3", args: python("urllib.request", "urllib.request.urlopen(sys.argv[1], timeout=20)"),
		vars: opensslVars,
		hint: "{install}\nor, for a Python that was not installed by the system:\nexport SSL_CERT_FILE={ca}"},
	{name: "requests", command: "python3", args: python("requests", "requests.get(sys.argv[1], timeout=20)"),
		vars: []string{"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"},
		hint: "export REQUESTS_CA_BUNDLE={ca}"},
	{name: "httpx", command: "python3", args: python("httpx", "httpx.get(sys.argv[1], timeout=20)"), vars: opensslVars,
		hint: "export SSL_CERT_FILE={ca}"},
	{name: "aiohttp", command: "python3", args: python("asyncio, aiohttp", aiohttpGet), vars: opensslVars,
		hint: "{install}\nor, for a Python that was not installed by the system:\nexport SSL_CERT_FILE={ca}"},
	{name: "node", command: "node", args: nodeArgs, vars: []string{"NODE_EXTRA_CA_CERTS"},
		hint: "export NODE_EXTRA_CA_CERTS={ca}"},
	{name: "java", command: "java", args: javaArgs, inspect: javaTrustStore, hint: javaHint},
}

// The options by which Java gets another trust store, and a proxy.
const (
	javaTrustOption = "-Djavax.net.ssl.trustStore="
	javaProxyOption = "-Dhttps.proxyHost="
)

// javaHint creates a trust store beside the CA, for users who cannot write to Java's own. The alias contains the CA's fingerprint, so
// that the store can contain a later CA as well.
const javaHint = "{install} --java\nor, without changing Java's own trust store:\n" +
	"keytool -importcert -noprompt -alias {alias} -file {ca} -keystore {store} -storetype PKCS12 " +
	"-storepass " + castore.JavaPassword + "\n" +
	`export JAVA_TOOL_OPTIONS="$JAVA_TOOL_OPTIONS "{options}`

// clientChoices returns the values of --client.
func clientChoices() (names []string) {
	for _, c := range testedClients {
		names = append(names, c.name)
	}
	return append(names, "none")
}

func curlArgs(url, _ string) []string {
	return []string{"-fsS", "--noproxy", "*", "--max-time", "20", "-o", os.DevNull, url}
}

// gitArgs names a repository that does not exist: git fails, but only after it has checked the certificate.
func gitArgs(url, _ string) []string {
	return []string{"-c", "http.proxy=", "ls-remote", url + "none.git"}
}

// python returns the arguments of a script that fetches, or exits with exitNoLibrary if its library is not installed.
func python(library, fetch string) func(string, string) []string {
	return func(url, _ string) []string {
		return []string{"-c", "import sys\ntry:\n    import " + library + "\nexcept ImportError:\n    sys.exit(77)\n" + fetch, url}
	}
}

const aiohttpGet = `
async def get():
    async with aiohttp.ClientSession() as session:
        await session.get(sys.argv[1])
asyncio.run(get())`

func nodeArgs(url, _ string) []string {
	return []string{"-e", "require('https').get(process.argv[1], r => r.resume())", url}
}

// javaFetch is a single-file program (JEP 330), which a JDK compiles and runs.
const javaFetch = `public class Fetch {
	public static void main(String[] args) throws Exception {
		new java.net.URL(args[0]).openStream().close();
	}
}
`

func javaArgs(url, dir string) []string {
	file := filepath.Join(dir, "Fetch.java")
	// If the file cannot be written, Java reports that it is missing.
	os.WriteFile(file, []byte(javaFetch), 0o600)
	// JAVA_TOOL_OPTIONS may name a proxy; the command line overrides it.
	return []string{"-Dhttp.nonProxyHosts=127.0.0.1|localhost", file, url}
}

// javaTrustStore checks the trust store of a Java without a compiler.
func javaTrustStore(ctx context.Context, d *doctor) *cli.Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	output := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		// A start script may leave a Java process behind that keeps the pipe open.
		cmd.WaitDelay = time.Second
		text, err := cmd.Output()
		return string(text), err
	}
	if modules, err := output("java", "--list-modules"); err == nil && strings.Contains(modules, "jdk.compiler@") {
		return nil
	}
	const no = "this Java has no compiler to test it with"
	if strings.Contains(d.getenv("JAVA_TOOL_OPTIONS"), javaTrustOption) {
		return new(cli.Skip(no + ", and JAVA_TOOL_OPTIONS names another trust store"))
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		return new(cli.Skip(no + ", and no keytool"))
	}
	switch list, err := output(keytool, "-list", "-cacerts", "-storepass", castore.JavaPassword); {
	case err != nil:
		return new(cli.Skip(no+", and its trust store cannot be read: %v", err))
	case strings.Contains(list, guide.Fingerprint(d.ca.Raw)):
		return new(cli.OK("has the CA in its trust store (%s)", no))
	}
	return new(cli.Fail(d.expandHint(javaHint), "does not have the CA in its trust store (%s)", no))
}

const (
	// clientTimeout bounds one run of a client. A JVM that compiles takes a while on a busy machine.
	clientTimeout = 30 * time.Second

	// exitNoLibrary is the exit status of a script whose library is not installed.
	exitNoLibrary = 77

	// maxStderr is how many bytes of a client's standard error are kept.
	maxStderr = 64 << 10
)

// A client is a program that fetches pages, and how to run it against an https:// URL. The server sees whether it accepts the
// certificate there.
type client struct {
	name string

	// command is a program on PATH; "" means this process.
	command string

	// args returns the arguments with which the program fetches url. dir is an empty directory.
	args func(url, dir string) []string

	// vars are the variables that name the file of its roots. The first that is set counts.
	vars []string

	// hint makes the client trust the CA if none of vars is set; see expandHint.
	hint string

	// inspect checks a client that cannot be run. Without it, and if it returns nil, the client is run.
	inspect func(context.Context, *doctor) *cli.Diagnosis
}
