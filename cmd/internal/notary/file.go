package notary

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/tsa"
	"robotsproxy/policy/osfile"
)

// CheckRegular returns an error if a file of the Settings is there, and is not a regular file.
func CheckRegular(s Settings) error { return s.checkFiles(checkRegular) }

// CheckWritable returns an error if checkpoints cannot be written to a file of the Settings. It changes no file.
func CheckWritable(s Settings) error { return s.checkFiles(checkWritable) }

// checkFiles checks the files of the Settings. If the disk hangs, it gives up after osfile.MaxWrite and returns nil.
func (s *Settings) checkFiles(check func(file string) error) error {
	of := func(key, file string) error {
		if file == "" {
			return nil
		}
		err := new(osfile.Watch).Do(osfile.MaxWrite, func() error { return check(file) })
		if err == nil || errors.Is(err, osfile.ErrHangs) {
			// The operator will learn that checkpoints are overdue.
			return nil
		}
		return fmt.Errorf("%s: %w", key, err)
	}
	return errors.Join(of("audit.checkpoint.file", s.File), of("audit.anchor.file", s.AnchorFile))
}

func checkRegular(file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", file)
	}
	return nil
}

func checkWritable(file string) error {
	if err := checkRegular(file); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		// This leaves no file.
		if f, err = os.CreateTemp(filepath.Dir(file), ".robotsproxy-*"); err != nil {
			return fmt.Errorf("no file can be made in %s: %w", filepath.Dir(file), err)
		}
		defer os.Remove(f.Name())
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// appendNote appends a note to a file that other processes may append to as well. An empty line separates it from what stands
// before it, also if the file ends within a line, as after a full disk.
func appendNote(file string, text []byte) error {
	if err := checkRegular(file); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	before := ""
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		before = "\n"
		if osfile.EndsWithinLine(f, info.Size()) {
			before = "\n\n"
		}
	}
	_, err = f.WriteString(before + string(text))
	return errors.Join(err, f.Sync(), f.Close())
}

// newestIn returns the last checkpoint of an origin in a file that one of the keys has signed; zero: there is none, or it is
// not in the last mostRead bytes.
func newestIn(file, origin string, keys []checkpoint.Key) checkpoint.Checkpoint {
	if checkRegular(file) != nil {
		return checkpoint.Checkpoint{}
	}
	f, err := os.Open(file)
	if err != nil {
		return checkpoint.Checkpoint{}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return checkpoint.Checkpoint{}
	}
	known := checkpoint.Verifiers(keys)
	const (
		mostRead = 64 << 20
		block    = 1 << 20

		// A note may begin in the block before.
		maxNote = 64 << 10
	)
	for end := info.Size(); end > 0 && info.Size()-end < mostRead; end -= block {
		from := max(0, end-block-maxNote)
		text, err := io.ReadAll(io.NewSectionReader(f, from, end-from))
		if err != nil {
			break
		}
		for _, text := range slices.Backward(checkpoint.Notes(text)) {
			if c, err := checkpoint.Open(text, known); err == nil && c.Origin == origin {
				return c
			}
		}
	}
	return checkpoint.Checkpoint{}
}

// newestIn returns when the newest checkpoint of the audit in a file was made. The time of the file says nothing, since
// anybody can change it.
func (n *Notary) newestIn(file string) time.Time {
	s := n.o.Settings()
	keys, err := s.Keys.read()
	if err != nil {
		return time.Time{}
	}
	return newestIn(file, s.origin(keys), keys).Time
}

// newestStamp returns the newest time that a time-stamp of a checkpoint of the audit states; zero: there is none.
func (n *Notary) newestStamp(string) (newest time.Time) {
	s := n.o.Settings()
	keys, err := s.Keys.read()
	if err != nil {
		return newest
	}
	// What cannot be read is no time-stamp.
	all, _ := tsa.List(filepath.Join(n.o.Dir, StampsName))
	for _, r := range all {
		if c, err := checkpoint.Open(r.Text, checkpoint.Verifiers(keys)); err != nil || c.Origin != s.origin(keys) {
			continue
		}
		response, err := os.ReadFile(r.Path)
		if err != nil {
			continue
		}
		// Without root certificates, Verify returns the time with an error that says so.
		if at, _ := tsa.Verify(response, r.Text, nil); at.After(newest) {
			newest = at
		}
	}
	return newest
}
