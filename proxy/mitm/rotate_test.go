package mitm

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

func mustRotate(t *testing.T, dir string) {
	t.Helper()
	if _, _, err := Rotate(dir); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := LoadOrCreate(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRotate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	first := mustLoad(t, dir)
	oldKey, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	old, now, err := Rotate(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !old.Equal(first.Certificate()) || now.Equal(old) {
		t.Errorf("replaced %s by %s", old.SerialNumber, now.SerialNumber)
	}
	if d := time.Since(CreatedAt(now)); d < 0 || d > time.Hour {
		t.Errorf("made %s ago", d)
	}
	if !mustLoad(t, dir).Certificate().Equal(now) {
		t.Error("the loaded CA is not the new one")
	}
	for name, want := range map[string]string{"ca.key": "-rw-------", "ca.pem": "-rw-r--r--", "ca-previous.pem": "-rw-r--r--"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().String(); got != want {
			t.Errorf("%s has mode %s, want %s", name, got, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 { // these and the lock
		t.Errorf("left behind: %v, %v", entries, err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || strings.Contains(string(text), string(oldKey)) {
			t.Errorf("%s has the old key: %v", e.Name(), err)
		}
	}
}

// TestRotateKeepsCertificates checks that the previous certificates are kept, newest first, up to a limit.
func TestRotateKeepsCertificates(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if certs, err := Previous(dir); err != nil || certs != nil {
		t.Errorf("of none: %v, %v", certs, err)
	}
	mustLoad(t, dir)
	var were []string
	for range maxChain + 2 {
		were = append([]string{mustLoad(t, dir).Certificate().SerialNumber.String()}, were...)
		mustRotate(t, dir)
	}
	certs, err := Previous(dir)
	if err != nil || len(certs) != maxChain-1 {
		t.Fatalf("%d certificates, %v", len(certs), err)
	}
	for i, c := range certs {
		if c.SerialNumber.String() != were[i] {
			t.Errorf("certificate %d is %s, want %s", i, c.SerialNumber, were[i])
		}
	}
}

// TestRotateInterrupted checks that there is one complete CA if the process dies after any step.
func TestRotateInterrupted(t *testing.T) {
	t.Parallel()
	names := []string{previousName, keyName, certName}
	for steps := range len(names) + 1 {
		dir := filepath.Join(t.TempDir(), "state")
		old := mustLoad(t, dir).Certificate()
		next := filepath.Join(dir, nextName)
		err := stateFiles(dir).writeNext(mustCerts(t, stateFiles(dir)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := caFiles{cert: next, key: next}.load()
		if err != nil {
			t.Fatal(err)
		}
		key, err := encodeKey(p.key)
		if err != nil {
			t.Fatal(err)
		}
		text := map[string][]byte{previousName: EncodeCertificates(p.certs[1:]), keyName: key, certName: EncodeCertificates(p.certs[:1])}
		for _, name := range names[:steps] {
			mode := certMode
			if name == keyName {
				mode = keyMode
			}
			write(t, filepath.Join(dir, name), text[name], mode)
		}
		if a := mustLoad(t, dir); !a.Certificate().Equal(p.certs[0]) {
			t.Errorf("after %d steps: %s", steps, a.Certificate().SerialNumber)
		}
		if certs, err := Previous(dir); err != nil || len(certs) != 1 || !certs[0].Equal(old) {
			t.Errorf("after %d steps, previous: %v, %v", steps, certs, err)
		}
		if there, err := exists(next); err != nil || there {
			t.Errorf("after %d steps %s still exists: %v", steps, nextName, err)
		}
	}
}

// TestRotateInterruptedAtFirst checks that nothing changes before ca.next has its name.
func TestRotateInterruptedAtFirst(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	old := mustLoad(t, dir).Certificate()
	write(t, filepath.Join(dir, ".ca.next-1"), []byte("half"), keyMode)
	if !mustLoad(t, dir).Certificate().Equal(old) {
		t.Error("another CA")
	}
}

func mustCerts(t *testing.T, f caFiles) []*x509.Certificate {
	t.Helper()
	certs, err := f.readCerts()
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func TestRotateRefuses(t *testing.T) {
	t.Parallel()
	key := mustECDSA(t)
	for _, c := range []struct {
		name string
		make func(dir string)
		want string
		is   error
	}{
		{"no directory", func(dir string) { os.Remove(dir) }, "there is no CA yet", ErrNoCA},
		{"no CA", func(string) {}, "there is no CA yet", ErrNoCA},
		{"a certificate without a key", func(dir string) { write(t, filepath.Join(dir, certName), caCert(t, key, nil), certMode) }, " is missing", nil},
		{"a CA supplied by the user", func(dir string) {
			write(t, filepath.Join(dir, certName), caCert(t, key, nil), certMode)
			write(t, filepath.Join(dir, keyName), pkcs8(t, key), keyMode)
		}, "was not created by robotsproxy", nil},
		{"garbled", func(dir string) {
			write(t, filepath.Join(dir, certName), []byte("x"), certMode)
			write(t, filepath.Join(dir, keyName), pkcs8(t, key), keyMode)
		}, "contains no PEM certificate", nil},
		{"previous ones garbled", func(dir string) {
			mustLoad(t, dir)
			write(t, filepath.Join(dir, previousName), []byte("x"), certMode)
		}, "ca-previous.pem contains no PEM certificate", nil},
		{"ca.next of another user", func(dir string) {
			mustLoad(t, dir)
			write(t, filepath.Join(dir, nextName), []byte("x"), keyMode)
		}, "complete the rotation of the CA", nil},
	} {
		dir := t.TempDir()
		c.make(dir)
		before := listing(t, dir)
		_, _, err := Rotate(dir)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("%s: there was\n%s\nnow\n%s", c.name, before, after)
		}
	}
}

// listing returns the files of a directory and their content, without the lock.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || e.IsDir() || e.Name() == lockName {
			return nil
		}
		text, err := os.ReadFile(name)
		all.WriteString(e.Name() + "\n" + string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestRotateExpired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := mustECDSA(t)
	write(t, filepath.Join(dir, certName), caCert(t, key, func(c *x509.Certificate) {
		c.Subject.Organization = []string{organization}
		c.NotAfter = time.Now().Add(-time.Hour)
	}), certMode)
	write(t, filepath.Join(dir, keyName), pkcs8(t, key), keyMode)
	mustRotate(t, dir)
	mustLoad(t, dir)
}

// TestRotateWhileLoading checks that a load during rotations gets a complete CA, and the last one at the end.
func TestRotateWhileLoading(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	mustLoad(t, dir)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 20 {
				if _, _, err := Rotate(dir); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 200 {
				if _, err := LoadOrCreate(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestRotateAsRoot checks that root does not rotate another user's CA or complete that user's
// rotation: root would own the new files, and the user's proxy could not read the key.
func TestRotateAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir := t.TempDir()
	first := mustLoad(t, dir)
	if err := stateFiles(dir).writeNext(nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.key", "ca.pem", "ca.next"} {
		if err := os.Chown(filepath.Join(dir, name), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	_, _, rotated := Rotate(dir)
	_, loaded := LoadOrCreate(dir)
	for what, err := range map[string]error{"rotate": rotated, "load": loaded} {
		if err == nil || !strings.Contains(err.Error(), "run the command as user 65534") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if certs, err := stateFiles(dir).readCerts(); err != nil || !certs[0].Equal(first.Certificate()) {
		t.Errorf("the certificate was replaced: %v", err)
	}
}

// TestNext: the next CA is made once and used by the next rotation, also after one that was interrupted.
func TestNext(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Next(dir); !errors.Is(err, ErrNoCA) {
		t.Errorf("without a CA: %v", err)
	}
	if c, err := Upcoming(dir); c != nil || err != nil {
		t.Errorf("without one: %v, %v", c, err)
	}
	first := mustLoad(t, dir)
	next, err := Next(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Next(dir)
	upcoming, failed := Upcoming(dir)
	if err != nil || failed != nil || !again.Equal(next) || !upcoming.Equal(next) || next.Equal(first.Certificate()) {
		t.Errorf("it is made anew: %v, %v", err, failed)
	}
	if !mustLoad(t, dir).Certificate().Equal(first.Certificate()) {
		t.Error("it signs already")
	}
	left := filepath.Join(dir, upcomingName)
	testkit.Must(t, os.CopyFS(left+".kept", os.DirFS(left)))
	_, now, err := Rotate(dir)
	if err != nil || !now.Equal(next) {
		t.Errorf("the rotation has made another one: %v", err)
	}
	if c, err := Upcoming(dir); c != nil || err != nil {
		t.Errorf("it is still the next one: %v, %v", c, err)
	}
	// As if the process had ended before it removed the directory.
	testkit.Must(t, os.Rename(left+".kept", left))
	testkit.Must(t, os.Chmod(filepath.Join(left, keyName), keyMode))
	if _, now, err = Rotate(dir); err != nil || now.Equal(next) {
		t.Errorf("the CA is replaced by itself: %v", err)
	}
}
