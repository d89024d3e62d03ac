package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxTurns is how many symbolic links are followed from a name to its file: Linux's own most.
const maxTurns = 40

// A watcher tells when files may have changed: the directories are watched of all
// names that a file's name leads over, so that it is noticed too when it is replaced
// by another, removed and made again, or one of its symbolic links is turned, as
// Kubernetes does with a ConfigMap's (..data) and certbot with a certificate's. A nil
// watcher watches nothing.
type watcher struct {
	fs    *fsnotify.Watcher
	names map[string]bool // whose events matter: in a directory that is watched, or such a directory
}

func newWatcher() (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{fs: w}, nil
}

func (w *watcher) events() <-chan fsnotify.Event {
	if w == nil {
		return nil
	}
	return w.fs.Events
}

func (w *watcher) errors() <-chan error {
	if w == nil {
		return nil
	}
	return w.fs.Errors
}

func (w *watcher) close() {
	if w != nil {
		w.fs.Close()
	}
}

// matters says whether an event may be about one of the files.
func (w *watcher) matters(e fsnotify.Event) bool {
	return w.names[filepath.Clean(e.Name)]
}

// follow watches these files and no others. It is called again after each change: the
// names may lead elsewhere then.
func (w *watcher) follow(files []string) error {
	if w == nil {
		return nil
	}
	const most = 3 // tries, where the names change while they are looked at
	var err error
	for range most {
		dirs, names := map[string]bool{}, map[string]bool{}
		for _, file := range files {
			trace(file, dirs, names)
		}
		w.names = names
		if missing := w.turnTo(dirs); len(missing) == 0 {
			return nil
		} else if err = w.add(missing); err != nil {
			return err
		}
	}
	return err
}

// turnTo stops watching what is not among dirs, and gives those that are not watched.
func (w *watcher) turnTo(dirs map[string]bool) (missing []string) {
	watched := w.fs.WatchList()
	for _, dir := range watched {
		if !dirs[dir] {
			w.fs.Remove(dir) // or it is gone
		}
	}
	for dir := range dirs {
		if !slices.Contains(watched, dir) {
			missing = append(missing, dir)
		}
	}
	return missing
}

func (w *watcher) add(dirs []string) (err error) {
	for _, dir := range dirs {
		if e := w.fs.Add(dir); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// trace goes from a name to its file, and notes the directories on the way in which a
// name is that may come to mean another, and these names. Where the way ends, because
// something is not there, that is such a name as well.
func trace(file string, dirs, names map[string]bool) {
	if !filepath.IsAbs(file) {
		here, err := os.Getwd()
		if err != nil {
			return
		}
		file = here + "/" + file // not cleaned: what stands before .. may be a link
	}
	dir, rest := "/", strings.Split(file, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		at := filepath.Join(dir, name)
		info, err := os.Lstat(at)
		if err == nil && info.IsDir() {
			dir = at
			continue
		}
		dirs[dir], names[dir], names[at] = true, true, true
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			return
		}
		to, err := os.Readlink(at)
		if links++; err != nil || links > maxTurns {
			return
		}
		if filepath.IsAbs(to) {
			dir = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
}
