package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy/audit/checkpoint"
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

// verifier returns a function that runs audit verify on the audit of p.
func verifier(t *testing.T, p *e2e.Proxy) func(exit int, args ...string) e2e.Outcome {
	return func(exit int, args ...string) e2e.Outcome {
		t.Helper()
		return e2e.Command(t, append([]string{"audit", "verify", "-c", p.Config}, args...)...).Want(t, exit)
	}
}

// TestCheckpoints: serve writes checkpoints into its state directory and into files elsewhere, and gets a time-stamp of an
// authority over one. Each shows later that lines were cut off, or written anew with all hashes. Who deletes what is on the
// machine takes its proof away, so verify says how much is covered.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	url, ca, _ := startTSA(t)
	o := e2e.NewOrigin(t, "checkpoints", e2e.Forbidding)
	dir := t.TempDir()
	file, anchors, public := filepath.Join(dir, "checkpoints"), filepath.Join(dir, "anchors"), filepath.Join(dir, "public")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
		"audit.anchor": map[string]string{"file": anchors, "tsa": url}, "audit.checkpoint": map[string]string{"file": file},
	}))
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	stamps := filepath.Join(p.State, "timestamps")
	testkit.Eventually(t, "a time-stamp", func() bool {
		all, _ := filepath.Glob(filepath.Join(stamps, "*.tsr"))
		return len(all) == 1
	})
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t)
	verify := verifier(t, p)
	lines := len(e2e.ReadLines(t, p.Audit))
	all := fmt.Sprintf("Consistent; %[1]d of %[1]d lines are covered by a checkpoint of ", lines)
	if out := verify(0).Stdout; !strings.HasPrefix(out, all) || !strings.Contains(out, " held by "+file+".\n") || strings.Count(out, "signature not verified") > 0 {
		t.Errorf("without flags: %s", out)
	}
	e2e.WriteFile(t, public, e2e.Command(t, "audit", "key", "--public", "-c", p.Config).Want(t, 0).Stdout)
	out := verify(0, "--tsa-ca", ca, "--key", public, "--checkpoint", anchors).Stdout
	if !strings.HasPrefix(out, all) || !strings.Contains(out, "as the time-stamp authority states, with a valid signature: "+stamps) {
		t.Errorf("with --tsa-ca: %s", out)
	}
	_, otherCA, _ := startTSA(t)
	if got := verify(1, "--tsa-ca", otherCA).Stderr; !strings.Contains(got, "not signed by a trusted authority") {
		t.Errorf("with another authority: %s", got)
	}
	if out, err := opensslVerify(stamps, ca); err != nil || !strings.Contains(out, "Verification: OK") {
		t.Errorf("openssl ts -verify: %v, %s", err, out)
	}

	text := e2e.ReadText(t, p.Audit)
	anew := strings.ReplaceAll(text, "/no", "/on")
	for name, change := range map[string]string{"lines cut off": text[:strings.LastIndex(strings.TrimSpace(text), "\n")+1], "written anew": hashAnew(anew)} {
		e2e.WriteFile(t, p.Audit, change)
		verify(1)
		testkit.Must(t, os.Rename(filepath.Join(p.State, "audit.tree"), filepath.Join(p.State, "kept.tree")))
		testkit.Must(t, os.Rename(filepath.Join(p.State, "checkpoints"), filepath.Join(p.State, "kept")))
		for _, args := range [][]string{nil, {"--checkpoint", file}, {"--checkpoint", anchors, "--key", public}} {
			if got := verify(1, args...).Stderr; !strings.Contains(got, "made a checkpoint at ") {
				t.Errorf("%s: %s", name, got)
			}
		}
		for _, name := range []string{file, anchors, stamps} {
			testkit.Must(t, os.Rename(name, name+"-away"))
		}
		if out := verify(0).Stdout; !strings.HasPrefix(out, "Consistent; none of ") {
			t.Errorf("%s, and no checkpoint: %s", name, out)
		}
		for _, name := range []string{file, anchors, stamps} {
			testkit.Must(t, os.Rename(name+"-away", name))
		}
		testkit.Must(t, os.Rename(filepath.Join(p.State, "kept.tree"), filepath.Join(p.State, "audit.tree")))
		testkit.Must(t, os.Rename(filepath.Join(p.State, "kept"), filepath.Join(p.State, "checkpoints")))
	}
}

