package runner

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/osfile"
)

// pruneTime is the longest time that a run spends on the directories of other runs.
const pruneTime = time.Second

// prunedPrefix begins the name of a directory that is being removed.
const prunedPrefix = ".pruned-"

// runName matches the names that newRunDir gives. A directory of another name is not removed.
var runName = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9]+(\.[0-9]+)?$`)

// A pruner removes the directories of finished runs. Any number of processes may prune at once. It follows no
// symbolic link.
type pruner struct {
	config.Runs

	// dir has the directories of all runs.
	dir string
	log *slog.Logger
}

// start prunes in the background, for at most pruneTime. wait returns when that has ended, or the time has passed.
func (p pruner) start() (wait func()) {
	ctx, cancel := context.WithTimeout(context.Background(), pruneTime)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err := p.prune(ctx, time.Now())
		if n > 0 {
			p.log.Info("directories of finished runs removed", "number", n)
		}
		if err != nil {
			p.log.Warn("directories of finished runs cannot be removed", "error", err)
		}
	}()
	return func() {
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// prune removes directories until ctx ends, and returns how many. A directory gets another name first, so that
// one that is removed in part does not look like a run.
func (p pruner) prune(ctx context.Context, now time.Time) (n int, err error) {
	if info, err := os.Lstat(p.dir); err != nil || !info.IsDir() {
		return 0, err
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return 0, err
	}
	for _, name := range p.finished(entries, now) {
		if ctx.Err() == nil && p.setAside(name, now) {
			err = errors.Join(err, p.remove(name))
			n++
		}
	}
	// An earlier run may have left directories that it did not remove in time.
	for _, e := range entries {
		if name, left := strings.CutPrefix(e.Name(), prunedPrefix); left && e.IsDir() && ctx.Err() == nil {
			err = errors.Join(err, p.remove(name))
		}
	}
	return n, err
}

// finished returns the names of the directories that are too old or too many, if their runs have ended.
func (p pruner) finished(entries []fs.DirEntry, now time.Time) (names []string) {
	var runs []fs.FileInfo
	for _, e := range entries {
		if !e.IsDir() || !runName.MatchString(e.Name()) {
			continue
		}
		// Info fails if another process has removed the directory.
		if info, err := e.Info(); err == nil {
			runs = append(runs, info)
		}
	}
	// A run changes its directory when it ends.
	slices.SortStableFunc(runs, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, r := range runs {
		if p.MaxAge > 0 && now.Sub(r.ModTime()) > p.MaxAge || p.MaxNumber > 0 && i >= p.MaxNumber {
			names = append(names, r.Name())
		}
	}
	return names
}

// setAside renames the directory of a run for remove, and reports whether it did. It does not if the run lasts.
func (p pruner) setAside(name string, now time.Time) bool {
	dir := filepath.Join(p.dir, name)
	locks, free := takeLocks(dir, now)
	// Windows does not rename a directory with open files.
	if runtime.GOOS != "windows" {
		defer locks.close()
	} else {
		locks.close()
	}
	return free && os.Rename(dir, filepath.Join(p.dir, prunedPrefix+name)) == nil
}

// remove removes a directory that was set aside.
func (p pruner) remove(name string) error {
	return os.RemoveAll(filepath.Join(p.dir, prunedPrefix+name))
}

// runLock is a file in the directory of a run that is locked while the run lasts.
const runLock = "run.lock"

// unlockedFor is the least age of a directory without a runLock that is removed: a run may be about to lock it.
const unlockedFor = time.Hour

// heldLocks are locked files.
type heldLocks []*os.File

func (l heldLocks) close() {
	for _, f := range l {
		f.Close()
	}
}

// takeLocks locks what a run locks in its directory; free is false if it lasts. Runs of earlier versions lock only
// the audit.
func takeLocks(dir string, now time.Time) (locks heldLocks, free bool) {
	for _, name := range []string{runLock, cli.AuditName + ".lock"} {
		file := filepath.Join(dir, name)
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			at, err := os.Lstat(dir)
			if name == runLock && (err != nil || now.Sub(at.ModTime()) < unlockedFor) {
				return locks, false
			}
			continue
		case err != nil || !info.Mode().IsRegular():
			return locks, false
		}
		f, err := osfile.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			return locks, false
		}
		if locks = append(locks, f); osfile.TryLock(f) != nil {
			return locks, false
		}
	}
	return locks, true
}

// makeLocked makes the directory of a run and locks it. The error is fs.ErrExist also if a pruner was faster than the
// lock. On a file system without locks nothing is locked, and therefore nothing removed.
func makeLocked(dir string) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, runLock)
	lock, err := osfile.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrExist
	} else if err != nil {
		return nil, err
	}
	locked := osfile.TryLock(lock)
	if _, ours := osfile.Named(lock, file); errors.Is(locked, osfile.ErrLocked) || !ours {
		lock.Close()
		return nil, fs.ErrExist
	}
	return lock, nil
}
