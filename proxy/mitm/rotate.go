package mitm

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// nextName is the new pair, and what previousName is to hold, as one file: a
	// rotation has happened once it has its name, and not before.
	nextName     = "ca.next"
	previousName = "ca-previous.pem" // certificates, the one replaced last first; no keys
)

// ErrNoCA is the error of a directory that has no CA to be replaced.
var ErrNoCA = errors.New("there is no CA yet")

// Rotate puts a new CA in the place of the one in dir, whole or not at all, and
// gives both certificates. The old one is kept in ca-previous.pem, with at most
// eight that were there before it; its key is gone. An old CA that has expired
// will do; half a pair, a CA that was not made here, and another user's are
// errors. Whoever loads the pair at the time, in whatever process, gets one or
// the other.
func Rotate(dir string) (old, now *x509.Certificate, err error) {
	f := own(dir)
	if err := f.owned(); err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	unlock, err := f.hold(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	defer unlock()
	if err := f.settle(dir); err != nil {
		return nil, nil, err
	}
	old, err = f.replaceable()
	if err != nil {
		return nil, nil, err
	}
	before, err := Previous(dir)
	if err != nil {
		return nil, nil, err
	}
	before = append([]*x509.Certificate{old}, before...)
	if err := writeNext(dir, before[:min(len(before), maxChain-1)]); err != nil {
		return nil, nil, fmt.Errorf("rotate CA: %w", err)
	}
	if err := f.settle(dir); err != nil {
		return nil, nil, err
	}
	p, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	return old, p.certs[0], nil
}

// Previous is the certificates that Rotate has replaced in dir, the last one
// first; none where it has never been called.
func Previous(dir string) ([]*x509.Certificate, error) {
	f := files{cert: filepath.Join(dir, previousName), remedy: "remove it; it is of use for uninstalling alone"}
	certs, err := f.readCerts()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return certs, err
}

// Made is when a CA of ours was made, which for the one that it replaced is when it was.
func Made(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// owned says whether the key is this user's, or not there: what root would put in
// its place, the proxy of another user could not read.
func (f files) owned() error {
	info, err := os.Stat(f.key)
	if err != nil {
		return nil // whoever reads it says so
	}
	if uid := owner(info); uid != os.Geteuid() {
		return fmt.Errorf("%s is another user's: as user %d this has to be done", f.key, uid)
	}
	return nil
}

// owner is the user whose file it is; where files have none, this one.
func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return os.Geteuid()
}

// hold takes the lock of a directory that is there.
func (f files) hold(dir string) (unlock func(), err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not there", ErrNoCA, dir)
	}
	return lock(filepath.Join(dir, lockName))
}

// replaceable is the certificate of the pair, if that is one of ours.
func (f files) replaceable() (*x509.Certificate, error) {
	whole, err := f.whole()
	if err != nil {
		return nil, err
	}
	if !whole {
		return nil, fmt.Errorf("rotate CA: %w in %s", ErrNoCA, filepath.Dir(f.cert))
	}
	certs, err := f.readCerts()
	if err != nil {
		return nil, err
	}
	if !slices.Equal(certs[0].Subject.Organization, []string{organization}) {
		return nil, fmt.Errorf("rotate CA: %s was not made here, and its key would be lost: move the pair elsewhere first", f.cert)
	}
	return certs[0], nil
}

// writeNext makes a new pair and writes it with the certificates before it. With
// its return the rotation has happened.
func writeNext(dir string, before []*x509.Certificate) error {
	cert, key, err := newCA(time.Now())
	if err != nil {
		return err
	}
	tmp, err := writeTemp(dir, slices.Concat(key, cert, encodeCerts(before)), keyMode)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, nextName)); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(dir)
}

// settle ends a rotation that has happened but is not in the files yet. It holds
// the lock, and may be broken off anywhere and begun again.
func (f files) settle(dir string) error {
	name := filepath.Join(dir, nextName)
	if there, err := exists(name); err != nil || !there {
		return err
	}
	if err := f.owned(); err != nil {
		return fmt.Errorf("end the rotation of the CA: %w", err)
	}
	next := files{cert: name, key: name, remedy: "remove it, and rotate the CA again"}
	p, err := next.load()
	if err != nil {
		return fmt.Errorf("end the rotation of the CA: %w", err)
	}
	key, err := encodeKey(p.key)
	if err == nil {
		err = place(dir, []written{
			{filepath.Join(dir, previousName), encodeCerts(p.certs[1:]), certMode},
			{f.key, key, keyMode},
			{f.cert, encodeCerts(p.certs[:1]), certMode},
		})
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("end the rotation of the CA (the next start goes on with it): %w", err)
	}
	return nil
}

// A written is a file that is to be replaced.
type written struct {
	name string
	data []byte
	mode fs.FileMode
}

// place replaces files once all that comes in their place is on the disk.
func place(dir string, all []written) error {
	var temps []string
	defer func() {
		for _, tmp := range temps {
			os.Remove(tmp) // gone after the rename
		}
	}()
	for _, w := range all {
		tmp, err := writeTemp(dir, w.data, w.mode)
		if err != nil {
			return err
		}
		temps = append(temps, tmp)
	}
	for i, w := range all {
		if err := os.Rename(temps[i], w.name); err != nil {
			return err
		}
	}
	return syncDir(dir)
}
