package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"robotsproxy/policy/audit/trail"
)

// begin opens the file at path and finds the last line of its chain. What is no line
// of it is set aside, and each time an event says so.
func (s *sheet) begin(path string) (last trail.Link, events []event, err error) {
	if path == "-" {
		s.file = os.Stdout
		return last, nil, nil
	}
	s.path = path
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return last, nil, err
	}
	if err == nil && !info.Mode().IsRegular() {
		s.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY|unix.O_NONBLOCK, 0) // of a pipe that nobody reads it is an error
		return last, nil, err
	}
	s.regular = true
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.claim(); err != nil {
		return last, nil, err
	}
	if err := s.use(0); err != nil {
		return last, nil, err
	}
	if last, events, err = s.resume(); err != nil {
		return last, nil, fmt.Errorf("%s: %w", path, err)
	}
	return last, events, nil
}

// resume finds where the chain goes on.
func (s *sheet) resume() (last trail.Link, events []event, err error) {
	if s.size > 0 {
		var end int64
		last, end, err = trail.LastLink(s.file, s.size)
		switch {
		case errors.Is(err, trail.ErrNoChain):
			e, err := s.restart()
			if err != nil {
				return last, nil, err
			}
			events = append(events, e)
		case err != nil:
			return last, nil, err
		case end < s.size:
			e, err := s.cutTail(end)
			if err != nil {
				return last, nil, err
			}
			events = append(events, e)
		}
	}
	if s.size == 0 {
		if last, err = trail.LastSegmentLink(s.path); err != nil {
			return last, nil, fmt.Errorf("the file before it: %w", err)
		}
	}
	s.first = last.Seq + 1
	if s.size > 0 {
		s.first = s.firstLine(last.Seq)
	}
	return last, events, nil
}

// firstLine is the number of the file's first line, otherwise where that does not tell.
func (s *sheet) firstLine(otherwise uint64) uint64 {
	line, err := bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.size), trail.MaxLine+1).ReadSlice('\n')
	if err != nil {
		return otherwise
	}
	l, err := trail.ReadLink(line[:len(line)-1])
	if err != nil {
		return otherwise
	}
	return l.Seq
}

// restart sets the whole file aside, which has no chain to go on with, and begins a
// new one.
func (s *sheet) restart() (event, error) {
	name, err := setAside(s.path, "unchained")
	if err != nil {
		return event{}, err
	}
	e := event{name: "unchained", detail: "the file does not end in a chain, and was set aside as it was", file: filepath.Base(name), octets: s.size}
	if err := s.shut(); err != nil {
		return event{}, err
	}
	return e, s.use(os.O_EXCL)
}

// cutTail moves what stands behind end into a file of its own.
func (s *sheet) cutTail(end int64) (event, error) {
	name, err := unused(s.path, "torn")
	if err != nil {
		return event{}, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return event{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.NewSectionReader(s.file, end, s.size-end))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
		return event{}, err
	}
	if err := s.file.Truncate(end); err != nil {
		return event{}, err
	}
	s.size = end
	return event{
		name: "torn", detail: "what stood behind the last whole line was set aside", file: filepath.Base(name),
		octets: n, sha256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// setAside renames a file that is not to be written to any more.
func setAside(path, why string) (name string, err error) {
	if name, err = unused(path, why); err != nil {
		return "", err
	}
	return name, os.Rename(path, name)
}

// unused is a name beside path, with why and the time, that no file has.
func unused(path, why string) (string, error) {
	base := path + "." + why + "-" + time.Now().UTC().Format("20060102T150405Z")
	name := base
	for n := 2; n < 1000; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return "", fmt.Errorf("%s: %w", base, fs.ErrExist)
}
