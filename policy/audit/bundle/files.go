package bundle

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"robotsproxy/policy/audit/trail"
)

const (
	// maxFiles and maxSmall bound what a stranger's bundle can make the verifier hold: the number of files, and the size of one that
	// is read at once, in bytes.
	maxFiles = 100_000
	maxSmall = 64 << 20

	// maxRatio bounds the size of all files together, as a multiple of the size of the zip file: deflate compresses no better.
	maxRatio = 1032

	// maxID bounds the IDs of requests and captures, in bytes.
	maxID = 256
)

// marshal returns the manifest as its file has it.
func (m *Manifest) marshal() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", " ")
	return append(text, '\n'), err
}

// open reads the manifest, and compares the files with it.
func (v *verifier) open(z *zip.Reader) error {
	if len(z.File) > maxFiles {
		return fmt.Errorf("not a bundle: more than %d files", maxFiles)
	}
	var all uint64
	for _, f := range z.File {
		if all += f.UncompressedSize64; all < f.UncompressedSize64 || all/maxRatio > uint64(v.size) {
			return errors.New("not a bundle: its files cannot be as large as they say")
		}
		if v.files[f.Name] != nil {
			return fmt.Errorf("the zip file has %q twice", f.Name)
		}
		v.files[f.Name] = f
	}
	text, err := v.read(manifestName)
	if err != nil {
		return fmt.Errorf("not a bundle: %w", err)
	}
	m := &v.found.Manifest
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	// Other programs must not read another selection in it, for example in a member that is there twice.
	if again, err := m.marshal(); err != nil || !bytes.Equal(again, text) {
		return fmt.Errorf("%s is not in the form that robotsproxy writes", manifestName)
	}
	if m.Format != formatVersion {
		return fmt.Errorf("%s: format %d: use a newer version of robotsproxy", manifestName, m.Format)
	}
	listed := map[string]bool{manifestName: true}
	for _, f := range m.Files {
		if listed[f.Name] {
			return fmt.Errorf("%s has %q twice", manifestName, f.Name)
		}
		listed[f.Name] = true
		if err := v.compare(&f); err != nil {
			return err
		}
	}
	clear(v.used)
	v.used[manifestName] = true
	for name := range v.files {
		if !listed[name] {
			return fmt.Errorf("%q is not in %s", name, manifestName)
		}
	}
	return nil
}

// compare compares a file with what the manifest says.
func (v *verifier) compare(f *File) error {
	in, err := v.openFile(f.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	if f.Name == ContentName && v.files[f.Name].Method != zip.Store {
		return fmt.Errorf("%q is compressed twice", f.Name)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, in)
	if err != nil {
		return fmt.Errorf("%q: %w", f.Name, err)
	}
	if n != f.Bytes || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%q was changed: its size or its SHA-256 is not that in %s", f.Name, manifestName)
	}
	return nil
}

func (v *verifier) openFile(name string) (io.ReadCloser, error) {
	f := v.files[name]
	if f == nil {
		return nil, fmt.Errorf("%q is missing", name)
	}
	v.used[name] = true
	in, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	// Reading stops one byte after the stated size, so that compare notices a longer file.
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(in, int64(f.UncompressedSize64)+1), in}, nil
}

// read reads a small file.
func (v *verifier) read(name string) ([]byte, error) {
	in, err := v.openFile(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxSmall+1))
	if err == nil && len(text) > maxSmall {
		err = fmt.Errorf("more than %d bytes", maxSmall)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return text, nil
}

// Content returns the WARC records in a bundle that was verified: gzip members.
func Content(r io.ReaderAt, size int64) (io.ReadCloser, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, err
	}
	f, err := z.Open(ContentName)
	return f, err
}

// Lines returns the lines of a bundle that are shown, in the order of the audit: the records, the events and the fetches.
func Lines(r io.ReaderAt, size int64) (io.Reader, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, err
	}
	m := &mergedLines{}
	for _, name := range []string{recordsName, eventsName, fetchesName} {
		f, err := z.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l := newLines(f); l.Scan() {
			m.files = append(m.files, l)
		}
	}
	return m, nil
}

// newLines returns what reads the lines of an audit.
func newLines(r io.Reader) *bufio.Scanner {
	l := bufio.NewScanner(r)
	// A line feed follows the longest line.
	l.Buffer(nil, trail.MaxLine+1)
	return l
}

// mergedLines reads the lines of several files in the order of their numbers.
type mergedLines struct {
	// files have read a line each, which was not merged yet.
	files []*bufio.Scanner
	rest  []byte
}

// Read implements [io.Reader].
func (m *mergedLines) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		if len(m.files) == 0 {
			return 0, io.EOF
		}
		seq := func(l *bufio.Scanner) uint64 {
			// A line that is none comes first, and its reader notices it.
			link, _ := trail.ReadLink(l.Bytes())
			return link.Seq
		}
		first := slices.MinFunc(m.files, func(a, b *bufio.Scanner) int { return cmp.Compare(seq(a), seq(b)) })
		m.rest = append(slices.Clone(first.Bytes()), '\n')
		if !first.Scan() {
			m.files = slices.DeleteFunc(m.files, func(l *bufio.Scanner) bool { return l == first })
			if err := first.Err(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}
