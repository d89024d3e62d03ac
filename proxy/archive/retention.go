package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/osfile"
)

// fileName matches the names of complete files, whatever their prefix, with the time in them.
var fileName = regexp.MustCompile(`-([0-9]{17})-[0-9]{5,}\.warc(\.gz)?$`)

// isFileName reports whether a file is one of an archive, complete or not.
func isFileName(name string) bool { return fileName.MatchString(strings.TrimSuffix(name, openExt)) }

// A Space says how much of the disk an archive uses. The zero Space is not measured yet.
type Space struct {
	Files   int
	Bytes   int64 // of all files
	Free    int64 // bytes that the disk has left
	MaxFile int64 // bytes that a file may reach
}

// Warning returns what to tell the operator if there is little space left, else "".
func (s Space) Warning() string {
	if s.MaxFile == 0 || s.Free >= s.MaxFile {
		return ""
	}
	return fmt.Sprintf("%s free on the disk of the archive, but a file of the archive may reach %s", humanize.Bytes(s.Free), humanize.Bytes(s.MaxFile))
}

// AutoTotal returns the value of archive.max_total_size: auto for a directory: half of the bytes that its disk
// has left or that its files take already.
func AutoTotal(dir string) (int64, error) {
	_, space, err := onDisk(dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, space, err = onDisk(filepath.Dir(dir))
	}
	return (space.Bytes + space.Free) / 2, err
}

// Measure returns the Space of the archive in a directory whose files may reach maxFile bytes.
func Measure(dir string, maxFile int64) (Space, error) {
	_, space, err := onDisk(dir)
	space.MaxFile = maxFile
	return space, err
}

// A completeFile is a file that is not written any more.
type completeFile struct {
	name      string
	began     string // as its name has it
	size      int64
	lastWrite time.Time
}

// onDisk returns the complete files in a directory, the oldest first.
func onDisk(dir string) (files []completeFile, s Space, err error) {
	if s.Free, err = osfile.Free(dir); err != nil {
		return nil, s, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, s, err
	}
	for _, e := range entries {
		name := e.Name()
		at := fileName.FindStringSubmatch(strings.TrimSuffix(name, openExt))
		if at == nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was renamed meanwhile
		}
		if err != nil {
			return nil, s, err
		}
		s.Files++
		s.Bytes += info.Size()
		if !strings.HasSuffix(name, openExt) {
			files = append(files, completeFile{name, at[1], info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b completeFile) int { return strings.Compare(a.began, b.began) })
	return files, s, nil
}

// clean removes the files that are too old or take too much space, and measures the space. settled is the time
// from which ages count; zero: not known yet.
func (f *files) clean(settled time.Time) (Space, error) {
	o := f.options.Load()
	all, space, err := onDisk(f.dir)
	space.MaxFile = o.MaxFile
	for _, oldest := range all {
		old := o.MaxAge > 0 && settled.Sub(oldest.lastWrite) > o.MaxAge
		if err != nil || !old && (o.MaxTotal <= 0 || space.Bytes <= o.MaxTotal) {
			break
		}
		if err = f.forget(oldest.name); err == nil {
			err = os.Remove(filepath.Join(f.dir, oldest.name))
		}
		space.Files--
		space.Bytes -= oldest.size
		if err == nil && !old {
			o.Log.Warn("archived records deleted before archive.max_age", "file", oldest.name, "option", "archive.max_total_size")
		}
	}
	return space, err
}

// completeDue completes the files that are full, and those that were begun too long ago, so that their records are
// not kept much longer than Options.MaxAge.
func (f *files) completeDue() (err error) {
	for _, w := range f.all {
		if !w.mu.TryLock() {
			continue // an exchange is written, and the next one looks too
		}
		if w.file != nil {
			err = errors.Join(err, f.completeIfDue(w, f.options.Load()))
		}
		w.mu.Unlock()
	}
	return err
}
