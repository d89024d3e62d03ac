package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/robots/testkit"
)

// A layout is how a configuration file is stored on the disk and changed.
type layout struct {
	name    string
	prepare func(l *laid, text string) (file string)
	change  func(l *laid, text string)
}

type laid struct {
	t   *testing.T
	dir string
	n   int // of changes
}

func (l *laid) at(name string) string { return filepath.Join(l.dir, name) }

func (l *laid) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *laid) write(name, text string) string {
	l.t.Helper()
	l.must(os.MkdirAll(filepath.Dir(l.at(name)), 0o700))
	l.must(os.WriteFile(l.at(name), []byte(text), 0o600))
	return l.at(name)
}

// turn has a symbolic link lead elsewhere, at once.
func (l *laid) turn(link, to string) {
	l.t.Helper()
	l.must(os.Symlink(to, l.at(link)+"_tmp"))
	l.must(os.Rename(l.at(link)+"_tmp", l.at(link)))
}

var layouts = []layout{
	{"written in place",
		func(l *laid, text string) string { return l.write("c.yaml", text) },
		func(l *laid, text string) { l.write("c.yaml", text) }},
	{"replaced by a rename",
		func(l *laid, text string) string { return l.write("c.yaml", text) },
		func(l *laid, text string) { l.must(os.Rename(l.write(".c.yaml.swp", text), l.at("c.yaml"))) }},
	{"moved away, then written",
		func(l *laid, text string) string { return l.write("c.yaml", text) },
		func(l *laid, text string) {
			l.must(os.Rename(l.at("c.yaml"), l.at("c.yaml~")))
			l.write("c.yaml", text)
		}},
	{"in a ConfigMap",
		func(l *laid, text string) string {
			l.write("..2026_0/c.yaml", text)
			l.must(os.Symlink("..2026_0", l.at("..data")))
			l.must(os.Symlink("..data/c.yaml", l.at("c.yaml")))
			return l.at("c.yaml")
		},
		func(l *laid, text string) {
			l.n++
			l.write(fmt.Sprintf("..2026_%d/c.yaml", l.n), text)
			l.turn("..data", fmt.Sprintf("..2026_%d", l.n))
			l.must(os.RemoveAll(l.at(fmt.Sprintf("..2026_%d", l.n-1))))
		}},
	{"behind an absolute link to a release",
		func(l *laid, text string) string {
			l.write("releases/0/etc/c.yaml", text)
			l.must(os.Symlink(l.at("releases/0"), l.at("current")))
			return l.at("current/etc/../etc/c.yaml")
		},
		func(l *laid, text string) {
			l.n++
			l.write(fmt.Sprintf("releases/%d/etc/c.yaml", l.n), text)
			l.turn("current", l.at(fmt.Sprintf("releases/%d", l.n)))
		}},
	{"with its directory removed, and made again",
		func(l *laid, text string) string { return l.write("etc/sub/c.yaml", text) },
		func(l *laid, text string) {
			l.must(os.RemoveAll(l.at("etc")))
			l.write("etc/sub/c.yaml", text)
		}},
	{"with its directory replaced",
		func(l *laid, text string) string { return l.write("etc/c.yaml", text) },
		func(l *laid, text string) {
			l.n++
			l.write("next/c.yaml", text)
			l.must(os.Rename(l.at("etc"), l.at(fmt.Sprint("old", l.n))))
			l.must(os.Rename(l.at("next"), l.at("etc")))
		}},
}

func (l *laid) settle(from *settings, prepare func(*laid, string) string) {
	text, err := os.ReadFile(from.file)
	l.must(err)
	file := prepare(l, string(text))
	from.file = file
	from.load = func() (config.Config, error) {
		cfg, err := config.Load(file)
		if err != nil {
			return config.Config{}, err
		}
		return cfg, cfg.Check()
	}
	from.sum, _ = fileSum(file)
}

// TestAChangedFileIsReloaded: however it comes to be another, and again after that.
func TestAChangedFileIsReloaded(t *testing.T) {
	for _, way := range layouts {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			l := &laid{t: t, dir: t.TempDir()}
			s := standBy(t, nil, func(from *settings) { l.settle(from, way.prepare) })
			for i := range 3 {
				mode, want := "monitor", http.StatusOK
				if i%2 == 1 {
					mode, want = "enforce", http.StatusForbidden
				}
				s.base.with(keys{"mode": mode}).file(t, l.at("text"))
				text, err := os.ReadFile(l.at("text"))
				l.must(err)
				way.change(l, string(text))
				testkit.Eventually(t, fmt.Sprint("mode: ", mode), func() bool {
					status, _ := s.get(s.origin.URL+"/private", nil)
					return status == want
				})
			}
		})
	}
}

// TestAChangeWhileItIsRead: a file to which a link leads only since this change, and that is changed again while it is
// read, is read again, although its directory was not watched then.
func TestAChangeWhileItIsRead(t *testing.T) {
	t.Parallel()
	l := &laid{t: t, dir: t.TempDir()}
	var again atomic.Pointer[string]
	s := standBy(t, nil, func(from *settings) {
		l.settle(from, func(l *laid, text string) string {
			l.write("0/c.yaml", text)
			l.must(os.Symlink("0/c.yaml", l.at("c.yaml")))
			return l.at("c.yaml")
		})
		load := from.load
		from.load = func() (config.Config, error) {
			cfg, err := load()
			if text := again.Swap(nil); text != nil {
				l.write("1/c.yaml", *text)
			}
			return cfg, err
		}
	})
	text := func(burst int) string {
		s.base.with(keys{"pace.burst": burst}).file(t, l.at("text"))
		text, err := os.ReadFile(l.at("text"))
		l.must(err)
		return string(text)
	}
	l.write("1/c.yaml", text(7))
	again.Store(new(text(8)))
	l.turn("c.yaml", "1/c.yaml")
	testkit.Eventually(t, "the second change is read", func() bool { return s.daemon.Active.Load().Cfg.Pace.Burst == 8 })
}

