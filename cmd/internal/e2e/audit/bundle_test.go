package audit

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// bundleProgram writes the program of the documentation that verifies bundles to a file, and returns what runs it.
func bundleProgram(t *testing.T) func(args ...string) (string, error) {
	python, file := e2e.NeedPeer(t, "python3"), filepath.Join(t.TempDir(), "bundle.py")
	e2e.NeedPeer(t, "openssl")
	_, text, _ := strings.Cut(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), "docs/bundle.md")), "<<'END'\n")
	text, _, _ = strings.Cut(text, "\nEND\n")
	e2e.WriteFile(t, file, text)
	return func(args ...string) (string, error) {
		out, err := exec.Command(python, append([]string{file}, args...)...).CombinedOutput()
		return string(out), err
	}
}

// crawled returns a proxy that has ended, with an archive, checkpoints and a time-stamp, after two clients have requested pages
// of two origins; and the file with the certificate of the authority.
func crawled(t *testing.T, origins ...*e2e.Origin) (p *e2e.Proxy, ca string) {
	t.Helper()
	url, ca, _ := startTSA(t)
	p = e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
		"archive": map[string]string{"dir": t.TempDir()}, "audit.anchor": map[string]string{"tsa": url},
	}))
	c := p.Client(t, false)
	for i := range 4 {
		for _, o := range origins {
			for _, scheme := range e2e.Schemes {
				e2e.Get(t, c, o.URL(scheme, fmt.Sprintf("/page?number=%d", i)), "User-Agent", "bot/1 (maria)", "Robotsproxy-Label", "job=m")
				e2e.Get(t, c, o.URL(scheme, "/no"), "User-Agent", "bot/1 (bob)")
			}
		}
	}
	p.End(t)
	// The next start gets a time-stamp of what is there.
	stamps := filepath.Join(p.State, "timestamps")
	testkit.Must(t, os.RemoveAll(stamps))
	p = p.Again(t)
	testkit.Eventually(t, "a time-stamp", func() bool {
		all, _ := filepath.Glob(filepath.Join(stamps, "*.tsr"))
		return len(all) == 1
	})
	p.End(t)
	return p, ca
}

// TestBundle: a bundle has what was selected, nothing of others, and verifies on a machine that has nothing else, by the binary
// and by the program of the documentation.
func TestBundle(t *testing.T) {
	t.Parallel()
	one, other := e2e.NewOrigin(t, "bundle", e2e.Forbidding), e2e.NewOrigin(t, "bundle-other", e2e.Forbidding)
	for _, o := range []*e2e.Origin{one, other} {
		o.Handle("/page", e2e.TextPage("text/plain", "a page of "+o.Name))
	}
	p, ca := crawled(t, one, other)
	dir, program := t.TempDir(), bundleProgram(t)
	public := filepath.Join(dir, "public")
	e2e.WriteFile(t, public, e2e.Command(t, "audit", "key", "--public", "-c", p.Config).Want(t, 0).Stdout)
	id := e2e.ReadAudit(t, p.Audit)[1].ID
	for name, c := range map[string]struct {
		args       []string
		says, lack []string
	}{
		"a site":     {[]string{"--host", one.Name, "--with-content"}, []string{"16 of 16 records", "content 8 captures", "robots  1 file unchanged (robots.txt, tdmrep.json); 16 decisions made again", "limit   records may"}, []string{other.Name}},
		"completely": {[]string{"--host", one.Name, "--complete"}, []string{"16 of 16 records", "none of them is about a request to the host"}, nil},
		"hidden": {
			[]string{"--host", one.Name, "--hide", "client,labels,user_agent", "--complete", "--with-content"},
			[]string{"16 with values that are hidden", "content 8 captures"}, []string{"(maria)", "(bob)", `"127.0.0.1"`, `"job=m"`},
		},
		"a record":             {[]string{"--id", id, "--hide", "url"}, []string{"1 of 1 record is covered"}, []string{"/page", "/no?"}},
		"some, and completely": {[]string{"--id", id, "--host", one.Name, "--complete"}, []string{"1 of 1 record is covered", "15 of them: requests to the host"}, nil},
		"a label":              {[]string{"--label", "job=m"}, []string{"16 of 16"}, []string{"(bob)"}},
		"a label, completely":  {[]string{"--label", "job=m", "--host", one.Name, "--complete"}, []string{"8 of 8 records", "8 of them: requests to the host"}, nil},
		"a time":               {[]string{"--host", one.Name, "--since", "2h", "--until", "0s"}, []string{"16 of 16"}, []string{other.Name}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".zip")
			e2e.Command(t, slices.Concat([]string{"audit", "bundle", "-c", p.Config, "-o", file}, c.args)...).Want(t, 0)
			out := e2e.Command(t, "audit", "verify", "--key", public, "--tsa-ca", ca, file).Want(t, 0).Stdout
			for _, text := range append(c.says, "with valid signatures", " a time-stamp, the last one of ") {
				if !strings.Contains(out, text) {
					t.Errorf("no %q:\n%s", text, out)
				}
			}
			for name, text := range filesIn(t, file) {
				for _, no := range c.lack {
					if strings.Contains(text, no) {
						t.Errorf("%s has %q:\n%s", name, no, text)
					}
				}
			}
			for _, keys := range [][]string{nil, {public}} {
				if out, err := program(append([]string{file}, keys...)...); err != nil || !strings.Contains(out, "records are covered") {
					t.Errorf("the program of the documentation: %v\n%s", err, out)
				}
			}
		})
	}
}

