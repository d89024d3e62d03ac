package mitm

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"robotsproxy/policy/osfile"
)

const (
	certName = "ca.pem"
	keyName  = "ca.key"
	// lockName is locked while a pair is made or replaced. It is never removed.
	lockName = "ca.lock"

	// nextName holds the new key, the new certificate and the replaced certificates in one file. A
	// rotation, or a first CA, is decided as soon as that file exists: then finishRotation completes it.
	nextName = "ca.next"
	// upcomingName is a directory with the pair that the next rotation will use, if Next has made one.
	upcomingName = "ca-next"
	// previousName has the replaced certificates, the newest first, and no keys.
	previousName = "ca-previous.pem"

	maxFile  = 1 << 20 // bytes that are read of a certificate or key file
	maxChain = 10      // certificates that are read of one file

	keyMode      fs.FileMode = 0o600
	groupKeyMode fs.FileMode = 0o640
	certMode     fs.FileMode = 0o644
	dirMode      fs.FileMode = 0o700
)

// ErrNoCA means that a directory has no CA to replace.
var ErrNoCA = errors.New("there is no CA yet")

// A keyPair is the checked content of the two files of a CA.
type keyPair struct {
	// certs are the CA and then its issuers, if the file has them.
	certs []*x509.Certificate

	// key is that of certs[0].
	key crypto.Signer
}

// caFiles are the two files of a CA.
type caFiles struct {
	// dir is the state directory of the pair; "": it is in none.
	dir       string
	cert, key string

	// remedy ends the error message about a pair that cannot be used.
	remedy string
}

// stateFiles returns the files of the pair that LoadOrCreate makes in dir.
func stateFiles(dir string) caFiles {
	return caFiles{
		dir:    dir,
		cert:   filepath.Join(dir, certName),
		key:    filepath.Join(dir, keyName),
		remedy: "restore both files, or remove both to get a new CA",
	}
}

// load reads both files and checks that they are a valid CA and its key.
func (f caFiles) load() (keyPair, error) {
	certs, err := f.readCerts()
	if err != nil {
		return keyPair{}, err
	}
	key, err := f.readKey()
	if err != nil {
		return keyPair{}, err
	}
	ca := certs[0]
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch now := time.Now(); {
	case !ok || !public.Equal(ca.PublicKey):
		return keyPair{}, fmt.Errorf("CA key %s does not match certificate %s: %s", f.key, f.cert, f.remedy)
	case !ca.BasicConstraintsValid || !ca.IsCA:
		return keyPair{}, fmt.Errorf("certificate %s is not a CA (CA:TRUE is missing): %s", f.cert, f.remedy)
	case ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0:
		return keyPair{}, fmt.Errorf("certificate %s is not a CA (key usage keyCertSign is missing): %s", f.cert, f.remedy)
	case now.After(ca.NotAfter):
		return keyPair{}, fmt.Errorf("CA certificate %s expired on %s: %s", f.cert, ca.NotAfter.Format(time.DateOnly), f.remedy)
	case now.Before(ca.NotBefore):
		begins := ca.NotBefore.Format(time.DateTime)
		return keyPair{}, fmt.Errorf("CA certificate %s is not valid before %s: set the clock, or %s", f.cert, begins, f.remedy)
	}
	return keyPair{certs: certs, key: key}, nil
}

// readCerts returns the certificates of the certificate file, at most maxChain.
func (f caFiles) readCerts() ([]*x509.Certificate, error) {
	text, _, err := readFile(f.cert)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w: make the file readable for this user", err)
	}
	var certs []*x509.Certificate
	for len(certs) < maxChain {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != blockCert {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA certificate %s is malformed (%w): %s", f.cert, err, f.remedy)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("CA certificate %s contains no PEM certificate: %s", f.cert, f.remedy)
	}
	return certs, nil
}

// readKey returns the first private key of the key file, whose mode must not let others read it.
func (f caFiles) readKey() (crypto.Signer, error) {
	text, err := ReadPrivate(f.key, "CA key", "the CA")
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("CA key %s contains no PEM private key: %s", f.key, f.remedy)
		}
		if !strings.HasSuffix(block.Type, blockPKCS8) {
			// It is a certificate, or has EC PARAMETERS.
			continue
		}
		// RFC 1421 4.6.1.3.
		if block.Type == blockEncrypted || block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("CA key %s is encrypted: store it unencrypted, with mode 0600", f.key)
		}
		key, err := parseKey(block)
		if err != nil {
			return nil, fmt.Errorf("CA key %s is malformed (%w): %s", f.key, err, f.remedy)
		}
		return key, nil
	}
}

