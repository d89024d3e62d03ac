package mitm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	certName = "ca.pem"
	keyName  = "ca.key"
	lockName = "ca.lock" // held while a pair is made; left where it is

	organization = "robotsproxy"
	caYears      = 10
)

// LoadOrCreate loads the CA in dir, the files ca.pem and ca.key, and makes
// them (and dir, open to its owner alone) where there are none: an ECDSA P-256
// key and a certificate of ten years with this host's name in its subject.
// Processes that start at once end up with the same pair. Half a pair is an
// error: one file alone is more likely a mistake than a first run.
func LoadOrCreate(dir string) (*Authority, error) {
	p, err := own(dir).loadOrCreate(dir)
	if err != nil {
		return nil, err
	}
	return newAuthority(p)
}

// own is the pair that LoadOrCreate makes in dir.
func own(dir string) files {
	return files{
		cert:   filepath.Join(dir, certName),
		key:    filepath.Join(dir, keyName),
		remedy: "restore the pair, or remove both files to have a new one made",
	}
}

func (f files) loadOrCreate(dir string) (pair, error) {
	rotated, err := exists(filepath.Join(dir, nextName))
	if err != nil {
		return pair{}, fmt.Errorf("CA: %w", err)
	}
	if whole, err := f.whole(); whole && err == nil && !rotated {
		p, err := f.load() // the usual way needs no lock, nor a directory it can write to
		if err == nil {
			return p, nil
		}
		return f.loadAgain(dir, err)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return pair{}, fmt.Errorf("make CA: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, lockName))
	if err != nil {
		return pair{}, fmt.Errorf("make CA: %w", err)
	}
	defer unlock()
	if err := f.settle(dir); err != nil {
		return pair{}, err
	}
	// Again, now that nobody else is making one: what was missing, or half
	// there, may be whole.
	whole, err := f.whole()
	if err != nil {
		return pair{}, err
	}
	if !whole {
		if err := f.create(dir); err != nil {
			return pair{}, fmt.Errorf("make CA: %w", err)
		}
	}
	return f.load()
}

// loadAgain loads a pair of which failed may be true, or whose files have just
// been replaced one after the other.
func (f files) loadAgain(dir string, failed error) (pair, error) {
	unlock, err := lock(filepath.Join(dir, lockName))
	if err != nil {
		return pair{}, failed // a directory that this user does not write to: nothing is ended there
	}
	defer unlock()
	if err := f.settle(dir); err != nil {
		return pair{}, err
	}
	return f.load()
}

// whole reports whether both files are there; one alone is an error.
func (f files) whole() (bool, error) {
	cert, err := exists(f.cert)
	if err != nil {
		return false, fmt.Errorf("CA certificate: %w", err)
	}
	key, err := exists(f.key)
	if err != nil {
		return false, fmt.Errorf("CA key: %w", err)
	}
	switch {
	case cert && !key:
		return false, fmt.Errorf("CA certificate %s has lost its key %s: %s", f.cert, f.key, f.remedy)
	case key && !cert:
		return false, fmt.Errorf("CA key %s has lost its certificate %s: %s", f.key, f.cert, f.remedy)
	}
	return cert, nil
}

func exists(name string) (bool, error) {
	_, err := os.Lstat(name) // a link to nowhere is not an invitation to make a CA
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// lock waits for the lock file and returns what gives it back. The kernel
// gives it back for a process that dies.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, keyMode)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// create makes a pair and writes it. Both files are whole on disk before
// either gets its name.
func (f files) create(dir string) error {
	cert, key, err := newCA(time.Now())
	if err != nil {
		return err
	}
	tmpKey, err := writeTemp(dir, key, keyMode)
	if err != nil {
		return err
	}
	defer os.Remove(tmpKey) // gone after the rename
	tmpCert, err := writeTemp(dir, cert, certMode)
	if err != nil {
		return err
	}
	defer os.Remove(tmpCert)
	if err := os.Rename(tmpKey, f.key); err != nil {
		return err
	}
	if err := os.Rename(tmpCert, f.cert); err != nil {
		return errors.Join(err, os.Remove(f.key)) // half a pair would bar the next start
	}
	return syncDir(dir)
}

// newCA returns certificate and key of a new CA as PEM.
func newCA(now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: caName()},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it signs leaves, no further CA
	}
	// The SubjectKeyId is CreateCertificate's: it makes one for every CA.
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: der}), key, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPKCS8, Bytes: pkcs8}), nil
}

// caName tells CAs of several hosts apart in a trust store.
func caName() string {
	const before, after = "robotsproxy CA (", ")"
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unnamed host"
	}
	return before + host[:min(len(host), maxCN-len(before)-len(after))] + after
}

// writeTemp writes data to a new file in dir, down to the disk.
func writeTemp(dir string, data []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, ".ca-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// syncDir makes the new names last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
