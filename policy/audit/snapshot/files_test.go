package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// TestTornIndex: an incomplete line is skipped, and the next one begins on a new line.
func TestTornIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	keep(t, open(t, Options{Dir: dir}), answer("a.test", text, 1), answer("b.test", text, 2))
	files, err := filepath.Glob(filepath.Join(dir, "index", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	step := 1
	if testing.Short() {
		step = 10
	}
	for end := len(whole) - 1; end >= first; end -= step {
		if err := os.WriteFile(files[0], whole[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		if n := len(index(t, dir, "")); n != 1 {
			t.Fatalf("%d lines are read of %q", n, whole[:end])
		}
		keep(t, open(t, Options{Dir: dir, NoSync: true}), answer("c.test", text, 3))
		var hosts []string
		for _, f := range index(t, dir, "") {
			hosts = append(hosts, f.URL)
		}
		want := []string{"http://c.test/robots.txt", "http://a.test/robots.txt"}
		if end == len(whole)-1 { // all that it lacked was its end
			want = slices.Insert(want, 1, "http://b.test/robots.txt")
		}
		if !slices.Equal(hosts, want) {
			t.Fatalf("behind %q: %v", whole[:end], hosts)
		}
	}
}

// TestBackward holds it against a naive reading.
func TestBackward(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	random := rand.New(rand.NewPCG(1, 2))
	for round := range testkit.Rounds(60) {
		var content strings.Builder
		var want []string
		for n := range random.IntN(40) {
			size := random.IntN(100)
			switch random.IntN(8) {
			case 0:
				size = 64<<10 - 1 + random.IntN(3)
			case 1:
				size = maxLine - 1 + random.IntN(4)
			case 2:
				size = 3*maxLine + random.IntN(3)
			}
			line := strings.Repeat(fmt.Sprint(n%10), size)
			content.WriteString(line + "\n")
			if size <= maxLine {
				want = append(want, line)
			}
		}
		if round%2 == 0 {
			content.WriteString("torn")
		}
		if err := os.WriteFile(file, []byte(content.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line, err := range trail.Backward(file, maxLine) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line.Text))
		}
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %d lines, want %d", round, len(got), len(want))
		}
	}
}

func TestIndexOfDays(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, indexName), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string]string{
		"2026-11-20.jsonl": `{"url":"1"}` + "\n" + `{"url":"2"}` + "\n",
		"2026-11-21.jsonl": `{"url":"3"}` + "\n" + "no line\n" + `{"url":"4","error":"b\u00fccher.test"}` + "\n" + `{"url":"5`,
		"2026-11-22":       `{"url":"6"}` + "\n",
		"notes.jsonl":      `{"url":"7"}` + "\n",
		"2026-11-19.jsonl": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, indexName, name), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	urls := func(having string) (all string) {
		for _, f := range index(t, dir, having) {
			all += f.URL
		}
		return all
	}
	for having, want := range map[string]string{"": "4321", `1`: "1", `"}`: "", "bücher.test": "4"} {
		if got := urls(having); got != want {
			t.Errorf("%q: %s, want %s", having, got, want)
		}
	}
	for f, err := range Index(dir, "") {
		if f.URL != "4" || err != nil {
			t.Errorf("%v, %v", f, err)
		}
		break
	}
	for _, err := range Index(filepath.Join(dir, "elsewhere"), "") {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestNames: what is no hash names nothing, inside of the directory or outside.
func TestNames(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "snapshots")
	s := open(t, Options{Dir: dir})
	keep(t, s, answer("a.test", text, 1))
	sha := hashed(text)
	twin := sha[:9] + strings.Repeat("0", hexHashLen-9)
	for _, path := range []string{filepath.Join(parent, "secret.txt"), gzipPath(dir, twin), filepath.Join(dir, sha[:2], sha[2:]+".bak")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		digits, sha string
		err         error
	}{
		{sha, sha, nil},
		{strings.ToUpper(sha), sha, nil},
		{sha[:10], sha, nil},
		{sha[:9], "", ErrAmbiguous},
		{sha[:7], "", ErrName},
		{sha + "0", "", ErrName},
		{"", "", ErrName},
		{"../secret", "", ErrName},
		{"../../../../etc/passwd", "", ErrName},
		{sha[:2] + "/" + sha[2:], "", ErrName},
		{"..aaaaaaaa", "", ErrName},
		{sha[:8] + "*", "", ErrName},
		{"0123456789", "", fs.ErrNotExist},
		{sha[:2] + "01234567", "", fs.ErrNotExist},
	} {
		if got, err := Find(dir, tc.digits); got != tc.sha || !errors.Is(err, tc.err) {
			t.Errorf("Find(%q) = %q, %v", tc.digits, got, err)
		}
	}
	for _, name := range []string{"", sha[:10], strings.ToUpper(sha), "../secret", "../" + strings.Repeat("a", hexHashLen-3), strings.Repeat("/", hexHashLen)} {
		if data, err := Read(dir, name); data != nil || !errors.Is(err, ErrName) {
			t.Errorf("Read(%q) = %q, %v", name, data, err)
		}
	}
	if data, err := Read(dir, strings.Repeat("0", hexHashLen)); data != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", data, err)
	}
}