// complete reports whether both files exist. One file without the other is an error.
func (f caFiles) complete() (bool, error) {
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
		return false, fmt.Errorf("the key %[2]s of CA certificate %[1]s is missing: %[3]s", f.cert, f.key, f.remedy)
	case key && !cert:
		return false, fmt.Errorf("the certificate %[2]s of CA key %[1]s is missing: %[3]s", f.key, f.cert, f.remedy)
	}
	return cert, nil
}

// loadOrCreate loads the pair, and makes one first if there is none.
func (f caFiles) loadOrCreate() (keyPair, error) {
	rotated, err := exists(filepath.Join(f.dir, nextName))
	if err != nil {
		return keyPair{}, fmt.Errorf("CA: %w", err)
	}
	var failed error
	if complete, err := f.complete(); complete && err == nil && !rotated {
		// Usually neither a lock nor a writable directory is needed. The load may also fail because the two files are
		// being replaced one after the other. It is then repeated under the lock.
		var p keyPair
		if p, failed = f.load(); failed == nil {
			return p, nil
		}
	}
	if err := os.MkdirAll(f.dir, dirMode); err != nil {
		return keyPair{}, fmt.Errorf("make CA: %w", err)
	}
	unlock, err := lock(filepath.Join(f.dir, lockName))
	if err != nil {
		// A user who cannot write to the directory cannot finish a rotation either.
		return keyPair{}, cmp.Or(failed, fmt.Errorf("make CA: %w", err))
	}
	defer unlock()
	if err := f.finishRotation(); err != nil {
		return keyPair{}, err
	}
	// Look again under the lock: another process may have made the pair meanwhile.
	complete, err := f.complete()
	if err != nil {
		return keyPair{}, err
	}
	if !complete {
		// A first CA is a rotation that replaces nothing, so a crash leaves no half of a pair.
		err := f.writeNext(nil)
		if err == nil {
			err = f.finishRotation()
		}
		if err != nil {
			return keyPair{}, fmt.Errorf("make CA: %w", err)
		}
	}
	return f.load()
}

// Rotate replaces the CA in dir by that of Next, or else by a new one, completely or not at all, and returns both
// certificates. The old certificate is kept in ca-previous.pem, with at most eight that were there
// before; its key is deleted. The old CA may have expired. Half a pair, a CA that was not made
// here, and another user's are errors. A process that loads the pair at the same time gets the old
// CA or the new one.
func Rotate(dir string) (old, now *x509.Certificate, err error) {
	f := stateFiles(dir)
	if err := f.checkOwner(); err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s does not exist", ErrNoCA, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	defer unlock()
	if err := f.finishRotation(); err != nil {
		return nil, nil, err
	}
	old, err = f.replaceable()
	if err != nil {
		return nil, nil, err
	}
	previous, err := Previous(dir)
	if err != nil {
		return nil, nil, err
	}
	replaced := append([]*x509.Certificate{old}, previous...)
	if err := f.writeNext(replaced[:min(len(replaced), maxChain-1)]); err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	if err := f.finishRotation(); err != nil {
		return nil, nil, err
	}
	if err := os.RemoveAll(f.upcoming().dir); err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	p, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	return old, p.certs[0], nil
}

// Next makes the CA in a subdirectory of dir that the next Rotate will use, so that clients can trust it before, and returns its
// certificate. If it was made before, Next only returns it.
func Next(dir string) (*x509.Certificate, error) {
	f := stateFiles(dir)
	if err := f.checkOwner(); err != nil {
		return nil, fmt.Errorf("next CA: %w", err)
	}
	if _, err := f.replaceable(); err != nil {
		return nil, err
	}
	p, err := f.upcoming().loadOrCreate()
	if err != nil {
		return nil, err
	}
	return p.certs[0], nil
}

// Upcoming returns the certificate of the CA that Next has made in dir; nil: there is none.
func Upcoming(dir string) (*x509.Certificate, error) {
	f := stateFiles(dir).upcoming()
	if complete, err := f.complete(); err != nil || !complete {
		return nil, err
	}
	certs, err := f.readCerts()
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

// upcoming returns the files of the pair that Next makes.
func (f caFiles) upcoming() caFiles {
	next := stateFiles(filepath.Join(f.dir, upcomingName))
	next.remedy = "remove the directory " + next.dir
	return next
}

// Previous returns the certificates that Rotate has replaced in dir, the newest first; none if
// Rotate was never called.
func Previous(dir string) ([]*x509.Certificate, error) {
	f := caFiles{cert: filepath.Join(dir, previousName), remedy: "remove the file; only ca uninstall needs it"}
	certs, err := f.readCerts()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return certs, err
}

// checkOwner fails if the key belongs to another user: a key that root put in its place could not
// be read by that user's proxy. A missing key is no error.
func (f caFiles) checkOwner() error {
	info, err := os.Stat(f.key)
	if err != nil {
		// The reader of the key reports the error.
		return nil
	}
	if uid := osfile.Owner(info); uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user: run the command as user %d", f.key, uid)
	}
	return nil
}

