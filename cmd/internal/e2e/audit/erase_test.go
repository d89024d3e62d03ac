package audit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestErase: what records, the index of robots.txt files and the archive say about one person is gone, what they say about
// others stays, and everything verifies.
func TestErase(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "erase", e2e.Forbidding)
	o.Handle("/same", e2e.TextPage("text/plain", "the same page for everybody"))
	dir := t.TempDir()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"archive": map[string]string{"dir": dir}}))
	c := p.Client(t, false)
	for _, scheme := range e2e.Schemes {
		e2e.Get(t, c, o.URL(scheme, "/same?user=maria"), "User-Agent", "bot/1 (maria)")
		e2e.Get(t, c, o.URL(scheme, "/same?user=bob"), "User-Agent", "bot/1 (bob)")
	}
	erase := func(args ...string) e2e.Outcome {
		return e2e.Command(t, append([]string{"audit", "erase", "-c", p.Config, "--reason", "request 17"}, args...)...)
	}
	if out := erase("--match", "user=maria"); out.Code != 1 || !strings.Contains(out.Stderr, "another process writes the file: stop the proxy first") {
		t.Errorf("while the proxy runs: %d %s", out.Code, out.Stderr)
	}
	p.End(t)
	for _, args := range [][]string{{}, {"--match", "maria", "--client", "a"}, {"--match", "request"}, {"--match", "maria", "--reason", " "}} {
		if out := erase(args...); out.Code != 2 {
			t.Errorf("%q: %d %s", args, out.Code, out.Stderr)
		}
	}
	before := e2e.ReadText(t, p.Audit)
	const orphans = "2 other captures had the same content as one of these, and the archive has it only there.\n"
	if out := erase("--match", "user=maria", "--dry-run").Want(t, 0).Stdout; strings.Count(out, "?user=maria") != 2 ||
		!strings.HasSuffix(out, "Would erase 10 values of 2 lines, and 2 captures.\n"+orphans) || e2e.ReadText(t, p.Audit) != before {
		t.Errorf("--dry-run: %s", out)
	}
	if out := erase("--match", "user=maria", "--archive", t.TempDir()); out.Code != 1 || !strings.Contains(out.Stderr, "the archive lacks 2 captures") ||
		e2e.ReadText(t, p.Audit) != before {
		t.Errorf("with another archive: %d %s", out.Code, out.Stderr)
	}
	// What was not erased from the archive can be erased later.
	without := erase("--match", "user=maria", "--archive", t.TempDir(), "--without-captures").Want(t, 0).Stdout
	if out := erase("--match", "user=maria").Want(t, 0).Stdout; without+out !=
		"Erased 10 values of 2 lines.\nErased 0 values of 0 lines, and 2 captures.\n"+orphans+"Erased before: values of 2 lines.\n" {
		t.Errorf("%s%s", without, out)
	}
	if out := erase("--match", "user=maria").Want(t, 0).Stdout; !strings.HasPrefix(out, "Nothing matches.") {
		t.Errorf("again: %s", out)
	}
	payloads := e2e.ReadText(t, filepath.Join(dir, "payloads.db"))
	everything := map[string]string{"the audit": e2e.ReadText(t, p.Audit), "the archive": archived(t, dir)}
	for what, text := range everything {
		if strings.Contains(text+payloads, "maria") || !strings.Contains(text, "user=bob") {
			t.Errorf("%s:\n%s", what, text)
		}
	}
	wantErased(t, p, o)
	p = p.Again(t)
	if last := e2e.ReadText(t, p.Audit); !strings.Contains(last, "the one before it stopped in order") {
		t.Errorf("the audit after a start:\n%s", last)
	}
}

