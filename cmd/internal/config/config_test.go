package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots"
)

var compare = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse("config.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The defaults are the values that their texts mean. TestExampleFile holds the texts.
func TestDefault(t *testing.T) {
	c := Default()
	got := []any{
		c.Listen, c.Open, c.Limits.Connections, c.Limits.URL, c.Limits.Memory, c.Robots.MaxAge, c.Robots.MinAge, c.Robots.Readings,
		c.Usage.Purposes, c.Pace.RequestsPerSecond, c.Pace.MaxWait, c.Pace.BackOff, c.Hosts, c.Egress.TLSMin, c.Egress.AllowPrivate,
		c.Egress.Ports, c.Audit.SnapshotMaxSize,
	}
	want := []any{
		"127.0.0.1:8080", false, 20_000, Size(8 << 10), Auto, 24 * time.Hour, time.Minute, "",
		[]string{}, 1.0, AutoWait, true, []Host(nil), "1.2", []netip.Prefix{},
		[]PortRange{{80, 80}, {443, 443}, {1024, 65535}, {21, 21}}, Size(4 << 30),
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Error(diff)
	}
	if err := c.Check(); err != nil {
		t.Error("Check:", err)
	}
}

// The file in the repository is the defaults, each with its comment.
func TestExampleFile(t *testing.T) {
	const file = "../../../config.example.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(Default().Marshal())); diff != "" {
		t.Error("config.example.yaml (-) is not what go generate ./cmd/internal/config writes (+):\n", diff)
	}
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c, compare); diff != "" {
		t.Error(diff)
	}
	keyLine, before := regexp.MustCompile(`^(#  )? *(- )?[a-z_]+:`), ""
	for line := range strings.Lines(string(text)) {
		if keyLine.MatchString(line) && !strings.Contains(before, "# ") {
			t.Errorf("no comment above %s", line)
		}
		before = line
	}
}

// The dialects are those that there are, the standard one by default.
func TestDialects(t *testing.T) {
	for _, d := range robots.Dialects() {
		if c := parse(t, "robots: {dialect: "+d.Name+"}"); c.Robots.Dialect != d.Name {
			t.Errorf("%s is read as %q", d.Name, c.Robots.Dialect)
		}
		if c := parse(t, "clients: [{name: a, networks: [127.0.0.1/32], robots: {dialect: "+d.Name+"}}]"); c.Clients[0].Robots.Dialect != d.Name {
			t.Errorf("%s is read of a client as %q", d.Name, c.Clients[0].Robots.Dialect)
		}
	}
	c := Default()
	for _, k := range everyField(reflect.ValueOf(&c.Robots).Elem(), "robots") {
		for _, d := range robots.Dialects() {
			if doc := comments()[k.field]; k.path == "robots.dialect" && !strings.Contains(doc, d.Name) {
				t.Errorf("the comment of robots.dialect does not name %s: %s", d.Name, doc)
			}
		}
	}
	if got := c.Robots.Dialect; got != robots.Standard().Name {
		t.Errorf("default %q", got)
	}
}

func TestNothingIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "{}\n", "~\n", "pace:\nlog:\n", "pace: {}\n", "\ufeff"} {
		if diff := cmp.Diff(Default(), parse(t, text), compare); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// Others may see a configuration, not the hashes in it; what they see can be read.
func TestHashesAreRedacted(t *testing.T) {
	c := Default()
	c.Clients = []Client{{Name: "a", PasswordHash: hashed, Networks: []netip.Prefix{}, Labels: []string{}, Usage: ClientUsage{Purposes: []string{}}}, {Name: "b", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Labels: []string{}, Usage: ClientUsage{Purposes: []string{}}}}
	shown := c.Redacted()
	if c.Clients[0].PasswordHash != hashed {
		t.Error("the configuration itself has changed")
	}
	if got, want := shown.Clients[0].PasswordHash, "$2y$05$hidden"+strings.Repeat(".", 47); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := shown.Clients[1].PasswordHash; got != "" {
		t.Errorf("a client without a password is shown with %q", got)
	}
	if diff := cmp.Diff(shown, parse(t, string(shown.Marshal())), compare); diff != "" {
		t.Error(diff)
	}
}

// A password is for the proxy to read, and for nobody else.
func TestRedacted(t *testing.T) {
	for give, want := range map[string]string{
		"":                                 "",
		"http://proxy.example":             "http://proxy.example",
		"socks5://we@proxy.example:1080":   "socks5://we@proxy.example:1080",
		"https://we:s3cret@proxy.example/": "https://we:xxxxx@proxy.example/",
		"http://we:%":                      "",
	} {
		c := Default()
		c.Egress.Parent, c.Hosts = give, []Host{{Parent: "direct"}, {Parent: give}}
		got := c.Redacted()
		if got.Egress.Parent != want || got.Hosts[1].Parent != want || got.Hosts[0].Parent != "direct" {
			t.Errorf("%s is shown as %s, and in an entry as %s, want %s", give, got.Egress.Parent, got.Hosts[1].Parent, want)
		}
		if c.Egress.Parent != give || c.Hosts[1].Parent != give {
			t.Errorf("%s is changed for good", give)
		}
	}
	c := Default()
	c.Egress.Parent = "ftp://we:s3cret@proxy.example"
	if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "egress.parent: ") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

// A day ends at midnight UTC; a time is exact.
func TestUntil(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2027-01-31":                     time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC),
		`"2027-12-31"`:                   time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC),
		"2027-01-31T18:00:00Z":           time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC),
		"2027-01-31T18:00:00.5+07:00":    time.Date(2027, 1, 31, 11, 0, 0, 500_000_000, time.UTC),
		"9999-12-31":                     time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
		`""`:                             {},
		"1969-12-31":                     time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		"2020-02-29 # over, and no slip": time.Date(2020, 3, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got := parse(t, "hosts:\n  - match: a.test\n    until: "+text).Hosts[0].Until; !got.Equal(want) {
			t.Errorf("%s is read as %v, want %v", text, got, want)
		}
	}
}

func TestParents(t *testing.T) {
	for _, parent := range []string{
		"http://proxy.example", "https://[2001:db8::1]:3128/", "socks5://127.0.0.1:1080", "socks5h://we:p%40%2F@proxy.example", "",
	} {
		if got := parse(t, "egress: {parent: \""+parent+"\"}").Egress.Parent; got != parent {
			t.Errorf("%s is read as %q", parent, got)
		}
	}
}

// Check is for what a flag has changed: no file, no line.
func TestCheck(t *testing.T) {
	c := Default()
	c.Listen, c.Pace.Burst, c.Egress.Ports = "0.0.0.0:80", 0, nil
	c.Identity.UserAgent = "two\nlines"
	want := []string{
		`identity.user_agent: must be the value of a header`,
		`pace.burst: must be between 1 and 1048576, got 0`,
		`egress.ports: must be a list of at least one item, got []`,
		`listen: "0.0.0.0:80" is not a loopback address, so other machines could use the proxy: add entries to clients, or set open: true`,
	}
	lines := strings.Split(c.Check().Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d: %q", len(lines), len(want), lines)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("%q, want %q", line, want[i])
		}
	}
	if (Config{}).Check() == nil {
		t.Error("the zero Config is in order")
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.8.8.8:80": true, "[::1]:80": true, "localhost:80": true, "[::ffff:127.0.0.1]:80": true,
		":80": false, "0.0.0.0:80": false, "[::]:80": false, "192.0.2.1:80": false, "localhost.example:80": false, "127.0.0.1": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}

