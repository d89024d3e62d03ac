package mitm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "robotsproxy")
	a, err := LoadOrCreate(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "drwx------", "ca.key": "-rw-------", "ca.pem": "-rw-r--r--"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().String(); got != want {
			t.Errorf("%q has mode %s, want %s", name, got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".ca*")); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if k, ok := private.(*ecdsa.PrivateKey); !ok || k.Curve != elliptic.P256() {
		t.Errorf("the key is a %T", private)
	}
	onDisk, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil || string(onDisk) != string(a.CertPEM()) {
		t.Errorf("CertPEM is not ca.pem: %v", err)
	}
	again, err := LoadOrCreate(dir)
	if err != nil || !again.Certificate().Equal(a.Certificate()) {
		t.Errorf("the second start has another CA: %v", err)
	}
}

func TestCreatedCertificate(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	c := a.Certificate()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := "robotsproxy CA (" + host + ")"
	if len(want) <= maxCN && c.Subject.CommonName != want || len(c.Subject.CommonName) > maxCN {
		t.Errorf("CN %q, want %q", c.Subject.CommonName, want)
	}
	if strings.Join(c.Subject.Organization, "") != "robotsproxy" {
		t.Errorf("O %q", c.Subject.Organization)
	}
	if !c.IsCA || !c.BasicConstraintsValid || c.MaxPathLen != 0 || !c.MaxPathLenZero {
		t.Error("not CA:TRUE, pathlen:0")
	}
	if c.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("key usage %b", c.KeyUsage)
	}
	if len(c.SubjectKeyId) == 0 {
		t.Error("no subject key identifier")
	}
	now := time.Now()
	if before := now.Sub(c.NotBefore); before < 23*time.Hour || before > 25*time.Hour {
		t.Errorf("valid from %s", c.NotBefore)
	}
	if years := c.NotAfter.Sub(now).Hours() / 24 / 365; years < 9.9 || years > 10.1 {
		t.Errorf("valid until %s", c.NotAfter)
	}
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() > 128 {
		t.Errorf("serial %x", c.SerialNumber)
	}
}

func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	const starts = 20
	authorities := make([]*Authority, starts)
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() {
			var err error
			if authorities[i], err = LoadOrCreate(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range authorities {
		if a == nil || !a.Certificate().Equal(authorities[0].Certificate()) {
			t.Fatal("two starts have different CAs")
		}
	}
}

const createDir = "MITM_TEST_CREATE_DIR"

// TestCreateInProcesses repeats TestCreateAtOnce with processes: the test binary runs itself.
func TestCreateInProcesses(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(createDir); dir != "" {
		a, err := LoadOrCreate(dir)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.Write(a.CertPEM())
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	var all sync.WaitGroup
	outputs := make([]string, 4)
	for i := range outputs {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCreateInProcesses$", "-test.count=1")
			cmd.Env = append(os.Environ(), createDir+"="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if block, _ := pem.Decode(out); block != nil {
				outputs[i] = string(block.Bytes)
			}
		})
	}
	all.Wait()
	for _, out := range outputs {
		if out == "" || out != outputs[0] {
			t.Fatal("two processes have different CAs")
		}
	}
}

// TestLoadWritesNothing checks that a CA in a read-only directory is used unchanged.
func TestLoadWritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := mustECDSA(t)
	write(t, filepath.Join(dir, "ca.pem"), caCert(t, key, nil), 0o444)
	write(t, filepath.Join(dir, "ca.key"), pkcs8(t, key), 0o400)
	if _, err := LoadOrCreate(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestCreateInterrupted checks that the next start completes a CA whose process died after any step.
func TestCreateInterrupted(t *testing.T) {
	t.Parallel()
	for steps := range 3 {
		dir := t.TempDir()
		if err := stateFiles(dir).writeNext(nil); err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(dir, nextName)
		p, err := caFiles{cert: next, key: next}.load()
		if err != nil {
			t.Fatal(err)
		}
		key, err := encodeKey(p.key)
		if err != nil {
			t.Fatal(err)
		}
		if steps > 0 {
			write(t, filepath.Join(dir, keyName), key, keyMode)
		}
		if steps > 1 {
			write(t, filepath.Join(dir, certName), EncodeCertificates(p.certs), certMode)
		}
		if a := mustLoad(t, dir); !a.Certificate().Equal(p.certs[0]) {
			t.Errorf("after %d steps: another CA", steps)
		}
		if certs, err := Previous(dir); err != nil || certs != nil {
			t.Errorf("after %d steps, previous: %v, %v", steps, certs, err)
		}
	}
}
