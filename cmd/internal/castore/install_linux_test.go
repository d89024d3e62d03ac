package castore

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/truststore"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// A fakeSystem is a trust store of a test's own, in place of the machine's: a
// directory of certificates, and a command that makes a bundle of them and notes
// how often it was called.
type fakeSystem struct{ dir, bundle, calls string }

func newFakeSystem(t *testing.T) *fakeSystem {
	t.Helper()
	dir := t.TempDir()
	s := &fakeSystem{dir: filepath.Join(dir, "anchors"), bundle: filepath.Join(dir, "bundle.pem"), calls: filepath.Join(dir, "calls")}
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{s.dir, bin} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tee", "rm", "cat"} { // and no sudo, which the library would call
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf("#!/bin/sh\necho called >> '%s'\ncat '%s'/*.crt > '%s' || :\n", s.calls, s.dir, s.bundle)
	if err := testkit.WriteProgram(filepath.Join(bin, "update-roots"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("SUDO_USER", "")
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	file, command, roots := truststore.SystemTrustFilename, truststore.SystemTrustCommand, SystemRootFiles
	truststore.SystemTrustFilename, truststore.SystemTrustCommand, SystemRootFiles = s.dir+"/%s.crt", []string{"update-roots"}, []string{s.bundle}
	t.Cleanup(func() {
		truststore.SystemTrustFilename, truststore.SystemTrustCommand, SystemRootFiles = file, command, roots
	})
	return s
}

// files are those in the store, their certificates after them.
func (s *fakeSystem) files(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (s *fakeSystem) updates() int {
	text, _ := os.ReadFile(s.calls)
	return strings.Count(string(text), "called")
}

// change runs ca install or uninstall as root or not, whoever runs the test.
func change(root, install bool, f installFlags) (string, error) {
	var out strings.Builder
	verb := "uninstall"
	cfg, err := f.Load()
	if err != nil {
		return "", err
	}
	certs, err := installedCertificates(cfg, f.previous)
	if install {
		var ca *x509.Certificate
		ca, err = rootCertificate(cfg)
		certs, verb = []*x509.Certificate{ca}, "install"
	}
	if err != nil {
		return "", err
	}
	s := newStores(&f, cfg, verb)
	s.canWriteSystem = root
	err = s.change(&out, certs)
	return out.String(), err
}

func mustChange(t *testing.T, install bool, f installFlags, want string) {
	t.Helper()
	out, err := change(true, install, f)
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("install %t: %v\n%s", install, err, out)
	}
}

func TestInstallInTheSystem(t *testing.T) {
	s := newFakeSystem(t)
	others := filepath.Join(s.dir, "other.crt")
	if err := os.WriteFile(others, []byte("another's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var f installFlags
	mustChange(t, false, withCA(t, &f), "ok    system   was not installed")
	if s.updates() != 0 {
		t.Error("the store was changed for nothing")
	}
	mustChange(t, true, f, "ok    system   is installed, in "+s.dir+"/robotsproxy-")
	mustChange(t, true, f, "ok    system   is already installed, in ")
	if names := s.files(t); len(names) != 2 || s.updates() != 1 {
		t.Errorf("%s, %d updates", names, s.updates())
	}
	first := s.files(t)[1]

	// After a rotation there are two, told apart.
	old, _, err := mitm.Rotate(mustState(t))
	if err != nil {
		t.Fatal(err)
	}
	mustChange(t, true, f, "ok    system   is installed, in ")
	if names := s.files(t); len(names) != 3 {
		t.Errorf("after a rotation: %s", names)
	}
	previous := f
	previous.previous = true
	mustChange(t, false, previous, guide.Fingerprint(old.Raw)+"\nok    system   is uninstalled\n")
	if names := s.files(t); len(names) != 2 || slices.Contains(names, first) {
		t.Errorf("without the previous one: %s", names)
	}
	mustChange(t, false, f, "ok    system   is uninstalled\n")
	mustChange(t, false, f, "ok    system   was not installed\n")
	if names := s.files(t); !slices.Equal(names, []string{"other.crt"}) {
		t.Errorf("in the end: %s", names)
	}
}

// withCA makes the CA that f means.
func withCA(t *testing.T, f *installFlags) installFlags {
	t.Helper()
	cfg, err := f.Load()
	testkit.Must(t, err)
	_, _, err = usedCA(cfg)
	testkit.Must(t, err)
	return *f
}

func mustState(t *testing.T) string {
	t.Helper()
	state, err := config.Default().State(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A user other than root is told what to run, with the right state directory.
func TestInstallNeedsRoot(t *testing.T) {
	s := newFakeSystem(t)
	var f installFlags
	out, err := change(false, true, withCA(t, &f))
	program, _ := os.Executable()
	want := "FAIL  system   needs root\n      sudo " + program + " ca install --state " + mustState(t) + "\n"
	if err == nil || !strings.Contains(out, want) || len(s.files(t)) > 0 {
		t.Errorf("%v\n%s, want\n%s", err, out, want)
	}
	mustChange(t, true, f, "is installed")
	out, err = change(false, false, f)
	if err == nil || !strings.Contains(out, strings.Replace(want, "ca install", "ca uninstall", 1)) || len(s.files(t)) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInstallRefuses(t *testing.T) {
	s := newFakeSystem(t)
	// By way of sudo another CA than the user's would be made.
	t.Setenv("SUDO_USER", "somebody")
	var f installFlags
	if _, err := change(true, true, f); err == nil || !strings.Contains(err.Error(), "name the state directory of somebody with --state") {
		t.Errorf("by sudo: %v", err)
	}
	if _, err := os.Stat(mustState(t)); err == nil {
		t.Error("the directory was made")
	}
	t.Setenv("SUDO_USER", "")
	// An expired CA is refused, and can be uninstalled.
	dir := t.TempDir()
	testca.Write(t, dir, time.Now().Add(-time.Hour))
	f.State = dir
	if _, err := change(true, true, f); err == nil || !strings.Contains(err.Error(), "expired on ") {
		t.Errorf("expired: %v", err)
	}
	mustChange(t, false, f, "was not installed")
	// A store that the system's command does not read is no success.
	f.State = filepath.Join(t.TempDir(), "state")
	SystemRootFiles = []string{filepath.Join(s.dir, "none")}
	kept := rootDirs
	rootDirs = nil
	defer func() { rootDirs = kept }()
	out, err := change(true, true, f)
	if err == nil || !strings.Contains(out, "FAIL  system   "+s.dir+"/robotsproxy-") || !strings.Contains(out, "do not contain the CA") {
		t.Errorf("not read: %v\n%s", err, out)
	}
}

// If the CA is trusted by other means, there is nothing to remove.
func TestUninstallLeavesOthersAlone(t *testing.T) {
	s := newFakeSystem(t)
	var f installFlags
	withCA(t, &f)
	text, err := os.ReadFile(filepath.Join(mustState(t), "ca.pem"))
	if err == nil {
		err = os.WriteFile(s.bundle, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustChange(t, true, f, "ok    system   is already trusted, but was not installed by robotsproxy ca install")
	out, err := change(true, false, f)
	if err == nil || !strings.Contains(out, "FAIL  system   is trusted, but was not installed by robotsproxy ca install: "+s.dir) || s.updates() > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// newHome gives the test a home directory of its own, with the databases of two Firefox profiles.
func newHome(t *testing.T, certutil string) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", "")
	for _, profile := range []string{".mozilla/firefox/a", "snap/firefox/common/.mozilla/firefox/b"} {
		testkit.Must(t, (&nss{certutil: certutil}).create(filepath.Join(home, profile)))
	}
	return home
}

func TestInstallInBrowsers(t *testing.T) {
	testkit.Long(t, "real peers")
	certutil, err := exec.LookPath("certutil")
	if err != nil {
		testkit.Missing(t, "certutil")
	}
	s := newFakeSystem(t)
	f := installFlags{browsers: true, noSystem: true}
	withCA(t, &f)
	out, err := change(false, true, f)
	if err == nil || !strings.Contains(out, "FAIL  browser  certutil not found on PATH: install the package libnss3-tools (Debian, ") {
		t.Errorf("without certutil: %v\n%s", err, out)
	}
	testkit.Must(t, os.Symlink(certutil, filepath.Join(os.Getenv("PATH"), "certutil")))
	home := newHome(t, certutil)
	firefox, snap := filepath.Join(home, ".mozilla/firefox/a"), filepath.Join(home, "snap/firefox/common/.mozilla/firefox/b")
	chromium := filepath.Join(home, ".pki/nssdb")
	mustChange(t, false, f, "ok    browser  was not installed\n")
	mustChange(t, true, f, "ok    browser  is installed, in "+firefox+", "+snap+", "+chromium+" (new)\n")
	mustChange(t, true, f, "ok    browser  is already installed\n")
	cfg, err := f.Load()
	testkit.Must(t, err)
	ca, err := rootCertificate(cfg)
	testkit.Must(t, err)
	testkit.Must(t, (&nss{certutil: certutil}).run(nil, snap, "-D", "-n", storeName(ca))) // from one of them alone
	mustChange(t, true, f, "ok    browser  is installed, in "+snap+"\n")
	testkit.Must(t, (&nss{certutil: certutil}).run(nil, snap, "-D", "-n", storeName(ca)))
	mustChange(t, false, f, "ok    browser  is uninstalled, from "+firefox+", "+chromium+"\n")
	mustChange(t, false, f, "ok    browser  was not installed\n")
	if left := s.files(t); len(left) > 0 {
		t.Errorf("in the system's store: %s", left)
	}
}

// By way of sudo a database would be root's: none is made.
func TestInstallInBrowsersBySudo(t *testing.T) {
	newFakeSystem(t)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_USER", "somebody")
	testkit.Must(t, testkit.WriteProgram(filepath.Join(os.Getenv("PATH"), "certutil"), []byte("#!/bin/sh\n")))
	f := installFlags{browsers: true, noSystem: true}
	f.State = mustState(t)
	withCA(t, &f)
	const want = "no Firefox profile and no Chromium database found\n      start Firefox once, then run as the same user, without sudo:\n" +
		"      robotsproxy ca install --browsers --no-system --state "
	out, err := change(true, true, f)
	if err == nil || !strings.Contains(out, "FAIL  browser  "+want) {
		t.Errorf("nothing else asked for: %v\n%s", err, out)
	}
	f.noSystem = false
	mustChange(t, true, f, "warn  browser  "+want)
}

func TestFindDatabases(t *testing.T) {
	for _, c := range []struct {
		name          string
		databases     []string
		directories   []string
		dirs, missing []string
	}{
		{"an empty home", nil, nil, nil, []string{".pki/nssdb"}},
		{"the one of Chromium", []string{".pki/nssdb"}, nil, []string{".pki/nssdb"}, nil},
		{"the one of a recent Chromium", []string{".local/share/pki/nssdb"}, nil, []string{".local/share/pki/nssdb"}, nil},
		{"a directory without a database", nil, []string{".pki/nssdb", ".mozilla/firefox/Crash Reports"}, nil, []string{".pki/nssdb"}},
		{"profiles of Firefox", []string{".mozilla/firefox/a", ".config/mozilla/firefox/b", ".pki/nssdb"}, nil,
			[]string{".mozilla/firefox/a", ".config/mozilla/firefox/b", ".pki/nssdb"}, nil},
		{"Chromium as a snap", nil, []string{"snap/chromium/current"}, nil, []string{".pki/nssdb", "snap/chromium/current/.pki/nssdb"}},
		{"a started Chromium as a snap", []string{"snap/chromium/current/.local/share/pki/nssdb"}, nil,
			[]string{"snap/chromium/current/.local/share/pki/nssdb"}, []string{".pki/nssdb"}},
		{"Flatpaks", []string{".var/app/a/.pki/nssdb"}, []string{".var/app/b/.pki", ".var/app/c"},
			[]string{".var/app/a/.pki/nssdb"}, []string{".pki/nssdb", ".var/app/b/.pki/nssdb"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("XDG_DATA_HOME", "")
			for _, dir := range append(c.directories, c.databases...) {
				testkit.Must(t, os.MkdirAll(filepath.Join(home, dir), 0o700))
			}
			for _, dir := range c.databases {
				testkit.Must(t, os.WriteFile(filepath.Join(home, dir, "cert9.db"), nil, 0o600))
			}
			var n nss
			n.find(home)
			for _, dirs := range [][]string{n.dirs, n.missing} {
				for i := range dirs {
					dirs[i], _ = filepath.Rel(home, dirs[i])
				}
			}
			if !slices.Equal(n.dirs, c.dirs) || !slices.Equal(n.missing, c.missing) {
				t.Errorf("%q, missing %q, want %q, missing %q", n.dirs, n.missing, c.dirs, c.missing)
			}
		})
	}
}

// With a real keytool, on a copy of a trust store.
func TestInstallInJava(t *testing.T) {
	testkit.Long(t, "real peers")
	keytool, err := exec.LookPath("keytool")
	if err == nil {
		keytool, err = filepath.EvalSymlinks(keytool)
	}
	if err != nil {
		t.Skip("there is no keytool on this machine")
	}
	newFakeSystem(t)
	f := installFlags{java: true, noSystem: true}
	withCA(t, &f)
	t.Setenv("JAVA_HOME", "")
	t.Setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC") // it starts in half the time
	out, err := change(false, true, f)
	if err == nil || !strings.Contains(out, "FAIL  java     no Java found: ") {
		t.Errorf("without java: %v\n%s", err, out)
	}
	home := t.TempDir()
	t.Setenv("JAVA_HOME", home)
	for _, dir := range []string{"bin", "lib/security"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(keytool, filepath.Join(home, "bin/keytool")); err != nil {
		t.Fatal(err)
	}
	testca.Write(t, home, time.Now().Add(time.Hour))
	other, err := ReadRoots(filepath.Join(home, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := EncodeJavaStore(Certificates(other))
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "lib/security/cacerts"), store, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustChange(t, true, f, "ok    java     is installed\n")
	mustChange(t, true, f, "ok    java     is already installed\n")
	mustChange(t, false, f, "ok    java     is uninstalled\n")
	mustChange(t, false, f, "ok    java     was not installed\n")
	mustChange(t, true, f, "ok    java     is installed\n")
}