// hashAnew chains lines anew, as somebody could who may write the file.
func hashAnew(text string) string {
	var all strings.Builder
	prev := strings.Repeat("0", 64)
	for line := range strings.Lines(text) {
		body := line[:strings.Index(line, `,"prev":"`)] + `,"prev":"` + prev + `"`
		prev = fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
		all.WriteString(body + `,"hash":"` + prev + "\"}\n")
	}
	return all.String()
}

// opensslVerify verifies the time-stamp in a directory as the documentation says.
func opensslVerify(stamps, ca string) (string, error) {
	all, err := filepath.Glob(filepath.Join(stamps, "*.tsr"))
	if err != nil || len(all) != 1 {
		return fmt.Sprint(all), errors.New("not one time-stamp")
	}
	checkpoint := strings.TrimSuffix(all[0], ".tsr") + ".checkpoint"
	out, err := exec.Command("openssl", "ts", "-verify", "-attime", strconv.FormatInt(time.Now().Unix(), 10), "-data", checkpoint, "-in", all[0], "-CAfile", ca).CombinedOutput()
	return string(out), err
}

// TestCheckpointsAfterACrash: after kill -9, and with a tree that is torn or missing, serve goes on, and all is covered.
func TestCheckpointsAfterACrash(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "crash", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.checkpoint": map[string]int{"lines": 1}}))
	tree := filepath.Join(p.State, "audit.tree")
	for _, damage := range []func(){
		func() {},
		func() {
			info, err := os.Stat(tree)
			testkit.Must(t, err)
			testkit.Must(t, os.Truncate(tree, info.Size()-10))
		},
		func() { testkit.Must(t, os.Remove(tree)) },
	} {
		e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
		testkit.Eventually(t, "the tree has the line", func() bool {
			return strings.HasPrefix(e2e.Command(t, "audit", "verify", "-c", p.Config).Stdout, "Consistent; ") && e2e.Exists(tree)
		})
		p.Kill(t)
		damage()
		p = p.Again(t)
		if got := p.Stderr.String(); strings.Contains(got, "differs") {
			t.Errorf("%s", got)
		}
	}
	taken := e2e.Command(t, "run", "-c", p.Config, "--audit", p.Audit, "--", "true").Want(t, 1)
	if !strings.Contains(taken.Stderr, "another process writes the file") {
		t.Errorf("a second process: %s", taken.Stderr)
	}
	p.End(t)
	n := len(e2e.ReadLines(t, p.Audit))
	if out := verifier(t, p)(0).Stdout; !strings.HasPrefix(out, fmt.Sprintf("Consistent; %[1]d of %[1]d lines are covered", n)) {
		t.Errorf("%s", out)
	}
}

// TestOlderStateRestored: a state directory that was replaced by an older one is found by a later checkpoint that was kept
// elsewhere. The numbers of the lines between are not used again. A checkpoint of a time to come, as a clock that was wrong
// leaves it, delays no other.
func TestOlderStateRestored(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "older", e2e.Forbidding)
	file := filepath.Join(t.TempDir(), "checkpoints")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.checkpoint": map[string]string{"file": file}}))
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t)
	older := filepath.Join(t.TempDir(), "older")
	testkit.Must(t, os.CopyFS(older, os.DirFS(p.State)))
	before := len(e2e.ReadLines(t, p.Audit))
	p = p.Again(t)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
	p.End(t)
	last := uint64(len(e2e.ReadLines(t, p.Audit)))
	testkit.Must(t, os.RemoveAll(p.State))
	testkit.Must(t, os.CopyFS(p.State, os.DirFS(older)))
	testkit.Must(t, os.Chmod(p.State, 0o700))
	for _, key := range []string{"ca.key", "checkpoint.key"} {
		testkit.Must(t, os.Chmod(filepath.Join(p.State, key), 0o600))
	}
	verify := verifier(t, p)
	if got := verify(1).Stderr; !strings.Contains(got, "is missing: the end was cut off") {
		t.Errorf("while the proxy is stopped: %s", got)
	}

	secret, err := checkpoint.ParseKeys([]byte(e2e.ReadText(t, filepath.Join(p.State, "checkpoint.key"))))
	testkit.Must(t, err)
	toCome, err := checkpoint.Checkpoint{Origin: secret[0].Name(), Size: int64(last), Seq: last, Time: time.Now().AddDate(1, 0, 0)}.Sign(secret[0])
	testkit.Must(t, err)
	e2e.WriteFile(t, file, e2e.ReadText(t, file)+"\n"+string(toCome))
	p = p.Again(t)
	text := e2e.ReadText(t, file)
	testkit.Eventually(t, "a new checkpoint", func() bool { return len(e2e.ReadText(t, file)) > len(text) })
	p.End(t)
	lines := strings.SplitAfter(strings.TrimSpace(e2e.ReadText(t, p.Audit)), "\n")
	after, _ := e2e.ParseLines(t, []byte(strings.Join(lines[before:], "")), e2e.Chained{})
	if !strings.Contains(p.Stderr.String(), "audit differs from what the proxy wrote") || after[0].Event != "cut" || after[0].Seq != last+1 {
		t.Errorf("after %d lines, of which %d are left, follow %+v\n%s", last, before, after, p.Stderr)
	}
	if got := verify(1).Stderr; !strings.Contains(got, "which the proxy noticed when it started") {
		t.Errorf("after the start: %s", got)
	}
}