// TestAFileThatIsGone: what was in it stays in force, and it is said once; so it is with
// one that is cut to nothing before it is written. When it is there again it counts.
func TestAFileThatIsGone(t *testing.T) {
	for name, away := range map[string]func(string) error{
		"removed": os.Remove, "emptied": func(file string) error { return os.Truncate(file, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stand(t, keys{"mode": "monitor"})
			if err := away(s.file); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "it is said", func() bool { return strings.Contains(s.said.String(), "missing or empty") })
			if status, _ := s.get(s.origin.URL+"/private", nil); status != http.StatusOK {
				t.Errorf("status %d: the defaults are in force", status)
			}
			testkit.Eventually(t, "the operator is told", func() bool { _, _, _, err := s.daemon.Reloads(); return err != nil })
			s.base.with(keys{"mode": "enforce"}).file(t, s.file)
			testkit.Eventually(t, "mode: enforce", func() bool {
				status, _ := s.get(s.origin.URL+"/private", nil)
				return status == http.StatusForbidden
			})
			testkit.Eventually(t, "the operator is told that it is there", func() bool { _, _, _, err := s.daemon.Reloads(); return err == nil })
			if n := strings.Count(s.said.String(), "missing or empty"); n != 1 {
				t.Errorf("said %d times:\n%s", n, s.said)
			}
		})
	}
}

// TestACertificateThatIsRenewed at the same path is taken without a change of the
// configuration.
func TestACertificateThatIsRenewed(t *testing.T) {
	t.Parallel()
	all := twoCAs(t, "listen_tls.cert", "listen_tls.key")
	l := &laid{t: t, dir: t.TempDir()}
	for name, from := range map[string]string{"fullchain.pem": "listen_tls.cert", "privkey.pem": "listen_tls.key"} {
		text, err := os.ReadFile(all.from[from].(string))
		l.must(err)
		l.write("archive/1/"+name, string(text))
		if text, err = os.ReadFile(all.to[from].(string)); err != nil {
			t.Fatal(err)
		}
		l.write("archive/2/"+name, string(text))
		l.must(os.Symlink("archive/1/"+name, l.at(name)))
	}
	s := stand(t, keys{"listen_tls.cert": l.at("fullchain.pem"), "listen_tls.key": l.at("privkey.pem")})
	if got := peerPEM(s); got != all.want[0] {
		t.Fatalf("at first %s is shown", got)
	}
	for _, name := range []string{"fullchain.pem", "privkey.pem"} { // one after the other, as certbot does
		l.turn(name, "archive/2/"+name)
	}
	testkit.Eventually(t, "the other is shown", func() bool { return peerPEM(s) == all.want[1] })
	testkit.Eventually(t, "it is said", func() bool { return strings.Contains(s.said.String(), "listen_tls_until") })
}

// TestABadFileIsTriedOnce: not again and again, and again when it is another.
func TestABadFileIsTriedOnce(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	for i := range 2 {
		if err := os.WriteFile(s.file, fmt.Appendf(nil, "mode: wrong%d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is refused", func() bool { return strings.Contains(s.said.String(), fmt.Sprintf("wrong%d", i)) })
		now := time.Now().Add(time.Hour)
		if err := os.Chtimes(s.file, now, now); err != nil { // touched, and the same
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(s.file), "other"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(s.said.String(), "by=\"a changed file\""); n != 2 {
		t.Errorf("tried %d times:\n%s", n, s.said)
	}
}

// TestTrace: whose events are waited for.
func TestTrace(t *testing.T) {
	l := &laid{t: t, dir: t.TempDir()}
	real, err := filepath.EvalSymlinks(l.dir)
	l.must(err)
	l.dir = real
	l.write("a/b/file", "x")
	l.must(os.Symlink("a", l.at("link")))
	l.must(os.Symlink("loop", l.at("loop")))
	for name, want := range map[string][]string{
		"a/b/file":       {"a/b", "a/b/file"},
		"a/b/gone":       {"a/b", "a/b/gone"},
		"a/gone/file":    {"a", "a/gone"},
		"link/b/file":    {"", "link", "a/b", "a/b/file"},
		"link/../a/gone": {"", "link", "a", "a/gone"},
		"a/b/file/file":  {"a/b", "a/b/file"},
		"loop/file":      {"", "loop"},
		"./a//b/./file":  {"a/b", "a/b/file"},
	} {
		dirs, names := map[string]bool{}, map[string]bool{}
		traceLinks(l.dir+"/"+name, dirs, names)
		if len(names) != len(want) {
			t.Errorf("%s: %v, want %q", name, names, want)
		}
		for _, w := range want {
			if !names[l.at(w)] {
				t.Errorf("%s: %q is not among %v", name, w, names)
			}
		}
	}
}
