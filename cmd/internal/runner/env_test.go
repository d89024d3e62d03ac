package runner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"software.sslmate.com/src/go-pkcs12"

	"robotsproxy/cmd/internal/castore"
)

var somewhere = runFiles{bundle: "/r/b.pem", wgetrc: "/r/wgetrc", phpDir: "/r/php", java: "/r/b.p12", preload: "/r/preload.cjs", description: "/r/run.yaml"}

func asMap(t *testing.T, env []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		if _, twice := m[name]; twice {
			t.Errorf("%s is set twice", name)
		}
		m[name] = value
	}
	return m
}

func TestChildEnv(t *testing.T) {
	const java = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=4711 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=4711 " +
		"-Dftp.proxyHost=127.0.0.1 -Dftp.proxyPort=4711 -Dhttp.nonProxyHosts= -Dftp.nonProxyHosts= -Djavax.net.ssl.trustStore=/r/b.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
	got := asMap(t, childEnv([]string{
		"PATH=/bin", "ODD=a=b", "EMPTY=",
		"http_proxy=http://other:1", "HTTPS_PROXY=http://other:1", "NO_PROXY=*", "no_proxy=localhost",
		"SSL_CERT_DIR=/etc/certs", "SSL_CERT_FILE=/etc/certs.pem", "CURL_CA_BUNDLE=/x", "REQUESTS_CA_BUNDLE=/x",
		"WGETRC=/home/u/wgetrc", "NODE_USE_ENV_PROXY=0",
	}, "127.0.0.1:4711", somewhere, nil))
	want := map[string]string{
		"PATH": "/bin", "ODD": "a=b", "EMPTY": "",
		"NODE_USE_ENV_PROXY": "1", "PERL_LWP_ENV_PROXY": "1", "ROBOTSPROXY_RUN": "/r",
		"WGETRC": "/r/wgetrc", "PHP_INI_SCAN_DIR": ":/r/php", "JAVA_TOOL_OPTIONS": java, "NODE_OPTIONS": "--require=/r/preload.cjs",
	}
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY"} {
		want[name] = "http://127.0.0.1:4711"
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "DENO_CERT",
		"GIT_SSL_CAINFO", "PERL_LWP_SSL_CA_FILE", "MOJO_CA_FILE", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS",
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "PIP_CERT", "CARGO_HTTP_CAINFO", "BUNDLE_SSL_CA_CERT"} {
		want[name] = "/r/b.pem"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestChildEnvAppends(t *testing.T) {
	spaced := runFiles{phpDir: "/a dir/php", java: "/a dir/b.p12", preload: `/a "dir"\/preload.cjs`}
	for _, c := range []struct{ name, parent, variable, want string }{
		{"PHP: its own directory first", "PHP_INI_SCAN_DIR=/p:/q", "PHP_INI_SCAN_DIR", "/p:/q:/a dir/php"},
		{"PHP: set to none", "PHP_INI_SCAN_DIR=", "PHP_INI_SCAN_DIR", "/a dir/php"},
		{"Node: options that are set", "NODE_OPTIONS=--max-old-space-size=99", "NODE_OPTIONS", `--max-old-space-size=99 --require="/a \"dir\"\\/preload.cjs"`},
		{"Node: set to nothing", "NODE_OPTIONS= ", "NODE_OPTIONS", `--require="/a \"dir\"\\/preload.cjs"`},
		{"Java: options that are set", "JAVA_TOOL_OPTIONS=-Dx=y", "JAVA_TOOL_OPTIONS", `-Dx=y -Dhttp.proxyHost=h`},
		{"Java: a blank in the path", "X=", "JAVA_TOOL_OPTIONS", ` "-Djavax.net.ssl.trustStore=/a dir/b.p12" `},
	} {
		got := asMap(t, childEnv([]string{c.parent}, "h:1", spaced, nil))[c.variable]
		if got != c.want && (c.variable != "JAVA_TOOL_OPTIONS" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// What the user has set for one program stays if it has a certificate of the user's own.
func TestKeptVariables(t *testing.T) {
	dir := t.TempDir()
	_, system := newCert(t, "system")
	_, private := newCert(t, "private")
	write(t, system, dir, "system.pem")
	write(t, slices.Concat(system, private), dir, "own.pem")
	for _, c := range []struct {
		name, file string
		kept       []string
	}{
		{"not set, or set to nothing", "", nil},
		{"the system's roots", "system.pem", nil},
		{"a private CA besides", "own.pem", []string{"PIP_CERT"}},
		{"not readable", "gone.pem", []string{"PIP_CERT"}},
	} {
		file := c.file
		if file != "" {
			file = filepath.Join(dir, file)
		}
		kept := keptVariables(getenvFrom(map[string]string{"PIP_CERT": file}), system)
		if diff := cmp.Diff(c.kept, kept); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		want := map[bool]string{true: file, false: somewhere.bundle}[kept != nil]
		if got := asMap(t, childEnv([]string{"PIP_CERT=" + file}, "h:1", somewhere, kept))["PIP_CERT"]; got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}

func newCert(t *testing.T, name string) (*x509.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func getenvFrom(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func write(t *testing.T, text []byte, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWriteRunFiles(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	_, root := newCert(t, "a root")
	_, twin := newCert(t, "a root") // another of the same name
	_, ca := newCert(t, "the proxy's")
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("broken")})
	system := strings.Join([]string{"# a comment\n", string(root), string(twin), string(root), string(broken)}, "")
	file := write(t, []byte(system), elsewhere, "roots.pem")
	home := write(t, []byte("user_agent = mine\nhttps_proxy = http://other:1\n# no line end"), elsewhere, ".wgetrc")
	env := map[string]string{"SSL_CERT_FILE": file, "HOME": filepath.Dir(home)}

	f := filesIn(dir)
	if _, err := writeRunFiles(dir, dir, "127.0.0.1:4711", ca, getenvFrom(env)); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, f.bundle), string(root)+string(twin)+string(ca); got != want {
		t.Errorf("bundle: %s", got)
	}
	certs, err := pkcs12.DecodeTrustStore([]byte(read(t, f.java)), castore.JavaPassword)
	if err != nil || len(certs) != 3 {
		t.Errorf("Java's: %d certificates, %v; want 3", len(certs), err)
	}
	wantWget := "user_agent = mine\nhttps_proxy = http://other:1\n# no line end\nuse_proxy = on\nhttp_proxy = http://127.0.0.1:4711\n" +
		"https_proxy = http://127.0.0.1:4711\nno_proxy =\nca_certificate = " + f.bundle + "\n"
	if diff := cmp.Diff(wantWget, read(t, f.wgetrc)); diff != "" {
		t.Error(diff)
	}
	wantPHP := "curl.cainfo = '" + f.bundle + "'\nopenssl.cafile = '" + f.bundle + "'\n"
	if diff := cmp.Diff(wantPHP, read(t, f.phpDir, "robotsproxy.ini")); diff != "" {
		t.Error(diff)
	}
	if read(t, f.preload) != string(nodePreload) {
		t.Error("another preload")
	}
}

func TestUsersWgetrc(t *testing.T) {
	dir := t.TempDir()
	named := write(t, []byte("named"), dir, "named")
	write(t, []byte("home"), dir, ".wgetrc")
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"WGETRC", map[string]string{"WGETRC": named, "HOME": dir}, "named"},
		{"HOME", map[string]string{"HOME": dir}, "home"},
		{"none there", map[string]string{"HOME": filepath.Join(dir, "none")}, ""},
		{"no HOME", nil, ""},
	} {
		if got := string(usersWgetrc(getenvFrom(c.env))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSystemRoots(t *testing.T) {
	dir := t.TempDir()
	a, aPEM := newCert(t, "a")
	b, bPEM := newCert(t, "b")
	file := write(t, aPEM, dir, "a.pem")
	write(t, bPEM, dir, "b.pem")
	write(t, []byte("no certificate"), dir, "README")
	for _, c := range []struct {
		name string
		env  map[string]string
		want []*x509.Certificate
	}{
		{"SSL_CERT_FILE", map[string]string{"SSL_CERT_FILE": file, "SSL_CERT_DIR": dir}, []*x509.Certificate{a}},
		{"SSL_CERT_DIR", map[string]string{"SSL_CERT_DIR": dir + ":/nowhere"}, []*x509.Certificate{a, b}},
	} {
		got, err := castore.SystemRoots(getenvFrom(c.env))
		if err != nil || !equal(got, c.want) {
			t.Errorf("%s: %d certificates, %v", c.name, len(got), err)
		}
	}
	if _, err := castore.SystemRoots(getenvFrom(map[string]string{"SSL_CERT_FILE": "/nowhere/roots.pem"})); err == nil || !strings.HasPrefix(err.Error(), "SSL_CERT_FILE: ") {
		t.Errorf("SSL_CERT_FILE that is not there: %v", err)
	}
}

func equal(a, b []*x509.Certificate) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

func TestNewRunDir(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for _, want := range []string{"20260102T020405Z-7", "20260102T020405Z-7.2", "20260102T020405Z-7.3"} {
		dir, lock, err := newRunDir(state, at, 7)
		if lock != nil {
			defer lock.Close()
		}
		if err != nil || dir != filepath.Join(state, "runs", want) {
			t.Errorf("%s, %v; want %s", dir, err, want)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
	}
}