// TestCheckpointOverdue: a full disk elsewhere shows in /healthz, the log and the metrics, and stops nothing.
func TestCheckpointOverdue(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "overdue", e2e.Forbidding)
	disk := e2e.SmallDisk(t, "64k")
	file := filepath.Join(disk, "checkpoints")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
		"audit.checkpoint": map[string]any{"file": file, "lines": 1, "every": "1m"},
	}))
	overdue := func() float64 { return p.Metrics(t)["robotsproxy_audit_checkpoint_overdue file"] }
	testkit.Eventually(t, "the first checkpoint", func() bool {
		return p.Metrics(t)["robotsproxy_audit_checkpoint_timestamp_seconds file"] > 0
	})
	ballast := e2e.Fill(t, disk)
	// A page of the file may have some space left.
	rest, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	testkit.Must(t, err)
	for _, err = rest.Write([]byte("\n")); err == nil; _, err = rest.Write([]byte("\n")) {
	}
	rest.Close()
	testkit.Eventually(t, "a checkpoint is overdue", func() bool {
		e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
		return overdue() == 1
	})
	health := e2e.Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/healthz")
	const warning = "warning: a checkpoint of the audit is overdue at "
	if health.Status != http.StatusOK || !strings.Contains(string(health.Body), warning) || !strings.Contains(p.Stderr.String(), "audit checkpoint overdue") {
		t.Errorf("/healthz: %d %s", health.Status, health.Body)
	}
	if out := e2e.Command(t, "doctor", "-c", p.Config, "--client", "none").Stdout; !strings.Contains(out, "a checkpoint of the audit is overdue") {
		t.Errorf("doctor:\n%s", out)
	}
	if got := p.Metrics(t); got["robotsproxy_audit_checkpoint_timestamp_seconds file"] == 0 || got["robotsproxy_audit_checkpoint_overdue state"] != 0 {
		t.Errorf("%v", got)
	}
	testkit.Must(t, os.Remove(ballast))
	note := e2e.Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/api/v1/audit/checkpoint")
	if note.Status != http.StatusOK || !strings.Contains(e2e.ReadText(t, filepath.Join(p.State, "checkpoints")), string(note.Body)) {
		t.Errorf("%d %s", note.Status, note.Body)
	}
}

// TestCheckpointOfARun: a run ends with a checkpoint, which names it, in the files that serve uses too.
func TestCheckpointOfARun(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "run-checkpoint", e2e.Forbidding)
	curl := e2e.NeedPeer(t, "curl")
	file := filepath.Join(t.TempDir(), "checkpoints")
	s := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"audit.checkpoint": map[string]string{"file": file}}))
	e2e.Command(t, s.RunArgs(curl, "-s", o.URL("http", "/no"))...).Want(t, 0)
	out := e2e.Command(t, "audit", "verify", "-c", s.Config, "--run", "last").Want(t, 0).Stdout
	n := len(e2e.ReadLines(t, s.RunAudit(t)))
	if !strings.HasPrefix(out, fmt.Sprintf("Consistent; %[1]d of %[1]d lines are covered", n)) || !strings.Contains(e2e.ReadText(t, file), filepath.Base(filepath.Dir(s.RunAudit(t)))) {
		t.Errorf("%s", out)
	}
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
	testkit.Eventually(t, "a warning", func() bool { return strings.Contains(p.Stderr.String(), "audit checkpoint overdue") })
	get()
	if _, err := os.Stat(filepath.Join(p.State, "timestamps")); err == nil {
		t.Error("a time-stamp was kept")
	}
	p.End(t)
}