// TestChangedBundle: the binary and the program of the documentation find what somebody has changed in a bundle who also knows how
// to make the manifest fit.
func TestChangedBundle(t *testing.T) {
	t.Parallel()
	o, other := e2e.NewOrigin(t, "bundle-changed", e2e.Forbidding), e2e.NewOrigin(t, "bundle-changed-other", e2e.Forbidding)
	p, _ := crawled(t, o, other)
	dir, program := t.TempDir(), bundleProgram(t)
	file, changed := filepath.Join(dir, "site.zip"), filepath.Join(dir, "changed.zip")
	e2e.Command(t, "audit", "bundle", "-c", p.Config, "-o", file, "--host", o.Name, "--complete").Want(t, 0)
	for name, c := range map[string]struct{ file, old, new, says string }{
		"nothing":                {"records.jsonl", "", "", ""},
		"a path":                 {"records.jsonl", "number=2", "number=3", "records.jsonl:"},
		"a host of others":       {"lines.jsonl", `"host":"` + other.Name, `"host":"a` + other.Name, "lines.jsonl:"},
		"a line":                 {"lines.jsonl", "\n", "", "lines.jsonl:"},
		"all lines of others":    {"lines.jsonl", "", "-", "is not complete"},
		"a signature":            {"checkpoints/", "\n\n", "\n \n", "checkpoints/"},
		"the range of lines":     {"manifest.json", `"to": `, `"to": 1`, "not those between two checkpoints"},
		"what a checkpoint says": {"checkpoints/", "\nseq ", "\nseq 1", "checkpoints/"},
		"the robots.txt":         {"robots/", "/no", "/yes", "SHA-256"},
	} {
		files := filesIn(t, file)
		for name, text := range files {
			if strings.HasPrefix(name, c.file) && !strings.HasSuffix(name, "fetches.jsonl") && !strings.HasSuffix(name, "keys") {
				files[name] = strings.Replace(text, c.old, c.new, 1)
				if c.new == "-" {
					files[name] = ""
				}
				files["manifest.json"] = strings.NewReplacer(
					fmt.Sprintf("%x", sha256.Sum256([]byte(text))), fmt.Sprintf("%x", sha256.Sum256([]byte(files[name]))),
					fmt.Sprintf("%q,\n   \"bytes\": %d,", name, len(text)), fmt.Sprintf("%q,\n   \"bytes\": %d,", name, len(files[name])),
				).Replace(files["manifest.json"])
			}
		}
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, text := range files {
			w, err := z.Create(name)
			testkit.Must(t, err)
			io.WriteString(w, text)
		}
		testkit.Must(t, z.Close())
		testkit.Must(t, os.WriteFile(changed, b.Bytes(), 0o600))
		out, err := program(changed)
		if (err == nil) != (c.says == "") {
			t.Errorf("%s: the program of the documentation: %v\n%s", name, err, out)
		}
		got := e2e.Command(t, "audit", "verify", changed)
		if (got.Code == 0) != (c.says == "") || !strings.Contains(got.Stderr, c.says) {
			t.Errorf("%s: %d %s", name, got.Code, got.Stderr)
		}
	}
}

// filesIn returns the files of a bundle. Captures are no longer compressed.
func filesIn(t *testing.T, file string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(file)
	testkit.Must(t, err)
	defer z.Close()
	all := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		testkit.Must(t, err)
		text, err := io.ReadAll(in)
		testkit.Must(t, err)
		if all[f.Name] = string(text); strings.HasPrefix(f.Name, "warc/") {
			path := filepath.Join(t.TempDir(), "content.warc.gz")
			e2e.WriteFile(t, path, string(text))
			all[f.Name] = string(unzipped(t, path))
		}
	}
	return all
}