// replaceable returns the certificate of the pair if this package made it.
func (f caFiles) replaceable() (*x509.Certificate, error) {
	complete, err := f.complete()
	if err != nil {
		return nil, err
	}
	if !complete {
		return nil, fmt.Errorf("rotate CA: %w in %s", ErrNoCA, f.dir)
	}
	certs, err := f.readCerts()
	if err != nil {
		return nil, err
	}
	if !slices.Equal(certs[0].Subject.Organization, []string{organization}) {
		const kept = "was not created by robotsproxy, and its key would be lost: move both files elsewhere first"
		return nil, fmt.Errorf("rotate CA: %s %s", f.cert, kept)
	}
	return certs[0], nil
}

// writeNext takes the upcoming pair, or makes a new one, and writes it, with the certificates that it replaces, to nextName.
// Once it has returned, the rotation is decided.
func (f caFiles) writeNext(replaced []*x509.Certificate) error {
	cert, key, err := f.nextPair(replaced)
	if err != nil {
		return err
	}
	text := slices.Concat(key, cert, EncodeCertificates(replaced))
	return replaceFile(filepath.Join(f.dir, nextName), text, keyMode)
}

// nextPair returns the upcoming pair, or else a new one, as PEM. The upcoming one may be left over from a rotation that was
// interrupted: then it is the one that is replaced.
func (f caFiles) nextPair(replaced []*x509.Certificate) (cert, key []byte, err error) {
	upcoming := f.upcoming()
	complete, err := upcoming.complete()
	if err != nil {
		return nil, nil, err
	}
	if !complete {
		return newCA(time.Now())
	}
	p, err := upcoming.load()
	if err != nil {
		return nil, nil, err
	}
	if len(replaced) > 0 && p.certs[0].Equal(replaced[0]) {
		return newCA(time.Now())
	}
	key, err = encodeKey(p.key)
	return EncodeCertificates(p.certs[:1]), key, err
}

// finishRotation completes a rotation that is decided, if there is one. The caller holds the lock.
// It may be interrupted at any point and repeated.
func (f caFiles) finishRotation() error {
	name := filepath.Join(f.dir, nextName)
	if there, err := exists(name); err != nil || !there {
		return err
	}
	if err := f.checkOwner(); err != nil {
		return fmt.Errorf("complete the rotation of the CA: %w", err)
	}
	next := caFiles{cert: name, key: name, remedy: "remove the file, and rotate the CA again"}
	p, err := next.load()
	if err != nil {
		return fmt.Errorf("complete the rotation of the CA: %w", err)
	}
	key, err := encodeKey(p.key)
	if err == nil && len(p.certs) > 1 {
		err = replaceFile(filepath.Join(f.dir, previousName), EncodeCertificates(p.certs[1:]), certMode)
	}
	if err == nil {
		err = replaceFile(f.key, key, keyMode)
	}
	if err == nil {
		err = replaceFile(f.cert, EncodeCertificates(p.certs[:1]), certMode)
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err == nil {
		err = osfile.Sync(f.dir)
	}
	if err != nil {
		return fmt.Errorf("complete the rotation of the CA (the next start continues it): %w", err)
	}
	return nil
}

// replaceFile creates or replaces a file. After a crash the file is either the old one or the new one.
func replaceFile(name string, data []byte, mode fs.FileMode) error {
	err := osfile.Replace(name, mode, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return osfile.Sync(filepath.Dir(name))
}

// readFile returns the content of a regular file and its info, both of the same open file.
func readFile(name string) ([]byte, fs.FileInfo, error) {
	// To open a FIFO would wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("open %s: not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return bytes.TrimSpace(text), info, err
}

// ReadPrivate returns the content of a file with a private key, whose mode must not let others read it.
// Its errors call the key what, and dependent what must be replaced if others have read it.
func ReadPrivate(name, what, dependent string) ([]byte, error) {
	text, info, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: make the file readable for this user", what, err)
	}
	if mode := osfile.Perm(info); mode&^keyMode != 0 && !readableByGroup(mode, osfile.Owner(info), os.Geteuid()) {
		const advice = "run chmod 600 on it, and replace %s if others may have read the key"
		return nil, fmt.Errorf("%s %s has mode %#o, which lets other users access it: "+advice, what, name, mode, dependent)
	}
	return text, nil
}

// exists reports whether name exists, even as a dangling symbolic link.
func exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// lock waits for the lock of a file. The kernel releases it if the process dies.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, keyMode)
	if err != nil {
		return nil, err
	}
	if err := osfile.Lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// readableByGroup reports whether the key belongs to root and a group lets this user read it:
// Kubernetes mounts a Secret in this way for a pod that has an fsGroup.
func readableByGroup(mode fs.FileMode, owner, us int) bool {
	return mode&^groupKeyMode == 0 && owner == 0 && us != 0
}
