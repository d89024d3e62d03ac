package audit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// opensslConfig makes openssl a certificate authority and a time-stamp authority.
const opensslConfig = `
[req]
distinguished_name = dn
[dn]
[tsa]
default_tsa = t
[t]
serial = serial
signer_cert = tsa.pem
certs = ca.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
[tsa_ext]
extendedKeyUsage = critical,timeStamping
`

// startTSA starts a time-stamp authority of openssl, which rejects requests while away is true. ca is
// the file with its certificate authority.
func startTSA(t *testing.T) (url, ca string, away *atomic.Bool) {
	openssl, dir := e2e.NeedPeer(t, "openssl"), t.TempDir()
	e2e.WriteFile(t, filepath.Join(dir, "cnf"), opensslConfig)
	run := func(args string, stdin io.Reader) ([]byte, error) {
		cmd := exec.Command(openssl, strings.Fields(args)...)
		cmd.Dir, cmd.Stdin, cmd.Stderr = dir, stdin, t.Output()
		return cmd.Output()
	}
	for _, args := range []string{
		"req -config cnf -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca",
		"req -config cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tsa.key -out tsa.csr -subj /CN=tsa",
		"x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile cnf -extensions tsa_ext -out tsa.pem",
	} {
		if _, err := run(args, nil); err != nil {
			t.Fatalf("openssl %s: %v", args, err)
		}
	}
	away = new(atomic.Bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := run("ts -reply -config cnf -queryfile /dev/stdin", r.Body)
		if err != nil || away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/timestamp-reply")
		w.Write(response)
	}))
	t.Cleanup(server.Close)
	return server.URL, filepath.Join(dir, "ca.pem"), away
}

// TestAnchors: serve appends an anchor to a file, and keeps a time-stamp of an authority over it.
// Both show later that the end was cut off. Who deletes the time-stamps takes their proof away, so verify says that there is none.
func TestAnchors(t *testing.T) {
	t.Parallel()
	url, ca, _ := startTSA(t)
	o := e2e.NewOrigin(t, "anchors", e2e.Forbidding)
	anchors := filepath.Join(t.TempDir(), "anchors")
	p := e2e.StartProxy(t, e2e.Unpaced)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t) // since the first anchor must not be that of the first line
	p.Rewrite(t, e2e.Unpaced.With(e2e.Settings{"audit.anchor": map[string]string{"file": anchors, "tsa": url}}))
	p = p.Again(t)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	stamps := filepath.Join(p.State, "timestamps")
	testkit.Eventually(t, "an anchor and a time-stamp", func() bool {
		all, _ := filepath.Glob(filepath.Join(stamps, "*.tsr"))
		return len(all) == 1 && e2e.Exists(anchors)
	})
	p.End(t)
	verify := func(exit int, args ...string) e2e.Outcome {
		t.Helper()
		return e2e.Command(t, append([]string{"audit", "verify", "-c", p.Config}, args...)...).Want(t, exit)
	}
	if out := verify(0).Stdout; !strings.Contains(out, "stamps  1 time-stamp, signatures not verified") {
		t.Errorf("without --tsa-ca: %s", out)
	}
	if out := verify(0, "--tsa-ca", ca).Stdout; !strings.Contains(out, "no line up to there was cut off or rewritten since") || !strings.Contains(out, "lines up to it may have been changed before it got the time-stamp") {
		t.Errorf("with --tsa-ca: %s", out)
	}
	_, otherCA, _ := startTSA(t)
	if got := verify(1, "--tsa-ca", otherCA).Stderr; !strings.Contains(got, "not signed by a trusted authority") {
		t.Errorf("with another authority: %s", got)
	}
	anchor := strings.TrimSpace(e2e.ReadText(t, anchors))
	verify(0, "--since-anchor", anchor)
	if out, err := opensslVerify(t, stamps, anchor, ca); err != nil || !strings.Contains(out, "Verification: OK") {
		t.Errorf("openssl ts -verify: %v, %s", err, out)
	}

	line, _, _ := strings.Cut(e2e.ReadText(t, p.Audit), "\n")
	e2e.WriteFile(t, p.Audit, line+"\n")
	verify(1, "--since-anchor", anchor)
	if got := verify(1).Stderr; !strings.Contains(got, "is missing: the end was cut off") {
		t.Errorf("after a cut: %s", got)
	}
	testkit.Must(t, os.RemoveAll(stamps))
	if out := verify(0, "--tsa-ca", ca).Stdout; !strings.Contains(out, "stamps  none of these lines has a time-stamp") {
		t.Errorf("after the time-stamps were deleted too: %s", out)
	}
}

// opensslVerify verifies the time-stamp over an anchor as the documentation says.
func opensslVerify(t *testing.T, stamps, anchor, ca string) (string, error) {
	cmd := exec.Command("openssl", "ts", "-verify", "-data", "/dev/stdin", "-in", filepath.Join(stamps, strings.Replace(anchor, ":", "-", 1)+".tsr"), "-CAfile", ca)
	cmd.Stdin = strings.NewReader(anchor)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestTimeStampAuthorityAway: serve continues without the authority and logs that once.
func TestTimeStampAuthorityAway(t *testing.T) {
	t.Parallel()
	url, _, away := startTSA(t)
	away.Store(true)
	o := e2e.NewOrigin(t, "tsa-away", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.anchor": map[string]string{"tsa": url}}))
	get := func() {
		if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/no")); got.Status != http.StatusForbidden {
			t.Errorf("status %d", got.Status)
		}
	}
	get()
	testkit.Eventually(t, "a warning", func() bool { return strings.Contains(p.Stderr.String(), "audit anchor not written") })
	get()
	if _, err := os.Stat(filepath.Join(p.State, "timestamps")); err == nil {
		t.Error("a time-stamp was kept")
	}
	p.End(t)
}