// wantErased checks what commands say of records and captures that were erased, and of those that have lost their content.
func wantErased(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
	t.Helper()
	records := e2e.ReadAudit(t, p.Audit)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"audit", "verify"}, 0, "erased  10 values"},
		{[]string{"archive", "verify"}, 0, "blank    6 records"},
		{[]string{"audit", "explain", records[0].ID}, 1, "the path and the query of the URL were erased"},
		{[]string{"audit", "report"}, 0, "(erased)"},
		{[]string{"archive", "index"}, 0, "user=bob"},
		{[]string{"archive", "get", records[0].WARC.ID}, 1, "the record was erased"},
		{[]string{"archive", "get", o.URL("http", "/same?user=bob")}, 1, "which the archive does not have any more"},
	} {
		last := len(c.args)
		if c.args[1] == "explain" || c.args[1] == "get" {
			last--
		}
		out := e2e.Command(t, slices.Insert(c.args, last, "-c", p.Config)...)
		if text := out.Stdout + out.Stderr; out.Code != c.code || !strings.Contains(text, c.says) || strings.Contains(text, "maria") || strings.HasPrefix(text, " ") {
			t.Errorf("%q: %d %s", c.args, out.Code, text)
		}
	}
}

// TestEraseCapturesWithoutRecords: captures of requests that the audit leaves out are found by what the archive says of them, and
// what a crash has left of bodies goes.
func TestEraseCapturesWithoutRecords(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "erase-captures", e2e.Forbidding)
	dir := t.TempDir()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"archive": map[string]string{"dir": dir}, "audit.include": "blocked"}))
	for _, path := range []string{"/yes?user=maria", "/yes?user=bob", "/yes?user=carol"} {
		e2e.Get(t, p.Client(t, false), o.URL("http", path), "User-Agent", "bot/1")
	}
	p.End(t)
	left := filepath.Join(dir, ".body-17")
	testkit.Must(t, os.WriteFile(left, []byte("maria"), 0o600))
	_, about, _ := strings.Cut(archived(t, dir), "user=carol\r\n")
	_, id, _ := strings.Cut(about[strings.LastIndex(about, "application/warc-fields"):], "\r\nid: ")
	id, _, _ = strings.Cut(id, "\r\n")
	for _, selected := range [][]string{{"--match", "user=maria"}, {"--id", id}} {
		out := e2e.Command(t, append([]string{"audit", "erase", "-c", p.Config, "--reason", "request 19"}, selected...)...).Want(t, 0).Stdout
		if !strings.HasPrefix(out, "Erased 0 values of 0 lines, and 1 capture.\n") {
			t.Errorf("%q: %s", selected, out)
		}
	}
	if text := archived(t, dir); strings.Contains(text, "maria") || strings.Contains(text, "carol") || !strings.Contains(text, "user=bob") {
		t.Errorf("%s", text)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the body is left")
	}
}

// TestEraseAgents: the index of robots.txt files loses the User-Agent of fetches, and still agrees with the audit.
func TestEraseAgents(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "erase-agents", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.fetch_as": "client"}))
	for _, agent := range []string{"maria", "bob"} {
		e2e.Get(t, p.Client(t, false), o.URL("http", "/yes"), "User-Agent", agent)
	}
	p.End(t)
	e2e.Command(t, "audit", "erase", "-c", p.Config, "--reason", "request 18", "--match", "maria").Want(t, 0)
	index, err := filepath.Glob(filepath.Join(p.State, "snapshots", "index", "*"))
	testkit.Must(t, err)
	if text := e2e.ReadText(t, index[0]); strings.Contains(text, "maria") || !strings.Contains(text, `"bob"`) || !strings.Contains(text, `"sha256:`) {
		t.Errorf("%s", text)
	}
	if out := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0).Stdout; !strings.Contains(out, "index   2 lines the same as in the audit") {
		t.Errorf("%s", out)
	}
}

// archived returns the content of all WARC files in a directory.
func archived(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	testkit.Must(t, err)
	var text strings.Builder
	for _, path := range files {
		text.Write(unzipped(t, path))
	}
	return text.String()
}
