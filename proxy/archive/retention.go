package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/osfile"
)

// AutoTotal returns the value of archive.max_total_size: auto for a directory: half of the bytes that its disk
// has left or that its files take already.
func AutoTotal(dir string) (int64, error) {
	_, taken, err := onDisk(dir)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = filepath.Dir(dir), nil
	}
	free, failed := osfile.Free(dir)
	return (taken + free) / 2, errors.Join(err, failed)
}

// Measure returns the Space of the archive in a directory under the options MaxFile, MaxAge and MaxTotal.
func Measure(dir string, o Options) (audit.Space, error) {
	files, taken, err := onDisk(dir)
	if err != nil {
		return audit.Space{}, err
	}
	return measure(dir, files, taken, &o, time.Now())
}

// measure is Measure of files that take taken bytes together.
func measure(dir string, files []writtenFile, taken int64, o *Options, now time.Time) (s audit.Space, err error) {
	s = audit.Space{Of: "archive", Bytes: taken, Segment: o.fileLimit()}
	if s.Free, err = osfile.Free(dir); err != nil {
		return s, err
	}
	// grown is the number of bytes that were written in the last day.
	began, grown := now, int64(0)
	for _, f := range slices.Backward(files) {
		if now.Sub(began) > 24*time.Hour {
			break
		}
		began = f.began
		grown += f.size
	}
	if len(files) > 0 {
		s.Oldest = files[0].began
	}
	s.Forecast(grown, began, audit.Options{MaxAge: o.MaxAge, MaxTotal: o.MaxTotal}, now)
	return s, nil
}

// A writtenFile is a file of an archive.
type writtenFile struct {
	name string

	// began is the time in the name.
	began     time.Time
	size      int64
	lastWrite time.Time

	// complete says that the file is not written any more.
	complete bool
}

// onDisk returns the files in a directory, the oldest first, and how many bytes they take.
func onDisk(dir string) (files []writtenFile, taken int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		name := e.Name()
		began, ok := Began(name)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			// The file was renamed meanwhile.
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		files = append(files, writtenFile{name, began, info.Size(), info.ModTime(), !strings.HasSuffix(name, openExt)})
		taken += info.Size()
	}
	slices.SortFunc(files, func(a, b writtenFile) int { return a.began.Compare(b.began) })
	return files, taken, nil
}

// clean removes the files that are too old or take too much space, and measures the space. settled is the time
// from which ages count; zero: not known yet.
func (f *files) clean(settled time.Time) (audit.Space, error) {
	o := f.options.Load()
	all, taken, err := onDisk(f.dir)
	left := all[:0]
	for _, file := range all {
		old := o.MaxAge > 0 && settled.Sub(file.lastWrite) > o.MaxAge
		if err != nil || !file.complete || !old && (o.MaxTotal <= 0 || taken <= o.MaxTotal) {
			left = append(left, file)
			continue
		}
		if err = f.forget(file.name); err == nil {
			err = os.Remove(filepath.Join(f.dir, file.name))
		}
		taken -= file.size
		if err == nil && !old {
			o.Log.Warn("archived records deleted before archive.max_age", "file", file.name, "option", "archive.max_total_size")
		}
	}
	space, failed := measure(f.dir, left, taken, o, time.Now())
	return space, errors.Join(err, failed)
}

// completeDue completes the files that are full, and those that were begun too long ago, so that their records are
// not kept much longer than Options.MaxAge.
func (f *files) completeDue() (err error) {
	for _, w := range f.all {
		if !w.mu.TryLock() {
			// An exchange is being written, and the next exchange looks at the file too.
			continue
		}
		if w.file != nil {
			err = errors.Join(err, f.completeIfDue(w, f.options.Load()))
		}
		w.mu.Unlock()
	}
	return err
}