func TestCeilings(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
	}{
		"a file over 1 MiB":    {strings.Repeat("#", MaxBytes+1), "big: must be at most 1024 KiB"},
		"a thousand problems":  {strings.Repeat("x: 1\n", 1000), "and 980 more"},
		"nesting without end":  {strings.Repeat("[", 100_000), "not YAML"},
		"a value without end":  {"mode: " + strings.Repeat("x", 100_000) + "\n", "x…\""},
		"a key without end":    {strings.Repeat("x", 1000) + ": 1\n", "x…: unknown key"},
		"terminal escapes":     {"\"\\e[2J\": \"\\e[2J\"\n", "unknown key"},
		"terminal in the name": {"mode: \"\\e[2J\"\n", `got "\x1b[2J"`},
	} {
		_, err := Parse("big", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 8<<10 {
			t.Errorf("%s: %.200v", name, err)
		}
		if err != nil && strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%s: an escape in the message", name)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "none.yaml")
	if _, err := Load(missing); !errors.Is(err, fs.ErrNotExist) || err.Error() != missing+": no such file or directory" {
		t.Error(err)
	}
	if _, err := Load(dir); err == nil || err.Error() != dir+": is a directory" {
		t.Error(err)
	}
	endless := filepath.Join(dir, "endless")
	if err := os.WriteFile(endless, make([]byte, 2*MaxBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(endless); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

// Paths in a file are relative to its directory, those on standard input to the working directory.
func TestLoadResolvesPaths(t *testing.T) {
	const name = "a dir/x.pem"
	set := everyKey(t, 0)
	for _, k := range leaves(reflect.ValueOf(&set).Elem(), "") {
		if strings.HasPrefix(k.tag.Get("kind"), "path") && k.value.String() != "" {
			k.value.SetString(name)
		}
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	file, link := filepath.Join("conf", "c.yaml"), "link.yaml"
	for _, err := range []error{os.WriteFile(file, set.Marshal(), 0o600), os.Symlink(file, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stdin, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer func(was *os.File) { os.Stdin = was }(os.Stdin)
	os.Stdin = stdin
	for path, dir := range map[string]string{
		file: "conf", filepath.Join(root, file): "conf", "conf/../conf/c.yaml": "conf",
		link: ".", // the directory of the link, in which the other files of a ConfigMap are too
		"-":  ".",
	} {
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		n, want := 0, filepath.Join(root, dir, name)
		for _, k := range leaves(reflect.ValueOf(&c).Elem(), "") {
			if file := k.value; strings.HasPrefix(k.tag.Get("kind"), "path") && file.String() != "" {
				n++
				if file.String() != want {
					t.Errorf("%s: %s is %s, want %s", path, k.path, file, want)
				}
			}
		}
		if n < 12 {
			t.Errorf("%s: only %d paths", path, n)
		}
	}
	for text, want := range map[string]string{"audit: {file: \"-\"}": "-", "audit: {file: /a/../b}": "/a/../b", "": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Load(file); err != nil || c.Audit.File != want {
			t.Errorf("%s: %q, %v", text, c.Audit.File, err)
		}
	}
}

func TestState(t *testing.T) {
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, xdg, home, local, want string }{
		{"the configuration's", "/s", "/x", "/h", "/l", "/s"},
		{"the configuration's, relative", "s", "/x", "/h", "/l", filepath.Join(wd, "s")},
		{"XDG_STATE_HOME", "", "/x", "/h", "/l", "/x/robotsproxy"},
		{"XDG: a relative path is ignored", "", "x", "/h", "/l", "/h/.local/state/robotsproxy"},
		{"HOME", "", "", "/h", "/l", "/h/.local/state/robotsproxy"},
		{"Windows", "", "", "", "/l", "/l/robotsproxy"},
		{"nothing", "", "", "", "", ""},
	} {
		got, err := Config{StateDir: c.dir}.State(func(name string) string {
			return map[string]string{"XDG_STATE_HOME": c.xdg, "HOME": c.home, "LOCALAPPDATA": c.local}[name]
		})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// Whatever the file contains, there is no panic, each message has one line, and a valid
// configuration survives Marshal and Parse.
func FuzzParse(f *testing.F) {
	f.Add(Default().Marshal())
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f:") || strings.ContainsAny(line, "\r\x1b") {
					t.Errorf("%q", line)
				}
			}
			return
		}
		if err := c.Check(); err != nil {
			t.Error("Check:", err)
		}
		again, err := Parse("again", c.Marshal())
		if err != nil {
			t.Fatalf("%v\n%s", err, c.Marshal())
		}
		if diff := cmp.Diff(c, again, compare); diff != "" {
			t.Error(diff)
		}
	})
}
