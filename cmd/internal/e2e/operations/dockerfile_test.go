package operations

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// A dockerfile is a list of instructions, each on one line. The tests execute them
// without a container engine, because not every machine has one.
type dockerfile []instruction

type instruction struct{ word, rest string }

func readDockerfile(t testing.TB) dockerfile {
	t.Helper()
	var d dockerfile
	line := ""
	for part := range strings.Lines(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), "Dockerfile"))) {
		part = strings.TrimSpace(part)
		if part == "" || strings.HasPrefix(part, "#") {
			continue
		}
		more, goesOn := strings.CutSuffix(part, `\`)
		if line += more; goesOn {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		d = append(d, instruction{word, strings.TrimSpace(rest)})
		line = ""
	}
	return d
}

// stages returns the instructions from each FROM to the next.
func (d dockerfile) stages() (all []dockerfile) {
	for _, i := range d {
		if i.word == "FROM" {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	return all
}

// only returns the arguments of an instruction that occurs once.
func (d dockerfile) only(t testing.TB, word string) string {
	t.Helper()
	found := d.all(word)
	if len(found) != 1 {
		t.Fatalf("%d of %s in a stage of the Dockerfile, want 1", len(found), word)
	}
	return found[0]
}

func (d dockerfile) all(word string) (found []string) {
	for _, i := range d {
		if i.word == word {
			found = append(found, i.rest)
		}
	}
	return found
}

// execForm returns a command in JSON form, which needs no shell: a scratch image has none.
func execForm(t testing.TB, text string) (argv []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "[")):]), &argv); err != nil {
		t.Fatalf("%s: not in exec form: %v", text, err)
	}
	return argv
}

// buildContext copies the tree without the files in .dockerignore. The last matching line
// decides, and a match of a directory includes everything below it.
func buildContext(t testing.TB, to string) {
	t.Helper()
	type line struct {
		fits *regexp.Regexp
		kept bool
	}
	var lines []line
	for text := range strings.Lines(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), ".dockerignore"))) {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		pattern, kept := strings.CutPrefix(text, "!")
		expr := strings.NewReplacer(`\*\*/`, `(.*/)?`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(pattern))
		lines = append(lines, line{regexp.MustCompile(`^` + expr + `(/|$)`), kept})
	}
	err := fs.WalkDir(os.DirFS(e2e.TreeRoot()), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kept := true
		for _, l := range lines {
			if l.fits.MatchString(name) {
				kept = l.kept
			}
		}
		if !kept || d.Type() != 0 {
			return nil
		}
		if err := os.MkdirAll(filepath.Join(to, path.Dir(name)), 0o755); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(e2e.TreeRoot(), name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// buildStage runs the lines of the first stage, except the download of modules, which are
// present. /out is a directory of the test. If built is not "", it replaces the binary
// that go build makes.
func buildStage(t testing.TB, d dockerfile, version, commit, built string) (out string) {
	t.Helper()
	src := t.TempDir()
	out = t.TempDir()
	buildContext(t, src)
	env := append(e2e.CleanEnv("GOFLAGS=-buildvcs=false", "VERSION="+version, "COMMIT="+commit), strings.Fields(d.only(t, "ENV"))...)
	for _, run := range d.all("RUN") {
		if run == "go mod download" {
			continue
		}
		if built != "" && strings.HasPrefix(run, "go build ") {
			run = "mkdir -p /out/image && cp " + built + " /out/image/robotsproxy"
		}
		cmd := exec.Command("sh", "-euc", strings.ReplaceAll(run, "/out/", out+"/"))
		cmd.Dir, cmd.Env = src, env
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", run, err, text)
		}
	}
	return out
}

// copyStage creates the image from the COPY lines of the last stage.
func copyStage(t testing.TB, d dockerfile, out string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, line := range d.all("COPY") {
		words := strings.Fields(line)
		owner := "0:0"
		for len(words) > 2 {
			if value, ok := strings.CutPrefix(words[0], "--chown="); ok {
				owner = value
			} else if words[0] != "--from=build" {
				t.Fatalf("COPY %s: what is %s?", line, words[0])
			}
			words = words[1:]
		}
		from := strings.Replace(words[0], "/out/", out+"/", 1)
		script := `cd "$1" && mkdir -p "$2" && for each in *; do cp -a "$each" "$2" && chown -R "$3" "$2/$each"; done`
		if text, err := exec.Command("sh", "-euc", script, "sh", from, filepath.Join(root, words[1]), owner).CombinedOutput(); err != nil {
			t.Fatalf("COPY %s: %v\n%s", line, err, text)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}
