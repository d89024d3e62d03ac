package notary

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/osfile"
	"robotsproxy/proxy/mitm"
)

// KeyName is the file with the keys in the state directory if the configuration names none.
const KeyName = "checkpoint.key"

// A KeyFile is the file with the keys that sign checkpoints.
type KeyFile struct {
	Path string

	// Configured says that the configuration names the file, so that a missing one is an error. Otherwise it is made.
	Configured bool
}

// errNoKey says what to do about a missing key.
var errNoKey = errors.New("create the key with robotsproxy audit key")

// read returns the keys in the file.
func (f KeyFile) read() ([]checkpoint.Key, error) {
	const what = "audit.checkpoint.key"
	text, err := mitm.ReadPrivate(f.Path, what, "the key")
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: %w", what, missing, errNoKey)
	}
	if err != nil {
		return nil, err
	}
	keys, err := checkpoint.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", what, f.Path, err)
	}
	return keys, nil
}

// open returns the keys in the file. It makes a missing one, with a key by the name of the origin, unless it is configured.
func (f KeyFile) open(origin string) ([]checkpoint.Key, error) {
	keys, err := f.read()
	if f.Configured || !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if err := f.Create(origin); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.read()
}

// Verifiers returns what verifies the signatures of the keys.
func (f KeyFile) Verifiers() (note.Verifiers, error) {
	keys, err := f.read()
	if err != nil {
		return nil, err
	}
	return checkpoint.Verifiers(keys), nil
}

// Public returns the public keys, a line each.
func (f KeyFile) Public() (text string, err error) {
	keys, err := f.read()
	for _, k := range keys {
		text += k.Public + "\n"
	}
	return text, err
}

// Create makes the file with a new key. The error wraps fs.ErrExist if there is one.
func (f KeyFile) Create(origin string) error {
	secret, err := newKey(origin)
	if err != nil {
		return err
	}
	// Whoever finds the file finds all of it.
	temp, err := os.CreateTemp(filepath.Dir(f.Path), "."+filepath.Base(f.Path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(secret)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Link(temp.Name(), f.Path)
}

// Add adds a new key behind the others in the file, which then sign together.
func (f KeyFile) Add(origin string) error {
	keys, err := f.read()
	if err != nil {
		return err
	}
	if origin == "" {
		origin = keys[0].Name()
	}
	secret, err := newKey(origin)
	if err != nil {
		return err
	}
	return f.change(func(lines []string) []string { return append(lines, secret) })
}

// Retire removes the first key of the file, which has a later one.
func (f KeyFile) Retire() error {
	keys, err := f.read()
	if err != nil {
		return err
	}
	if len(keys) < 2 {
		return fmt.Errorf("%s has one key: add the next one before", f.Path)
	}
	return f.change(func(lines []string) []string { return lines[1:] })
}

// change replaces the lines of the file.
func (f KeyFile) change(by func(lines []string) []string) error {
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimSpace(line)+"\n")
		}
	}
	return osfile.Replace(f.Path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Join(by(lines), ""))
		return err
	})
}

// newKey returns a line with a new key by the name of the origin; "": by a random one.
func newKey(origin string) (string, error) {
	if origin == "" {
		var random [4]byte
		// rand.Read never fails (since Go 1.24).
		rand.Read(random[:])
		origin = originPrefix + hex.EncodeToString(random[:])
	}
	// The name of a key has no plus sign.
	secret, err := checkpoint.NewKey(strings.ReplaceAll(origin, "+", "_"))
	return secret + "\n", err
}

// originPrefix begins the origins that the proxy chooses.
const originPrefix = "robotsproxy/"

// OriginOf returns the origin of the checkpoints of a replica.
func OriginOf(replica string) string { return originPrefix + replica }
