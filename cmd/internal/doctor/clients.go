package doctor

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
)

// systemClient is the name of what stands for programs that trust what the system does.
const systemClient = "system"

// The variables by which programs on OpenSSL, and Go's, find other roots than the system's.
var opensslVars = []string{"SSL_CERT_FILE"}

// tried are the clients that are run, by what they read: see variables in env.go.
var tried = []client{
	{name: systemClient, vars: opensslVars, mend: "{install}\nor, for programs on OpenSSL, and Go's:\nexport SSL_CERT_FILE={ca}"},
	{name: "curl", command: "curl", args: curlArgs, vars: []string{"CURL_CA_BUNDLE", "SSL_CERT_FILE"},
		mend: "{install}\nor, for curl alone:\nexport CURL_CA_BUNDLE={ca}"},
	{name: "git", command: "git", args: gitArgs, vars: []string{"GIT_SSL_CAINFO"},
		mend: "{install}\nor, for git alone:\nexport GIT_SSL_CAINFO={ca}"},
	{name: "urllib", command: "python3", args: python("urllib.request", "urllib.request.urlopen(sys.argv[1], timeout=20)"), vars: opensslVars,
		mend: "{install}\nor, where Python is not the system's:\nexport SSL_CERT_FILE={ca}"},
	{name: "requests", command: "python3", args: python("requests", "requests.get(sys.argv[1], timeout=20)"), vars: []string{"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"},
		mend: "export REQUESTS_CA_BUNDLE={ca}"},
	{name: "httpx", command: "python3", args: python("httpx", "httpx.get(sys.argv[1], timeout=20)"), vars: opensslVars,
		mend: "export SSL_CERT_FILE={ca}"},
	{name: "aiohttp", command: "python3", args: python("asyncio, aiohttp", aiohttpGet), vars: opensslVars,
		mend: "{install}\nor, where Python is not the system's:\nexport SSL_CERT_FILE={ca}"},
	{name: "node", command: "node", args: nodeArgs, vars: []string{"NODE_EXTRA_CA_CERTS"},
		mend: "export NODE_EXTRA_CA_CERTS={ca}"},
	{name: "java", command: "java", args: javaArgs, instead: javaUncompiled,
		mend: javaMend},
}

// javaMend has a trust store made beside the CA for those whose own is root's. Its name
// there is one CA's, so that the next is taken in beside it.
const javaMend = "{install} --java\nor, without a change to Java's own trust store:\n" +
	"keytool -importcert -noprompt -alias {alias} -file {ca} -keystore {store} -storetype PKCS12 -storepass " + castore.JavaPassword + "\n" +
	`export JAVA_TOOL_OPTIONS="$JAVA_TOOL_OPTIONS "{options}`

// clientChoices are what --client takes.
func clientChoices() (names []string) {
	for _, c := range tried {
		names = append(names, c.name)
	}
	return append(names, "none")
}

func curlArgs(url, _ string) []string {
	return []string{"-fsS", "--noproxy", "*", "--max-time", "20", "-o", os.DevNull, url}
}

// gitArgs let it fail behind the certificate: there is no repository.
func gitArgs(url, _ string) []string {
	return []string{"-c", "http.proxy=", "ls-remote", url + "none.git"}
}

// python is a script that fetches, or ends with notThere where its library is not installed.
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

// javaFetch is a program of one file (JEP 330): a JDK compiles and runs it.
const javaFetch = `public class Fetch {
	public static void main(String[] args) throws Exception {
		new java.net.URL(args[0]).openStream().close();
	}
}
`

func javaArgs(url, dir string) []string {
	file := filepath.Join(dir, "Fetch.java")
	os.WriteFile(file, []byte(javaFetch), 0o600) // without it Java says so
	// JAVA_TOOL_OPTIONS may name a proxy; what stands in the command line wins over it.
	return []string{"-Dhttp.nonProxyHosts=127.0.0.1|localhost", file, url}
}

// javaUncompiled looks into the trust store of a Java that has no compiler.
func javaUncompiled(ctx context.Context, d *doctor) *cli.Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	list := exec.CommandContext(ctx, "java", "--list-modules")
	list.WaitDelay = time.Second // a start script may leave a Java behind that has the pipe
	if modules, err := list.Output(); err == nil && strings.Contains(string(modules), "jdk.compiler@") {
		return nil
	}
	const no = "this Java has no compiler to try it with"
	found := cli.Skip(no + ", and no keytool")
	if strings.Contains(d.getenv("JAVA_TOOL_OPTIONS"), "-Djavax.net.ssl.trustStore=") {
		found = cli.Skip(no + ", and JAVA_TOOL_OPTIONS names a trust store of its own")
	} else if keytool, err := exec.LookPath("keytool"); err == nil {
		cmd := exec.CommandContext(ctx, keytool, "-list", "-cacerts", "-storepass", castore.JavaPassword)
		cmd.WaitDelay = time.Second
		switch list, err := cmd.Output(); {
		case err != nil:
			found = cli.Skip(no+", and its trust store cannot be read: %v", err)
		case strings.Contains(string(list), castore.Fingerprint(d.ca.Raw)):
			found = cli.Fine("has the CA in its trust store (%s)", no)
		default:
			found = cli.Fail(d.fill(javaMend), "has not got the CA in its trust store (%s)", no)
		}
	}
	return &found
}

const maxLockFile = 16 << 20 // octets of a file of dependencies

// uses says whether a file of dependencies, in the working directory, has a line.
func uses(file, line string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLockFile))
	return err == nil && strings.Contains(string(text), line)
}
